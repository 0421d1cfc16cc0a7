"""Sequences in blocks, for the mechanisms that look at some of them."""

import jax
import jax.numpy as jnp
from jax import Array


def blocks(x: Array, b: int, n: int, first: int = 0) -> Array:
    """x [B, L, ...] as blocks first .. first + n - 1 of length b: [B, n, b, ...].

    Zeros stand where x has nothing.
    """
    before = max(-first, 0) * b
    x = x[:, max(first, 0) * b :][:, : n * b - before]
    after = n * b - before - x.shape[1]
    x = jnp.pad(x, ((0, 0), (before, after), *((0, 0),) * (x.ndim - 2)))
    return x.reshape(x.shape[0], n, b, *x.shape[2:])


def around(x: Array, b: int, n: int, after: int) -> Array:
    """For each of n blocks of x [B, L, ...] the one before it, itself and `after` (0 or 1) more.

    Returns [B, n, (2 + after) b, ...]; the first position of block i's is (i - 1) b.
    """
    moved = [blocks(x, b, n, shift) for shift in range(-1, after + 1)]
    return jnp.concatenate(moved, axis=2)


def unblock(x: Array, L: int) -> Array:
    """The first L positions of blocks [B, n, b, ...]: [B, L, ...]."""
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :L]


def gather(x: Array, at: Array) -> Array:
    """x [B, S, ...] at positions [B, K] -> [B, K, ...]; zeros where there is none."""

    def row(x: Array, at: Array) -> Array:
        inside = (at >= 0) & (at < x.shape[0])
        taken = jnp.take(x, at, axis=0, mode="clip")
        return jnp.where(inside.reshape(-1, *(1,) * (x.ndim - 1)), taken, 0)

    return jax.vmap(row)(x, at)


def along(axis: int, rank: int, x: Array) -> Array:
    """x [L] as the given axis of an array of that rank whose other axes are 1."""
    return x.reshape([-1 if i == axis else 1 for i in range(rank)])


def scaled(equation: str, q: Array, k: Array) -> Array:
    """The products of an einsum over d_k, the last axis, / sqrt(d_k), in float32 or wider."""
    wide = jnp.promote_types(q.dtype, jnp.float32)
    product = jnp.einsum(equation, q, k, preferred_element_type=wide)
    return product / jnp.sqrt(q.shape[-1]).astype(wide)
