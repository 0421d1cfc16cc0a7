"""The feed-forward layer (section 3.3) and its variants. `parts.FEED_FORWARD` lists them."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.models.layers import add_bias, parameter
from t2t_jax.ops.dropout import dropout
from t2t_jax.ops.matmul import matmul
from t2t_jax.parts import FEED_FORWARD


class FeedForward(nn.Module):
    """activation(x W_1 + b_1) W_2 + b_2 (equation 2), or with a gate (Shazeer 2020).

    The gated layers are (activation(x W_1) * x W_3) W_2 and have no biases.

    Attributes:
      kind: of `parts.FEED_FORWARD`.
      P_drop_ff: dropout of what W_2 multiplies.
    """

    kind: str
    d_ff: int
    P_drop_ff: float
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """x [B, T, d_model] -> the same."""
        d_model, part = x.shape[-1], FEED_FORWARD[self.kind]

        def matrix(name: str, *sizes: tuple[str, int]) -> jax.Array:
            axes, shape = zip(*sizes, strict=True)
            return parameter(self, name, shape, axes, nn.initializers.glorot_uniform(), self.dtype)

        def biased(y: jax.Array, name: str, axis: str) -> jax.Array:
            zeros = nn.initializers.zeros
            b = parameter(self, name, y.shape[-1:], (axis,), zeros, jnp.float32)
            return add_bias(y, b)

        def widened(name: str) -> jax.Array:
            return matmul(x, matrix(name, ("d_model", d_model), ("d_ff", self.d_ff)))

        hidden = widened("W_1") if part.gated else biased(widened("W_1"), "b_1", "d_ff")
        hidden = getattr(jax.nn, part.activation)(hidden)
        if part.gated:
            hidden *= widened("W_3")
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "d_ff"))
        if train and self.P_drop_ff:
            hidden = dropout(hidden, self.P_drop_ff, self.make_rng("dropout"))
        y = matmul(hidden, matrix("W_2", ("d_ff", self.d_ff), ("d_model", d_model)))
        return y if part.gated else biased(y, "b_2", "d_model")
