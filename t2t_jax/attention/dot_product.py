"""Dot products: scaled (section 3.2.1, equation 1), plain and general (Luong et al. 2015)."""

import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import scaled_products
from t2t_jax.attention.dense import Dense
from t2t_jax.attention.mechanism import Bias, Dropout
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility
from t2t_jax.ops.flash_attention import MAX_WIDTH, flash_attention


class DotProduct(Dense):
    """softmax(q k^T) v."""

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        wide = jnp.promote_types(q.dtype, jnp.float32)
        return jnp.einsum("bthd,bhsd->bhts", q, keys, preferred_element_type=wide)


class ScaledDotProduct(Dense):
    """softmax(q k^T / d_k^power) v: power 0.5 is the paper's, 1 that of Yang et al. (2022)."""

    power: float

    def fused(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array | None:
        d_k = q.shape[-1]
        if type(self) is not ScaledDotProduct or dropout is not None or bias is not None:
            return None  # a subclass may have other scores
        if max(d_k, v.shape[-1]) > MAX_WIDTH:
            return None
        visibility, scale = visibility.with_lengths(q, k), d_k**-self.power
        lengths = visibility.q_lengths, visibility.kv_lengths
        return flash_attention(q, k, v, *lengths, visibility.causal, scale)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        return scaled_products("bthd,bhsd->bhts", q, keys, self.power)


class General(DotProduct):
    """softmax(q W k^T) v with one matrix W [d_k, d_k] a head."""

    def setup(self) -> None:
        self.W = PerHead(("d_k", "d_hidden"))

    def keys(self, k: Array, s: Array) -> Array:
        """W k, once a key."""
        d_k = k.shape[-1]
        return jnp.einsum("bshe,hde->bhsd", k, self.W(k, d_k, d_k))
