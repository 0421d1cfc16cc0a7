"""Dot products: scaled (section 3.2.1, equation 1), plain and general (Luong et al. 2015)."""

import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import scaled_products
from t2t_jax.attention.dense import Dense
from t2t_jax.attention.parameters import PerHead


class DotProduct(Dense):
    """softmax(q k^T) v."""

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        wide = jnp.promote_types(q.dtype, jnp.float32)
        return jnp.einsum("bthd,bhsd->bhts", q, keys, preferred_element_type=wide)


class ScaledDotProduct(Dense):
    """softmax(q k^T / d_k^power) v: power 0.5 is the paper's, 1 that of Yang et al. (2022)."""

    power: float

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
