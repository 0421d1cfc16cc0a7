"""Attention to a list of keys for each query and head, for patterns that depend on the queries."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks, unblock
from t2t_jax.attention.dense import scaled_products, softmax
from t2t_jax.attention.visibility import Visibility


def attend(
    q: Array,
    k: Array,
    v: Array,
    s: Array,
    visibility: Visibility,
    tile: int,
    first: Array | int = 0,
) -> Array:
    """softmax(q k^T / sqrt(d_k)) v over the keys at positions s -> [B, T, h, d_v].

    Args:
      q, k, v: [B, T, h, d_k], [B, S, h, d_k] and [B, S, h, d_v].
      s: int32 [B, T, h, K], each position once; negative where there is no key.
      tile: the number of queries whose keys are gathered at once; the backward pass gathers them
        again.
      first: the position of the first query.
    """
    T = q.shape[1]
    wide = jnp.promote_types(q.dtype, jnp.float32)
    k, v = k.astype(wide), v.astype(wide)  # their gradients sum many terms

    @jax.checkpoint
    def attend_tile(q: Array, s: Array, t: Array) -> Array:
        scores = scaled_products("bthd,bthkd->bthk", q, _take(k, s).astype(q.dtype))
        a = softmax(scores, visibility.allows(t[:, :, None, None], s))
        return jnp.einsum("bthk,bthkd->bthd", a.astype(q.dtype), _take(v, s).astype(q.dtype))

    if tile >= T:
        return attend_tile(q, s, first + jnp.arange(T)[None])
    n = -(-T // tile)
    tiles = [blocks(x, tile, n).swapaxes(0, 1) for x in (q, s)]
    t = first + jnp.arange(n * tile).reshape(n, 1, tile)
    out = jax.lax.map(lambda x: attend_tile(*x), (*tiles, t))
    return unblock(out.swapaxes(0, 1), T)


def _take(x: Array, s: Array) -> Array:
    """x [B, S, h, d] at positions s [B, T, h, K] of each head -> [B, T, h, K, d]."""

    def of_head(x: Array, s: Array) -> Array:
        return jnp.take(x, s, axis=0, mode="clip")

    return jax.vmap(jax.vmap(of_head, 1, 1))(x, s)
