"""Cutting sequences into blocks, for mechanisms whose queries see only some positions."""

import jax
import jax.numpy as jnp
from jax import Array


def blocks(x: Array, b: int, n: int, first: int = 0) -> Array:
    """Blocks first .. first + n - 1 of length b of x [B, L, ...]: [B, n, b, ...].

    Blocks before the first position of x and after its last are zero.
    """
    before = max(-first, 0) * b
    x = x[:, max(first, 0) * b :][:, : n * b - before]
    after = n * b - before - x.shape[1]
    x = jnp.pad(x, ((0, 0), (before, after), *((0, 0),) * (x.ndim - 2)))
    return x.reshape(x.shape[0], n, b, *x.shape[2:])


def unblock(x: Array, L: int) -> Array:
    """The first L positions of blocks [B, n, b, ...]: [B, L, ...]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :L]


def take_positions(x: Array, positions: Array) -> Array:
    """x [B, S, ...] at positions [B, K] -> [B, K, ...]; zero where a position is outside x."""

    def of_row(x: Array, positions: Array) -> Array:
        inside = (positions >= 0) & (positions < x.shape[0])
        taken = jnp.take(x, positions, axis=0, mode="clip")
        return jnp.where(inside.reshape(-1, *(1,) * (x.ndim - 1)), taken, 0)

    return jax.vmap(of_row)(x, positions)


def on_axis(axis: int, rank: int, x: Array) -> Array:
    """x [L] as one axis of an array of that rank, whose other axes have length 1."""
    return x.reshape([-1 if i == axis else 1 for i in range(rank)])


def scaled_products(equation: str, q: Array, k: Array, power: float = 0.5) -> Array:
    """An einsum over d_k, the last axis, divided by d_k^power, in float32 or wider."""
    wide = jnp.promote_types(q.dtype, jnp.float32)
    products = jnp.einsum(equation, q, k, preferred_element_type=wide)
    if power == 0.5:
        return products / jnp.sqrt(q.shape[-1]).astype(wide)
    return products / q.shape[-1] ** power
