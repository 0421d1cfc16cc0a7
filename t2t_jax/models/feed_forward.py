"""The feed-forward layer (section 3.3) and its variants. `parts.FEED_FORWARD` lists them."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.models.layers import add_bias, parameter
from t2t_jax.ops.dropout import dropout
from t2t_jax.ops.matmul import matmul
from t2t_jax.parts import FEED_FORWARD, implementation


class FeedForward(nn.Module):
    """activation(x W_1 + b_1) W_2 + b_2 (equation 2), or with a gate (Shazeer 2020).

    The gated layers are (activation(x W_1) * x W_3) W_2 and have no biases.
    """

    c: config.Model
    dtype: Any

    @nn.compact
    def __call__(self, x: Array, train: bool = False, lengths: Array | None = None) -> Array:
        """x [B, L, d_model] -> the same.

        Args:
          lengths: int32 [B], the positions before the padding, for layers that relate positions to
            each other; None if nothing is padding.
        """
        d_model, part = x.shape[-1], FEED_FORWARD[self.c.feed_forward]
        zeros = nn.initializers.zeros

        def matrix(name: str, *sizes: tuple[str, int]) -> Array:
            axes, shape = zip(*sizes, strict=True)
            return parameter(self, name, shape, axes, nn.initializers.glorot_uniform(), self.dtype)

        def biased(y: Array, name: str, axis: str) -> Array:
            if part.gated or not part.biases:
                return y
            b = parameter(self, name, y.shape[-1:], (axis,), zeros, jnp.float32)
            return add_bias(y, b)

        wide = ("d_model", d_model), ("d_ff", self.c.d_ff)
        hidden = biased(matmul(x, matrix("W_1", *wide)), "b_1", "d_ff")
        hidden = implementation(part.activation, "jax.nn")(hidden)
        if part.gated:
            hidden *= matmul(x, matrix("W_3", *wide))
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "d_ff"))
        if train and self.c.P_drop_ff:
            hidden = dropout(hidden, self.c.P_drop_ff, self.make_rng("dropout"))
        return biased(matmul(hidden, matrix("W_2", *reversed(wide))), "b_2", "d_model")
