"""Small models of any architecture with random weights, and three padded sentence pairs."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax import config
from t2t_jax.models import build
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.training.step import shift

V = 29
TRANSFORMER = dict(N=2, d_model=12, d_ff=22, h=3, d_k=5, d_v=7)
SENTENCES = ([5, 9, 23, 11, 2], [7, 28, 2]), ([6, 2], [14, 4, 4, 19, 8, 2]), ([17, 21, 2], [2])


def padded(rows, width):
    return jnp.array([row + [0] * (width - len(row)) for row in rows], jnp.int32)


SOURCE = padded([s for s, _ in SENTENCES], 8)
TARGET = padded([t for _, t in SENTENCES], 10)


def make(**changes):
    """Returns a model and random parameters, none with a special value such as zero."""
    is_transformer = "d_ff" in ARCHITECTURES[changes.get("architecture", "transformer")].fields
    small = TRANSFORMER if is_transformer else dict(N=2, d_model=12)
    scale = 1 if is_transformer else 0.5  # without layer norm, sums grow
    changes = dict(max_length=13, batch_tokens=99) | small | changes
    model, rng = build(config.replace(config.Config(), **changes), V), np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), SOURCE, TARGET)["params"]
    return model, jax.tree.map(
        lambda x: jnp.asarray(scale * rng.normal(0.2, 0.4, x.shape), jnp.float32),
        nn.meta.unbox(shapes),
    )


def check_decoding(model, params, source=SOURCE):
    """Logits of decoding step by step equal those by teacher forcing."""
    variables, whole = {"params": params}, full_logits(model, params, source)

    @jax.jit
    def start(variables):
        encoded = model.apply(variables, source, method="encode")
        return model.apply(variables, encoded, TARGET.shape[1], method="start")

    memory, state = start(variables)
    for leaf in jax.tree.leaves((memory, state)):
        assert leaf.shape[0] == len(SOURCE)
    step = jax.jit(partial(model.apply, method="step"))
    for t, tokens in enumerate(shift(TARGET).T):
        logits, state = step(variables, memory, state, tokens, jnp.int32(t))
        real = TARGET[:, t] != 0
        np.testing.assert_allclose(logits[real], whole[real, t], rtol=1e-5, atol=1e-5)


@partial(jax.jit, static_argnums=0)
def full_logits(model, params, source=SOURCE, target=TARGET):
    """Returns logits [B, T, V] by teacher forcing."""
    encoded = model.apply({"params": params}, source, method="encode")
    return model.apply({"params": params}, encoded, shift(target), method="decode")
