"""Sparse patterns by the GPU kernel of `ops.sparse_attention`, for what `patterns.py` computes.

Positions that are parts of their own, and positions at multiples of a stride, become more heads.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import (
    cut_parts,
    of_parts,
    on_axis,
    random_blocks,
    take_columns,
    unblock,
)
from t2t_jax.attention.reach import Predicate, Reach
from t2t_jax.attention.visibility import Visibility
from t2t_jax.ops.patterns import Pattern, Reached, ranges, table, tile_of
from t2t_jax.ops.sparse_attention import TILE, Keys, has_kernel, sparse_attention


def attend(reach: Reach, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
    """Attention to all that a query sees but for `reach.rows`; None without such a kernel."""
    (B, T, h, _), r = q.shape, reach.parts
    g = tile_of(reach.block) if reach.r else TILE
    if not g or not has_kernel(q, v):
        return None
    visibility = visibility.with_lengths(q, k)
    if r > 1:
        q, k, v, visibility = _parts_as_heads(r, q, k, v, visibility)
        out, _ = _tiled(reach, q, k, v, visibility, g)
        return unblock(out.reshape(B, -1, r, h, v.shape[-1]), T)
    out, log_z = _tiled(reach, q, k, v, visibility, g)
    if not reach.stride:
        return out
    return _together((out, log_z), _tiled_multiples(reach, q, k, v, visibility))


def _parts_as_heads(
    r: int, q: Array, k: Array, v: Array, visibility: Visibility
) -> tuple[Array, Array, Array, Visibility]:
    """q, k and v with r h heads, whose positions lie in one of r parts; lengths are [B, r h].

    This avoids a copy: a head of a tile is read with a stride.
    """
    (B, _, h, _), lengths = q.shape, (visibility.q_lengths, visibility.kv_lengths)
    rows, keys = (jnp.repeat(of_parts(n, r), h, axis=1) for n in lengths)
    q, k, v = (cut_parts(x, r).reshape(B, -1, r * h, x.shape[-1]) for x in (q, k, v))
    return q, k, v, Visibility(rows, keys, visibility.causal)


def _tiled(
    reach: Reach, q: Array, k: Array, v: Array, visibility: Visibility, g: int
) -> tuple[Array, Array]:
    """The near, kept and random keys by a kernel, and the log-sum-exp of their scores."""
    T, S, causal = q.shape[1], k.shape[1], visibility.causal
    r, lengths = reach.parts, visibility.kv_lengths

    def pattern(seen: Predicate, s: np.ndarray, ends: Reached) -> Pattern:
        both = (lambda t, s: seen(t, s) & (s <= t)) if causal else seen
        return Pattern(both, s, ranges(T, g, s, ends))

    near = pattern(
        lambda t, s: reach.near_alone(r * t, r * s),
        np.arange(S),
        lambda first, last: reach.ends(first, last, causal),
    )
    sets = [Keys(k, v, lengths)]
    patterns: list[tuple[Pattern, ...]] = [(near,)]
    if reach.r:
        blocks = random_blocks(reach, visibility, -(-T // reach.block), S)
        blocks = jnp.where(_all_seen(reach, blocks), -1, blocks)
        sets = [Keys(k, v, lengths, table(blocks, reach.block, g, T, S))]
        patterns = [(near, Pattern(lambda t, s: ~reach.sees(t, s), b=reach.block))]
    columns = reach.columns(S)
    if len(columns):
        sets.append(Keys(take_columns(k, columns), take_columns(v, columns), lengths))
        patterns.append((pattern(reach.sees, columns, _all_keys(causal)),))
    scale = q.shape[-1] ** -0.5
    return sparse_attention(q, visibility.q_lengths, tuple(sets), tuple(patterns), scale, g)


def _tiled_multiples(
    reach: Reach, q: Array, k: Array, v: Array, visibility: Visibility
) -> tuple[Array, Array]:
    """The keys at multiples of the stride, likewise."""
    (B, T, h, d_k), causal, l = q.shape, visibility.causal, reach.stride
    q, k, v, visibility = _parts_as_heads(l, q, k, v, visibility)
    n, s = q.shape[1], np.arange(k.shape[1])
    g = next(g for g in (16, 32, TILE) if g >= min(n, TILE))

    def seen(t: Array, s: Array) -> Array:
        return reach.sees(l * t, l * s) & ((s <= t) | (not causal))

    pattern = Pattern(seen, s, ranges(n, g, s, _all_keys(causal)))
    sets = (Keys(k, v, visibility.kv_lengths),)
    out, log_z = sparse_attention(q, visibility.q_lengths, sets, ((pattern,),), d_k**-0.5, g)
    out = unblock(out.reshape(B, n, l, h, -1), T)
    return out, log_z.reshape(B, l, h, n).transpose(0, 2, 3, 1).reshape(B, h, n * l)[:, :, :T]


def _all_seen(reach: Reach, j: Array) -> Array:
    """Whether all keys of random blocks j [B, n, r] are seen by `reach.sees`."""
    b, i = reach.block, jnp.arange(j.shape[1])[None, :, None]
    t = b * i[..., None, None] + on_axis(3, 5, jnp.arange(b))
    s = b * j[..., None, None] + on_axis(4, 5, jnp.arange(b))
    return reach.sees(t, s).all((-2, -1))


def _all_keys(causal: bool) -> Reached:
    """The first and the last key that some queries may see if distance does not matter."""
    return lambda first, last: (0, last if causal else np.iinfo(np.int32).max)


def _together(near: tuple[Array, Array], multiples: tuple[Array, Array]) -> Array:
    """The outputs [B, T, h, d_v] of one softmax from two parts: outputs and log-sum-exps."""
    total = jnp.logaddexp(near[1], multiples[1])

    def share(out: Array, log_z: Array) -> Array:
        return out * jnp.exp(log_z - total).swapaxes(1, 2)[..., None].astype(out.dtype)

    return share(*near) + share(*multiples)
