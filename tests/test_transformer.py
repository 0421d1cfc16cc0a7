"""Parameters and dropout of Figure 1; `test_models.py` tests every architecture."""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from t2t_jax import config
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models import build
from t2t_jax.models.feed_forward import FeedForward
from t2t_jax.models.multihead import MultiHead
from t2t_jax.models.positions import Encoding
from t2t_jax.models.transformer import Layer
from t2t_jax.parts import NORM_PLACEMENTS, implementation
from tests.small import SOURCE, TARGET, TRANSFORMER, V, full_logits, make


def count(V, **changes):
    model, token = build(config.replace(config.Config(), **changes), V), jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), token, token)
    return sum(x.size for x in jax.tree.leaves(shapes))


def test_rows_of_group_a_have_as_many_parameters_as_base():
    base = count(41_100, N=1)
    for h, d in ((1, 512), (4, 128), (16, 32), (32, 16)):
        assert count(41_100, N=1, h=h, d_k=d, d_v=d) == base
    assert count(37_000) == 63_045_632


@pytest.mark.full
def test_as_many_heads_of_keys_and_values_as_of_queries_are_the_default():
    (plain, params), (same, others) = make(), make(h_kv=3)
    jax.tree.map(np.testing.assert_array_equal, params, others)
    np.testing.assert_array_equal(full_logits(plain, params), full_logits(same, others))
    fewer = count(V, N=1, h_kv=2)  # three attentions, each without six heads of d_k and d_v
    assert count(V, N=1) - fewer == 3 * 6 * 512 * 2 * 64


def sizes(**changes):
    """Returns how many numbers of keys and values decoding keeps of the source, and of 11 steps."""
    model, params = make(**changes)

    def start(params):
        encoded = model.apply({"params": params}, SOURCE, method="encode")
        return model.apply({"params": params}, encoded, 11, method="start")

    memory, state = jax.eval_shape(start, params)
    return [sum(x[n].size for x in layers for n in x if n[0] in "kv") for layers in (memory, state)]


def test_decoding_keeps_the_heads_of_keys_and_values_alone():
    assert [3 * n for n in sizes(h_kv=1)] == sizes()
    kept = dict(decoder_attention="local:w=2", cross_attention="general")
    (memory, state), (all_memory, all_state) = sizes(h_kv=1, **kept), sizes(**kept)
    assert (memory, 3 * state) == (all_memory, all_state)  # each query's head has its own W k


def test_decoding_keeps_latents_once_and_no_heads():
    (B, S), N = SOURCE.shape, TRANSFORMER["N"]
    assert sizes(d_c=4) == [N * B * S * 4, N * B * 11 * 4]
    rotary = dict(d_c=6, d_k=8, positions="rotary")  # half as many features rotate, in no source
    assert sizes(**rotary) == [N * B * S * 6, N * B * 11 * (6 + 4)]
    kept = dict(cross_attention="local:w=1", decoder_attention="streaming:w=2,g=1")
    assert sizes(**rotary, **kept) == [N * B * S * 6, N * B * (3 + 1) * (6 + 4)]


NEARLY_ALL = 0.9999  # so high a rate keeps none of few elements


def test_dropout_is_applied_where_the_paper_says():
    x = jax.random.normal(jax.random.key(2), (2, 3, 4))
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}

    class Flow(nn.Module):
        """One sub-layer f of x."""

        c: config.Model
        dtype: Any = jnp.float32
        add_norm = Layer.add_norm

        @nn.compact
        def __call__(self, f, P_drop):
            place = implementation(NORM_PLACEMENTS[self.c.norm_placement].where, "t2t_jax.models")
            return place(self, x, {"attention": f}, P_drop)

    def flow(placement, f, P_drop):
        module = Flow(config.Model(d_model=4, norm_placement=placement))
        return jax.jit(lambda: module.init_with_output(rngs, f, P_drop)[0])()

    # The residual is kept, and the sub-layer's output is dropped.
    np.testing.assert_array_equal(flow("pre", lambda y: y + 5, NEARLY_ALL), x)
    kept = flow("post", jnp.zeros_like, None)
    np.testing.assert_allclose(flow("post", jnp.sin, NEARLY_ALL), kept, rtol=1e-6)
    encoding = Encoding("sinusoid", 9, jnp.float32)
    out, _ = jax.jit(lambda: encoding.init_with_output(rngs, x, NEARLY_ALL))()
    np.testing.assert_array_equal(out, 0)  # both embedding and position are dropped
    c = config.Model(d_model=4, d_ff=6, h=2, d_k=3, d_v=5, P_drop_ff=NEARLY_ALL)
    feed_forward = FeedForward(c, jnp.float32)

    @jax.jit
    def transformed(rngs):
        variables = jax.tree.map(jnp.ones_like, nn.meta.unbox(feed_forward.init(rngs, x, True)))
        return feed_forward.apply(variables, x, True, rngs={"dropout": rngs["dropout"]})

    out = transformed(rngs)
    np.testing.assert_array_equal(out, 1)  # only the bias remains
    heads = MultiHead(replace(c, P_drop_attention=NEARLY_ALL), "encoder", jnp.float32)

    @jax.jit
    def attend(rngs):
        variables = heads.init(rngs, x, x, Visibility(), True)
        return heads.apply(variables, x, x, Visibility(), True, rngs={"dropout": rngs["dropout"]})

    np.testing.assert_array_equal(attend(rngs), 0)


@pytest.mark.parametrize(
    ("changes", "sites"), [({}, 5), (dict(P_drop_ff=0.5), 7), (dict(P_drop_attention=0.5), 8)]
)
def test_every_layer_draws_its_own_dropout(changes, sites):
    """5 sub-layers in an encoder and a decoder layer, 2 feed-forwards, 3 attentions."""
    model, params = make(**changes)
    rngs = {"dropout": jax.random.key(0)}

    def forward(params, P_drop):
        encoded = model.apply({"params": params}, SOURCE, P_drop, method="encode", rngs=rngs)
        return model.apply({"params": params}, encoded, TARGET, P_drop, method="decode", rngs=rngs)

    def draws(jaxpr):
        inner = (j for e in jaxpr.eqns for j in jaxprs_in_params(e.params))
        here = sum(e.primitive.name == "bitcast_convert_type" for e in jaxpr.eqns)  # of bits
        return here + sum(draws(j) for j in inner)

    traced = jax.make_jaxpr(forward)(params, 0.1)
    assert draws(traced.jaxpr) == 2 + TRANSFORMER["N"] * sites
