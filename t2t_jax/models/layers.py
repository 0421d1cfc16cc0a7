"""What several models share: parameters, and the embedding (section 3.4)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.models.parametrization import logit_multiplier
from t2t_jax.ops.matmul import matmul
from t2t_jax.tokens import PAD


def parameter(
    module: nn.Module,
    name: str,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    init: Callable[..., Array],
    dtype: Any,
) -> Array:
    """A float32 parameter with logical axes for the sharding rules, cast to dtype.

    A parameter that is sharded along d_model is gathered here, where it is used. A parameter whose
    gradient sums many terms (a bias, an embedding) should stay float32: a bfloat16 sum stops
    growing once it is 256 times as large as its terms.
    """
    weight = module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32)
    gathered = tuple(None if axis == "d_model" else axis for axis in axes)
    return nn.with_logical_constraint(jnp.asarray(weight, dtype), gathered)


def add_bias(y: Array, b: Array) -> Array:
    """y [..., *b.shape] + b in the type of y; the gradient of b, float32, is summed in float32."""
    return (y + b.reshape((1,) * (y.ndim - b.ndim) + b.shape)).astype(y.dtype)


def lengths_of(tokens: Array) -> Array:
    """int32 [B]: the number of tokens before the padding of int32 [B, L]."""
    return (tokens != PAD).sum(axis=-1, dtype=jnp.int32)


class Embedding(nn.Module):
    """One matrix [V, d_model] for both embeddings and for the softmax (section 3.4).

    With `embeddings=untied`, the softmax has a matrix of its own, `output`.
    """

    V: int
    c: config.Model
    dtype: Any

    def setup(self) -> None:
        d_model = self.c.d_model

        def matrix(name: str) -> Array:
            init, axes = nn.initializers.normal(d_model**-0.5), ("vocabulary", "d_model")
            return parameter(self, name, (self.V, d_model), axes, init, jnp.float32)

        self.matrix = matrix("matrix")
        self.output = self.matrix if self.c.embeddings == "tied" else matrix("output")
        self.multiplier = logit_multiplier(self.c)

    def __call__(self, tokens: Array) -> Array:
        """[...] int32 -> embeddings times sqrt(d_model), [..., d_model]."""
        x = jnp.take(self.matrix, tokens, axis=0).astype(self.dtype)
        return x * jnp.sqrt(self.c.d_model).astype(self.dtype)

    def logits(self, x: Array) -> Array:
        """[B, T, d_model] -> float32 [B, T, V]."""
        if self.multiplier != 1:
            x = x * self.multiplier
        z = matmul(x, self.output.astype(self.dtype).T, dtype=jnp.float32)
        if cap := self.c.logit_cap:  # Gemma 2 (2024), section 2
            z = cap * jnp.tanh(z / cap)
        return nn.with_logical_constraint(z, ("batch", "length", "vocabulary"))
