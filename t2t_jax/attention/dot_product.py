"""Dot products after a matrix (general) or of unit vectors (cosine).

General scores are from Luong et al. (2015, section 3.1). Cosine attention is query-key
normalisation (Henry et al. 2020, QKNorm).
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import DotProduct, flash
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, zero_padding


class General(DotProduct):
    """softmax(q W k^T) v with a matrix W [d_k, d_k] for each head."""

    grouped: ClassVar[bool] = False

    def setup(self) -> None:
        self.W = PerHead(("d_k", "d_hidden"))

    def keys(self, k: Array, s: Array) -> Array:
        """W k, computed once for each key."""
        d_k = k.shape[-1]
        return jnp.einsum("bshe,hde->bhsd", k, self.W(k, d_k, d_k))

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        k = self.keys(k, jnp.arange(k.shape[1])).swapaxes(1, 2)
        # The kernel leaves the gradient of padding undefined, and W has a gradient from all rows.
        k = zero_padding(k, visibility.kv_lengths)
        return flash(q, k, v, visibility, 1.0)


class Cosine(DotProduct):
    """softmax(tau cos(q, k)) v with a learned tau for each head.

    Henry et al. (2020) learn one factor g for each layer. Swin v2 (Liu et al. 2022, equation 2) has
    one for each head, by which it divides the cosine.

    Attributes:
      tau: the initial value of every tau; Henry et al. take log2(L^2 - L), where L is the
        97.5th percentile of the lengths of training sequences.
    """

    tau: float

    def setup(self) -> None:
        self.factor = PerHead(initial=nn.initializers.constant(self.tau))

    def keys(self, k: Array, s: Array) -> Array:
        return _unit(k).swapaxes(1, 2)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        products = super().scores(_unit(q), keys, t, s)
        return self.factor(q).astype(products.dtype)[None, :, None, None] * products

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        q = _unit(q) * self.factor(q)[None, None, :, None]
        # The kernel leaves the gradient of padding undefined, and tau has a gradient from all rows.
        return flash(zero_padding(q, visibility.q_lengths), _unit(k), v, visibility, 1.0)


def _unit(x: Array) -> Array:
    """x / sqrt(|x|^2 + 1e-6) over the last axis."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    squares = (wide * wide).sum(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(squares + 1e-6)).astype(x.dtype)
