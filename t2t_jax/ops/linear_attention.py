"""Causal linear attention with phi = elu + 1, tile by tile, without stored features.

A kernel carries the sum of phi(k) v^T through the tiles of a segment and computes the weight of
every pair within a tile. The sums before each segment come from a kernel that only adds, so that
segments run in parallel. The backward pass does the same twice: from the first tile to the last for
the gradient of the queries, and from the last to the first for the gradients of keys and values.

Gain: compiled for an H100 (B 1, h 8, d 64, n 4,096), forward and backward move a sixth of the bytes
of the prefix sum over all tiles that XLA computes (`experiments/tools/programs.py`); on an H200
they are 1.7 times as fast (`experiments/tools/gpu.py kernels`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from t2t_jax.ops.tiles import call, dot, on_rows, whole_tiles

TILE = 32  # positions that are computed at once
TILES = 16  # in a segment
SMALLEST = 1e-30  # a query with a smaller denominator counts as one that sees no key
Sums = tuple[Array, Array]  # of phi(k) v^T and of phi(k)


def plain(q: Array, k: Array, v: Array, q_lengths: Array, kv_lengths: Array) -> Array:
    """The mean of v over the keys before kv_lengths up to each query, weighted by phi(q) phi(k).

    q and k [B, T, h, d_k], v [B, T, h, d_v] -> [B, T, h, d_v]. Lengths are int32 [B]. Outputs of
    queries that see nothing, or from q_lengths on, are zero.
    """
    t, s = jnp.arange(q.shape[1])[None, :, None], jnp.arange(q.shape[1])[None, None]
    seen = (t < q_lengths[:, None, None]) & (s < kv_lengths[:, None, None]) & (s <= t)
    weights = jnp.where(seen[:, None], jnp.einsum("bthd,bshd->bhts", _phi(q), _phi(k)), 0)
    total = weights.sum(-1, keepdims=True)
    weights = jnp.where(total > SMALLEST, weights / jnp.where(total > SMALLEST, total, 1), 0)
    return jnp.einsum("bhts,bshd->bthd", weights, v.astype(jnp.float32)).astype(v.dtype)


def supported(d_k: int, d_v: int) -> bool:
    """Whether there is a kernel for heads of these widths: powers of two from 16 to 64."""
    return all(d in (16, 32, 64) for d in (d_k, d_v))


@jax.custom_vjp
def linear_attention(q: Array, k: Array, v: Array, q_lengths: Array, kv_lengths: Array) -> Array:
    """`plain`. Padding may hold anything; everything else must be finite."""
    return _forward(q, k, v, q_lengths, kv_lengths)[0]


def _forward(*known: Array) -> tuple[Array, tuple[Any, ...]]:
    out, inverse, before = on_rows(_attend, "rrrrr", "rrr")(*known)
    return out, (*known, out, inverse, before)


def _backward(saved: tuple[Any, ...], g: Array) -> tuple[Array | None, ...]:
    return (*on_rows(_gradients, "rr", "rrr")(saved, g), None, None)


linear_attention.defvjp(_forward, _backward)


def _attend(
    q: Array, k: Array, v: Array, q_n: Array, kv_n: Array
) -> tuple[Array, Array, Sums | None]:
    """The output, the inverse of its denominators [B, h, T'], the sums before each segment."""
    T, (q, k, v) = q.shape[1], (whole_tiles(x, TILE) for x in (q, k, v))
    (B, whole, h, d_k), d_v = q.shape, v.shape[3]
    before = _before(_keys, (k, v, kv_n), d_k, d_v)

    def kernel(q: Any, q_n: Any, keys: Any, before: Any, out: Any, inverse: Any) -> None:
        b, head, tiles, past = _place(q)

        def advance(i: Array, sums: Sums) -> Sums:
            rows, (phi_q, _) = pl.ds(i * TILE, TILE), _features(q, q_n, b, head, i)
            phi_k, values, weight = _keys(keys, b, head, i)
            scores = jnp.where(past, dot(phi_q, phi_k.T), 0)
            total = (phi_q * sums[1][None]).sum(1) + scores.sum(1)
            share = jnp.where(total > SMALLEST, 1 / jnp.where(total > SMALLEST, total, 1), 0)
            value = (dot(phi_q, sums[0]) + dot(scores, values)) * share[:, None]
            out[b, rows, head, :], inverse[b, head, rows] = value.astype(out.dtype), share
            return _add(sums, phi_k, values, weight)

        jax.lax.fori_loop(*tiles, advance, _first(before, b, head, d_k, d_v))

    results = (
        jax.ShapeDtypeStruct(v.shape, v.dtype),
        jax.ShapeDtypeStruct((B, h, whole), jnp.float32),
    )
    run = _call(kernel, q, results, TILE * (d_k + d_v) + 2 * d_k * d_v, "linear_attention")
    out, inverse = run(q, q_n, (k, v, kv_n), before)
    return out[:, :T], inverse, before


def _gradients(saved: tuple[Any, ...], g: Array) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v, from the gradient g of the output."""
    q, k, v, q_n, kv_n, out, inverse, before = saved
    T, d_k, d_v = q.shape[1], q.shape[3], v.shape[3]
    along = -jnp.einsum("bthd,bthd->bht", g, out, preferred_element_type=jnp.float32)
    q, k, v, g = (whole_tiles(x, TILE) for x in (q, k, v, g))
    along = jnp.pad(along, ((0, 0), (0, 0), (0, q.shape[1] - T)))
    queries, keys = (q, q_n, g, along, inverse), (k, v, kv_n)
    after = _before(_queries, queries, d_k, d_v, reverse=True)

    def of_queries(queries: Any, keys: Any, before: Any, dq: Any) -> None:
        b, head, tiles, past = _place(queries[0])

        def advance(i: Array, sums: Sums) -> Sums:
            _, direction, along = _queries(queries, b, head, i)
            phi_k, values, weight = _keys(keys, b, head, i)
            scores = jnp.where(past, dot(direction, values.T) + along[:, None], 0)
            total = dot(direction, sums[0].T) + along[:, None] * sums[1][None]
            slope = _features(queries[0], queries[1], b, head, i)[1]
            total = (total + dot(scores, phi_k)) * slope
            dq[b, pl.ds(i * TILE, TILE), head, :] = total.astype(dq.dtype)
            return _add(sums, phi_k, values, weight)

        jax.lax.fori_loop(*tiles, advance, _first(before, b, head, d_k, d_v))

    def of_keys(queries: Any, keys: Any, after: Any, dk: Any, dv: Any) -> None:
        b, head, (start, stop), past = _place(queries[0])

        def advance(n: Array, sums: Sums) -> Sums:
            i = start + stop - 1 - n  # from the last tile back
            rows = pl.ds(i * TILE, TILE)
            phi_q, direction, along = _queries(queries, b, head, i)
            phi_k, values, _ = _keys(keys, b, head, i)
            scores = jnp.where(past, dot(phi_q, phi_k.T), 0)
            of_values = dot(phi_k, sums[0]) + dot(scores.T, direction)
            dv[b, rows, head, :] = of_values.astype(dv.dtype)
            scores = jnp.where(past, dot(direction, values.T) + along[:, None], 0)
            total = dot(values, sums[0].T) + sums[1][None] + dot(scores.T, phi_q)
            total *= _features(keys[0], keys[2], b, head, i)[1]
            dk[b, rows, head, :] = total.astype(dk.dtype)
            return _add(sums, phi_q, direction, along)

        jax.lax.fori_loop(start, stop, advance, _first(after, b, head, d_k, d_v))

    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)]
    pairs, sums = TILE * (d_k + d_v), d_k * d_v
    run = _call(of_queries, q, like[0], pairs + 2 * sums, "linear_attention_queries")
    dq = run(queries, keys, before)
    run = _call(of_keys, q, like[1:], 2 * pairs + 3 * sums, "linear_attention_keys")
    dk, dv = run(queries, keys, after)
    return dq[:, :T], dk[:, :T], dv[:, :T]


def _before(
    load: Callable[..., Any], inputs: Any, d: int, width: int, reverse: bool = False
) -> Sums | None:
    """The sums over the tiles before each segment; None if there is one; reverse: those after it.

    They are float32 [B, segments, h, d, width] and [B, segments, h, d].

    Args:
      load: `_keys` or `_queries`, which returns what is added from a tile of `inputs`.
    """
    x = inputs[0]
    (B, _, h, _), segments = x.shape, _segments(x)
    if segments == 1:
        return None

    def kernel(inputs: Any, total: Any, weight: Any) -> None:
        b, head, tiles, _ = _place(inputs[0])

        def advance(i: Array, sums: Sums) -> Sums:
            return _add(sums, *load(inputs, b, head, i))

        sums = jax.lax.fori_loop(*tiles, advance, _first(None, b, head, d, width))
        segment = pl.program_id(0)
        total[b, segment, head, :, :], weight[b, segment, head, :] = sums

    results = [
        jax.ShapeDtypeStruct((B, segments, h, *size), jnp.float32) for size in ((d, width), (d,))
    ]
    sums = _call(kernel, x, results, d * width, "linear_attention_sums")(inputs)

    def exclusive(x: Array) -> Array:
        x = jax.lax.cumsum(x, axis=1, reverse=reverse)
        x, missing = (x[:, 1:], (0, 1)) if reverse else (x[:, :-1], (1, 0))
        return jnp.pad(x, ((0, 0), missing, *((0, 0),) * (x.ndim - 2)))

    return exclusive(sums[0]), exclusive(sums[1])


def _keys(keys: Any, b: Any, head: Any, i: Any) -> tuple[Array, Array, Array]:
    """Tile i of phi(k) and of v, zero in padding, and the weights of the keys, which are one."""
    k, v, n = keys
    values = _tile(v, n, b, head, i)
    return _features(k, n, b, head, i)[0], values, jnp.ones(TILE, jnp.float32)


def _queries(queries: Any, b: Any, head: Any, i: Any) -> tuple[Array, Array, Array]:
    """Tile i of phi(q), and the gradients of its numerators and denominators, zero in padding."""
    q, n, g, along, inverse = queries
    rows = pl.ds(i * TILE, TILE)
    present, share = _present(n, b, i), inverse[b, head, rows]
    direction = _tile(g, n, b, head, i) * share[:, None]
    of_total = jnp.where(present, along[b, head, rows] * share, 0)
    return _features(q, n, b, head, i)[0], direction, of_total


def _features(x: Any, n: Any, b: Any, head: Any, i: Any) -> tuple[Array, Array]:
    """Tile i of phi(x), and of its derivative, [TILE, d]; zero in padding."""
    tile, present = _tile(x, n, b, head, i), _present(n, b, i)[:, None]
    exp = jnp.exp(jnp.minimum(tile, 0))
    phi = jnp.where(tile > 0, tile + 1, exp)
    return jnp.where(present, phi, 0), jnp.where(present, exp, 0)


def _tile(x: Any, n: Any, b: Any, head: Any, i: Any) -> Array:
    """Tile i of a head of x, float32 [TILE, d], zero in padding."""
    tile = x[b, pl.ds(i * TILE, TILE), head, :].astype(jnp.float32)
    return jnp.where(_present(n, b, i)[:, None], tile, 0)


def _present(n: Any, b: Any, i: Any) -> Array:
    return i * TILE + jnp.arange(TILE) < n[b]


def _place(x: Any) -> tuple[Any, Any, tuple[Any, Any], Array]:
    """This program's row, head and tiles, and which pairs of a tile are not in the future."""
    h, tiles = x.shape[2], x.shape[1] // TILE
    segment, row = pl.program_id(0), pl.program_id(1)
    start = segment * TILES
    past = jnp.arange(TILE)[None] <= jnp.arange(TILE)[:, None]
    return row // h, row % h, (start, jnp.minimum(start + TILES, tiles)), past


def _first(before: Any, b: Any, head: Any, d: int, width: int) -> Sums:
    """The sums at the first tile of a segment."""
    if before is None:
        return jnp.zeros((d, width), jnp.float32), jnp.zeros(d, jnp.float32)
    segment = pl.program_id(0)
    return before[0][b, segment, head, :, :], before[1][b, segment, head, :]


def _add(sums: Sums, phi: Array, values: Array, weight: Array) -> Sums:
    """The sums, with phi^T values and weighted phi of another tile added."""
    return sums[0] + dot(phi.T, values), sums[1] + (phi * weight[:, None]).sum(0)


def _phi(x: Array) -> Array:
    x = x.astype(jnp.float32)
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


def _call(kernel: Callable[..., None], x: Array, out: Any, products: int, name: str) -> Any:
    """The call of a kernel for each segment, row and head; `products` are for each position."""
    B, T, h, _ = x.shape
    return call(kernel, (_segments(x), B * h), out, 2 * B * T * h * products, name, warps=4)


def _segments(x: Array) -> int:
    return -(-x.shape[1] // (TILE * TILES))
