"""Attention to sets of keys under one softmax, tile by tile, without stored scores.

Each set has keys of its own and the patterns (`ops.patterns`) by which the queries see them. Every
tile of queries reads the tiles of keys that its patterns touch and keeps a running softmax (Dao et
al. 2022, "FlashAttention"). The backward pass computes the scores again: one kernel for the
gradient of the queries, and one for the gradients of the keys and values of each set.

The log-sum-exp of the scores is a result, too. From it, the outputs of two calls can be combined
into the outputs of one softmax over the keys of both.

Gain: compiled for an H100 (B 1, h 8, d 64, n 4,096), forward and backward of fixed attention move a
quarter of the bytes that XLA moves for the blocks it gathers, and random blocks a ninth
(`experiments/tools/programs.py`); on an H200 they are 1.8 to 2.4 times as fast
(`experiments/tools/gpu.py kernels`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from t2t_jax.ops.patterns import Pattern, Table
from t2t_jax.ops.tiles import call, dot, on_rows, rows_alone, whole_tiles

TILE = 64  # queries, and keys, that are computed at once
_LOWEST = -1e30
_PARTS = 16  # at most, of the queries that see a set of few keys; a part has at least 4 tiles
Patterns = tuple[tuple[Pattern, ...], ...]


class Keys(NamedTuple):
    """A set of keys."""

    k: Any  # [B, S, h, d_k]
    v: Any  # [B, S, h, d_v]
    lengths: Any  # int32 [B], or [B, h] if heads differ; keys from these positions on are padding
    table: Table | None = None  # of a pattern that has one


def plain(
    q: Array, q_lengths: Array, sets: Sequence[Keys], patterns: Patterns, scale: float
) -> tuple[Array, Array]:
    """softmax(scale q k^T) v over the keys of all sets.

    q [B, T, h, d_k] -> [B, T, h, d_v], and the log-sum-exp of the scores, float32 [B, h, T].
    Outputs of queries that see nothing, or from q_lengths on, are zero, and their log-sum-exp is
    about -1e30.

    Args:
      q_lengths: int32 [B], or [B, h], the queries before the padding.
      patterns: for each set, the patterns by which its keys are seen, which must be disjoint.
    """
    B, T = q.shape[:2]
    t = jnp.arange(T)[:, None]
    scores, seen = [], []
    for keys, of_set in zip(sets, patterns, strict=True):
        positions = of_set[0].positions
        s = jnp.arange(keys.k.shape[1]) if positions is None else jnp.asarray(positions)
        s = s[None]
        ends = (n.reshape(B, -1, 1, 1) for n in (q_lengths, keys.lengths))
        present = (t[None, None] < next(ends)) & (s[None, None] < next(ends))
        blocks: Any = ((),) * B if keys.table is None else keys.table.blocks[:, :, :T]
        chosen = [sum(p.visible(t, s, row).astype(int) for p in of_set) for row in blocks]
        products = jnp.einsum("bthd,bshd->bhts", q, keys.k, preferred_element_type=jnp.float32)
        present &= jnp.stack(chosen)[:, None] > 0
        seen.append(jnp.broadcast_to(present, products.shape))
        scores.append(scale * products)
    e, visible = jnp.concatenate(scores, -1), jnp.concatenate(seen, -1)
    v = jnp.concatenate([keys.v for keys in sets], 1)
    a = jnp.where(visible, jax.nn.softmax(e, axis=-1, where=visible), 0).astype(v.dtype)
    log_z = jax.nn.logsumexp(jnp.where(visible, e, _LOWEST), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", a, v), jnp.where(visible.any(-1), log_z, _LOWEST)


def has_kernel(q: Array, v: Array) -> bool:
    """Whether a kernel supports the mesh and the heads, whose widths are 16, 32, 64 or 128."""
    return all(x.shape[-1] in (16, 32, 64, 128) for x in (q, v)) and rows_alone()


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def sparse_attention(
    q: Array,
    q_lengths: Array,
    sets: tuple[Keys, ...],
    patterns: Patterns,
    scale: float,
    g: int = TILE,
) -> tuple[Array, Array]:
    """`plain` in tiles of g. Padding may hold anything; everything else must be finite."""
    return _forward(q, q_lengths, sets, patterns, scale, g)[0]


def _forward(
    q: Array, q_lengths: Array, sets: tuple[Keys, ...], patterns: Patterns, scale: float, g: int
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    local = on_rows(partial(_attend, patterns=patterns, scale=scale, g=g), "rrr", "rr")
    out, log_z = local(q, q_lengths, sets)
    return (out, log_z[:, :, : q.shape[1]]), (q, q_lengths, sets, out, log_z)


def _backward(
    patterns: Patterns, scale: float, g: int, saved: tuple[Any, ...], d: tuple[Array, Array]
) -> tuple[Any, ...]:
    local = on_rows(partial(_gradients, patterns=patterns, scale=scale, g=g), "rr", "rr")
    dq, of_sets = local(saved, d)
    return dq, None, tuple(Keys(dk, dv, None, None) for dk, dv in of_sets)


sparse_attention.defvjp(_forward, _backward)


def _attend(
    q: Array, q_n: Array, sets: tuple[Keys, ...], patterns: Patterns, scale: float, g: int
) -> tuple[Array, Array]:
    """The output, and the log-sum-exp of the scores [B, h, T rounded up to whole tiles]."""
    (B, T, h, d_k), d_v, dtype = q.shape, sets[0].v.shape[3], sets[0].v.dtype
    q, sets, arrays = whole_tiles(q, g), _whole_sets(sets, g), _arrays(patterns, g)

    def kernel(q: Any, q_n: Any, sets: Any, arrays: Any, out: Any, log_z: Any) -> None:
        place = _place(h, g)
        i, b, head, rows = place
        t, x = _queries(q_n, i, b, head, g, q)
        state = (
            jnp.full(g, _LOWEST, jnp.float32),
            jnp.zeros(g, jnp.float32),
            jnp.zeros((g, d_v), jnp.float32),
        )

        def add(state: Any, e: Array, seen: Array, y: Array, z: Array) -> Any:
            largest, total, value = state
            after = jnp.maximum(largest, e.max(1))
            a = jnp.where(seen, jnp.exp(e - after[:, None]), 0)
            kept = jnp.exp(largest - after)
            weighted = dot(a.astype(z.dtype), z)
            return after, total * kept + a.sum(1), value * kept[:, None] + weighted

        largest, total, value = _fold(add, state, _each(sets, patterns, arrays), place, t, x, scale)
        divisor = jnp.where(total > 0, total, 1)
        out[b, rows, head, :] = (value / divisor[:, None]).astype(out.dtype)
        log_z[b, head, rows] = largest + jnp.log(divisor)

    whole = q.shape[1]
    results = (
        jax.ShapeDtypeStruct((B, whole, h, d_v), dtype),
        jax.ShapeDtypeStruct((B, h, whole), jnp.float32),
    )
    flops = B * h * _pairs(whole, sets, patterns, g) * 2 * (d_k + d_v)
    run = call(kernel, (whole // g, B * h), results, flops, "sparse_attention", warps=4)
    out, log_z = run(q, q_n, sets, arrays)
    return out[:, :T], log_z


def _gradients(
    saved: tuple[Any, ...], d: tuple[Array, Array], patterns: Patterns, scale: float, g: int
) -> tuple[Array, tuple[tuple[Array, Array], ...]]:
    """The gradients of q, and of k and v of each set, from the gradients of its results."""
    (q, q_n, sets, out, log_z), (d_out, d_log_z), T = saved, d, saved[0].shape[1]
    along = jnp.einsum("bthd,bthd->bht", d_out, out, preferred_element_type=jnp.float32)
    along -= d_log_z
    q, d_out = whole_tiles(q, g), whole_tiles(d_out, g)
    along = jnp.pad(along, ((0, 0), (0, 0), (0, q.shape[1] - T)))
    known = q, q_n, log_z, along, d_out
    dq = _query_gradient(known, _whole_sets(sets, g), patterns, scale, g)
    of_sets = []
    for keys, of_set in zip(sets, patterns, strict=True):
        dk, dv = _key_gradients(known, _whole_sets((keys,), g)[0], of_set, scale, g)
        of_sets.append((dk[:, : keys.k.shape[1]], dv[:, : keys.k.shape[1]]))
    return dq[:, :T], tuple(of_sets)


def _query_gradient(
    known: tuple[Array, ...], sets: tuple[Keys, ...], patterns: Patterns, scale: float, g: int
) -> Array:
    q, d_v, arrays = known[0], known[-1].shape[3], _arrays(patterns, g)
    B, T, h, d_k = q.shape

    def kernel(known: Any, sets: Any, arrays: Any, dq: Any) -> None:
        q, q_n, log_z, along, d_out = known
        place = _place(h, g)
        i, b, head, rows = place
        t, x, direction = _queries(q_n, i, b, head, g, q, d_out)
        of_rows = log_z[b, head, rows], along[b, head, rows]

        def add(total: Array, e: Array, seen: Array, y: Array, z: Array) -> Array:
            _, de = _weights(e, seen, direction, z, *of_rows)
            return total + dot(de.astype(y.dtype), y)

        zeros = jnp.zeros((g, d_k), jnp.float32)
        total = _fold(add, zeros, _each(sets, patterns, arrays), place, t, x, scale)
        dq[b, rows, head, :] = (scale * total).astype(dq.dtype)

    flops = B * h * _pairs(T, sets, patterns, g) * 2 * (2 * d_k + d_v)
    result = jax.ShapeDtypeStruct(q.shape, q.dtype)
    run = call(kernel, (T // g, B * h), result, flops, "sparse_attention_queries", warps=4)
    return run(known, sets, arrays)


def _key_gradients(
    known: tuple[Array, ...], keys: Keys, patterns: tuple[Pattern, ...], scale: float, g: int
) -> tuple[Array, Array]:
    """The gradients of k and v of a set. If it has few keys, XLA sums over parts of the queries."""
    (B, T, h, d_k), (S, d_v) = known[0].shape, (keys.k.shape[1], known[-1].shape[3])
    parts = min(max(T // S // 4, 1), _PARTS)
    arrays = _arrays((patterns,), g)

    def kernel(known: Any, keys: Any, arrays: Any, dk: Any, dv: Any) -> None:
        q, q_n, log_z, along, d_out = known
        j, b, head, rows = _place(h, g)
        part = pl.program_id(2)
        totals = tuple(jnp.zeros((g, d), jnp.float32) for d in (d_k, d_v))
        s, y, z = _keys(keys, arrays[0][0], j, b, head, g)  # its patterns have the same positions

        def add_queries(totals: Any, pattern: Pattern, of_pattern: Any) -> Any:
            start, stop, tile = _query_tiles(of_pattern, keys.table, b, j)

            def add(n: Array, totals: Any) -> Any:
                i = tile(n)
                rows = pl.ds(i * g, g)
                t, x, direction = _queries(q_n, i, b, head, g, q, d_out)
                blocks = _blocks(keys.table, b, rows)
                e, seen = _scores(x, y, t, s, pattern, blocks, scale)
                of_rows = log_z[b, head, rows], along[b, head, rows]
                a, de = _weights(e, seen, direction, z, *of_rows)
                dk = totals[0] + dot(de.T.astype(x.dtype), x)
                return dk, totals[1] + dot(a.T.astype(direction.dtype), direction)

            each = (stop - start + parts - 1) // parts
            begin = start + part * each
            return jax.lax.fori_loop(begin, jnp.minimum(begin + each, stop), add, totals)

        for _, pattern, of_pattern in _each((keys,), (patterns,), arrays):
            totals = add_queries(totals, pattern, of_pattern)
        dk[part, b, rows, head, :] = (scale * totals[0]).astype(dk.dtype)
        dv[part, b, rows, head, :] = totals[1].astype(dv.dtype)

    results = [
        jax.ShapeDtypeStruct((parts, *x.shape), x.dtype if parts == 1 else jnp.float32)
        for x in keys[:2]
    ]
    flops = B * h * _pairs(T, (keys,), (patterns,), g) * 4 * (d_k + d_v)
    run = call(kernel, (S // g, B * h, parts), results, flops, "sparse_attention_keys", warps=4)
    dk, dv = run(known, keys, arrays)
    if parts == 1:
        return dk[0], dv[0]
    return dk.sum(0).astype(keys.k.dtype), dv.sum(0).astype(keys.v.dtype)


def _fold(
    add: Callable[..., Any], state: Any, each: Any, place: Any, t: Array, x: Array, scale: float
) -> Any:
    """The last of the states add(state, scores, seen, keys, values), over the tiles of all sets."""
    i, b, head, rows = place

    def of_pattern(state: Any, keys: Any, pattern: Pattern, arrays: Any) -> Any:
        blocks = _blocks(keys.table, b, rows)
        start, stop, tile = _key_tiles(arrays, keys.table, b, i)

        def of_tile(n: Array, state: Any) -> Any:
            s, y, z = _keys(keys, arrays, tile(n), b, head, rows.size)
            return add(state, *_scores(x, y, t, s, pattern, blocks, scale), y, z)

        return jax.lax.fori_loop(start, stop, of_tile, state)

    for keys, pattern, arrays in each:
        state = of_pattern(state, keys, pattern, arrays)
    return state


def _arrays(patterns: Patterns, g: int) -> Any:
    """What the kernels read of each pattern of each set."""
    return tuple(tuple(pattern.arrays(g) for pattern in of_set) for of_set in patterns)


def _each(sets: Any, patterns: Patterns, arrays: Any) -> Iterator[tuple[Any, Pattern, Any]]:
    """Every set with each of its patterns and what a kernel reads of the pattern."""
    for keys, of_set, of_arrays in zip(sets, patterns, arrays, strict=True):
        for pattern, of_pattern in zip(of_set, of_arrays, strict=True):
            yield keys, pattern, of_pattern


def _place(h: int, g: int) -> tuple[Any, Any, Any, Any]:
    """The tile of this program, its row of the batch, its head, and the positions of the tile."""
    i, row = pl.program_id(0), pl.program_id(1)
    return i, row // h, row % h, pl.ds(i * g, g)


def _queries(q_n: Any, i: Any, b: Any, head: Any, g: int, *arrays: Any) -> tuple[Array, ...]:
    """The positions [g, 1] of tile i of queries, -1 in padding; of the arrays, zero there."""
    t = i * g + jnp.arange(g)[:, None]
    present = t < _length(q_n, b, head)
    tiles = (x[b, pl.ds(i * g, g), head, :] for x in arrays)
    return jnp.where(present, t, -1), *(jnp.where(present, x, jnp.zeros_like(x)) for x in tiles)


def _keys(keys: Any, arrays: Any, j: Any, b: Any, head: Any, g: int) -> tuple[Array, Array, Array]:
    """The positions [g] of tile j of keys, -1 in padding; keys and values, zero there.

    A tile of -1 is padding.
    """
    rows = pl.ds(jnp.maximum(j, 0) * g, g)
    s = j * g + jnp.arange(g) if arrays is None else arrays.positions[rows]
    present = (s >= 0) & (s < _length(keys.lengths, b, head))
    tiles = (x[b, rows, head, :] for x in (keys.k, keys.v))
    y, z = (jnp.where(present[:, None], x, jnp.zeros_like(x)) for x in tiles)
    return jnp.where(present, s, -1), y, z


def _key_tiles(arrays: Any, table: Any, b: Any, i: Any) -> tuple[Any, Any, Any]:
    """The tiles of keys that tile i of queries sees: start, end, and from a number to its tile."""
    if arrays is None:
        return 0, table.tiles.shape[2], lambda c: table.tiles[b, i, c]
    return arrays.queries[0, i], arrays.queries[1, i], lambda j: j


def _query_tiles(arrays: Any, table: Any, b: Any, j: Any) -> tuple[Any, Any, Any]:
    """The tiles of queries that see tile j of keys, likewise."""
    if arrays is None:
        return table.starts[b, j], table.starts[b, j + 1], lambda e: table.order[b, e]
    return arrays.keys[0, j], arrays.keys[1, j], lambda i: i


def _length(lengths: Any, b: Any, head: Any) -> Any:
    return lengths[b, head] if lengths.ndim == 2 else lengths[b]


def _blocks(table: Any, b: Any, rows: Any) -> Any:
    """The blocks that the queries of a tile see by a table."""
    if table is None:
        return ()
    return [table.blocks[b, c, rows] for c in range(table.blocks.shape[1])]


def _scores(
    x: Array, y: Array, t: Array, s: Array, pattern: Pattern, blocks: Any, scale: float
) -> tuple[Array, Array]:
    """The scores of a tile of queries at t and keys at s, and which of these pairs are visible."""
    s = s[None]
    seen = (t >= 0) & (s >= 0) & pattern.visible(t, s, blocks)
    return jnp.where(seen, scale * dot(x, y.T), _LOWEST), seen


def _weights(
    e: Array, seen: Array, direction: Array, z: Array, log_z: Array, along: Array
) -> tuple[Array, Array]:
    """The weights of a tile of pairs, and the gradient of its scores, divided by scale."""
    a = jnp.where(seen, jnp.exp(e - log_z[:, None]), 0)
    return a, jnp.where(seen, a * (dot(direction, z.T) - along[:, None]), 0)


def _pairs(T: int, sets: tuple[Keys, ...], patterns: Patterns, g: int) -> int:
    """Pairs of positions whose scores are computed, for one head of one row."""
    each = zip(sets, patterns, strict=True)
    return g * g * sum(p.count(T, g, keys.table) for keys, of_set in each for p in of_set)


def _whole_sets(sets: tuple[Keys, ...], g: int) -> tuple[Keys, ...]:
    return tuple(keys._replace(k=whole_tiles(keys.k, g), v=whole_tiles(keys.v, g)) for keys in sets)
