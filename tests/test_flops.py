"""The FLOP formula equals the count of the traced program, and layers scale as in Table 1."""

import jax
import jax.numpy as jnp
import pytest

from experiments import table1
from experiments.tools.layers import count, counted, layers_to_the_end
from t2t_jax import config
from t2t_jax.models.flops import run_flops, step_flops
from tests.small import V, make

B, S, T = 2, 7, 5
MODELS = {
    "transformer": dict(),
    "additive": dict(cross_attention="additive", encoder_attention="general"),
    "heads": dict(encoder_attention="talking_heads", cross_attention="differential", d_k=6),
    "grouped": dict(h=4, h_kv=2, encoder_attention="general"),
    "latent": dict(d_c=4, attention_gate="head"),
    "latent-rotary": dict(d_c=6, d_k=8, positions="rotary"),
    "element": dict(attention_gate="element"),
    "head": dict(attention_gate="head", architecture="decoder"),
    "hybrid": dict(
        N=3, decoder_attention="linear,local:w=2", encoder_attention="scaled_dot_product,linear"
    ),
    "convolutional-hybrid": dict(
        architecture="convolutional", N=3, cross_attention="local:w=2,dot_product"
    ),
    "lstm": dict(architecture="recurrent"),
    "gru-both": dict(architecture="recurrent", cell="gru", encoder_direction="both", N=3),
    "luong": dict(architecture="recurrent", attention_feeding="output", cross_attention="general"),
    "bahdanau": dict(
        architecture="recurrent", attention_feeding="input", cross_attention="dot_product"
    ),
    "convolutional": dict(architecture="convolutional", kernel=4, N=3),
    "encoder": dict(architecture="encoder"),
    "gated": dict(feed_forward="swiglu", norm="rms_norm", positions="alibi", qk_norm="rms_norm"),
    "decoder": dict(architecture="decoder", positions="rotary", d_k=6),
    "gates": dict(encoder_attention="gated_linear", decoder_attention="gated_delta"),
}


@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_the_formula_equals_the_products_of_the_forward_pass(changes):
    check_products(**changes)


def check_products(**changes):
    model, params = make(**changes)
    source, target = jnp.ones((B, S), jnp.int32), jnp.ones((B, T), jnp.int32)

    def forward(params):
        encoded = model.apply({"params": params}, source, method="encode")
        return model.apply({"params": params}, encoded, target, method="decode")

    actual, _ = count(jax.make_jaxpr(forward)(params).jaxpr)
    additive = changes.get("cross_attention") == "additive"  # its sum is no matrix product
    d_k = model.c.d_k
    actual += additive * 2 * B * model.c.N * model.c.h * T * S * d_k
    assert step_flops(model.c, V, B, S, T) / 3 == pytest.approx(actual, rel=1e-9)


def test_a_loop_is_counted_as_often_as_it_runs():
    w = jnp.ones((3, 3))

    def f(x):
        def outer(x, _):
            y, _ = jax.lax.scan(lambda y, _: (y @ w, None), x, length=5)
            return y @ w, None

        return jax.lax.scan(outer, x, length=4)[0]

    assert count(jax.make_jaxpr(f)(jnp.ones((2, 3))).jaxpr) == (4 * 6 * 2 * 2 * 3 * 3, 20)
    unknown = jax.make_jaxpr(lambda x: jax.lax.while_loop(lambda x: x < 9, lambda x: x + 1, x))(1)
    with pytest.raises(ValueError, match="not known"):
        count(unknown.jaxpr)


@pytest.mark.full
def test_path_lengths_and_sequential_steps_are_those_of_table_1():
    layers = {name: table1.make(name, 16, 4) for name in table1.PAPER}
    actual = {
        name: (layers_to_the_end(layer, 5, 16), counted(layer(0), 5, 16)[1])
        for name, layer in layers.items()
    }
    assert actual == {
        "self-attention": (1, 0),
        "restricted": (2, 0),  # 4 positions by windows of 2 on a side
        "recurrent": (1, 5),
        "convolutional": (4, 0),  # one position on a side
        "dilated": (2, 0),  # 3^2 > 4
    }


@pytest.mark.parametrize(
    ("name", "n", "d"),
    [("self-attention", 2, 1), ("recurrent", 1, 2), ("convolutional", 1, 2), ("restricted", 1, 1)],
)
def test_flops_of_a_layer_grow_as_in_table_1(name, n, d):
    def flops(n, d):
        return counted(table1.make(name, d, 8)(0), n, d)[0]

    assert flops(128, 16) / flops(64, 16) == 2**n
    assert flops(64, 32) / flops(64, 16) == 2**d


def test_documents_are_counted_at_the_length_of_their_sequences():
    c = config.replace(config.Config(), architecture="decoder", steps=7, batch_tokens=900)
    for corpus, L in (("grammar", 32), ("documents", 100)):
        of = config.replace(c, corpus=corpus, max_length=100)
        assert run_flops(of, 50) == 7 * step_flops(of.model, 50, 900 // L, L, L)
