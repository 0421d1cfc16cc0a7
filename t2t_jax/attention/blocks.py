"""Cutting sequences into blocks, for mechanisms whose queries see only some positions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.reach import Reach
from t2t_jax.attention.visibility import Visibility


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


def cut_parts(x: Array, r: int) -> Array:
    """x [B, L, h, d] -> [B, n, r, h, d], part p in column p."""
    return blocks(x, r, -(-x.shape[1] // r))


def of_parts(lengths: Array, r: int) -> Array:
    """The length of every part, [B, r]."""
    return (jnp.maximum(lengths[:, None] - jnp.arange(r)[None], 0) + r - 1) // r


def take_columns(x: Array, columns: np.ndarray) -> Array:
    """x [B, S, ...] at positions that are known when it is compiled, each once."""
    return x.at[:, columns].get(unique_indices=True, indices_are_sorted=True, mode="clip")


def random_blocks(reach: Reach, visibility: Visibility, n: int, S: int) -> Array:
    """The random blocks of S keys [B, n, r] that n blocks of queries see; -1 is none."""
    i, lengths = jnp.arange(n)[None], visibility.kv_lengths
    known = -(-(S if visibility.causal else lengths[:, None]) // reach.block)
    candidates = jnp.minimum(i, known) if visibility.causal else known
    candidates = jnp.broadcast_to(candidates, (len(lengths), n))
    return draw_blocks(jnp.asarray(reach.uniform(n))[None], candidates[..., None])


def draw_blocks(u: Array, m: Array) -> Array:
    """floor(u m) of random numbers [..., r], each block once; -1 is none."""
    j = jnp.minimum(jnp.floor(u * m).astype(jnp.int32), m - 1)
    again = j[..., :, None] == j[..., None, :]
    again &= jnp.expand_dims(np.tri(j.shape[-1], k=-1, dtype=bool), [*range(j.ndim - 1)])
    return jnp.where(again.any(-1), -1, j)
