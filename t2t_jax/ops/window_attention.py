"""Attention to the keys at distance w at most, block by block, without stored scores.

It also returns the log-sum-exp of the scores, with which the softmax over two disjoint sets of keys
follows from those over each: strided attention is a window and a dense attention within columns.

Every block of queries reads the blocks of keys that its window touches and keeps a running softmax
(Dao et al. 2022, "FlashAttention"). The backward pass computes the scores again: one kernel for
the gradient of the queries, another for those of keys and values.

Gain: compiled for an H100 (B 1, h 8, d 64, w 64, n 4,096), forward and backward move a quarter of
the bytes of the blocks that XLA gathers (`bench compile --mechanisms local`); not measured on a
GPU.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from t2t_jax.ops.tiles import call, on_rows

BLOCK = 64  # queries, and keys, that are computed at once
_LOWEST = -1e30
Static = tuple[int, bool, float, int]  # w, whether causal, scale of the products, least distance


def plain(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    w: int,
    causal: bool,
    scale: float,
    least: int = 0,
) -> tuple[Array, Array]:
    """softmax(scale q k^T) v over the keys before kv_lengths at distance w at most.

    q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] -> [B, T, h, d_v], and the log-sum-exp of
    the scores, float32 [B, h, T]. Lengths are int32 [B]. Causal: no later key. Outputs of queries
    that see nothing, or from q_lengths on, are zero, and their log-sum-exp is about -1e30.

    Args:
      least: keys at a smaller distance are not seen.
    """
    t, s = jnp.arange(q.shape[1])[None, :, None], jnp.arange(k.shape[1])[None, None, :]
    seen = (t < q_lengths[:, None, None]) & (s < kv_lengths[:, None, None])
    seen &= (jnp.abs(s - t) <= w) & (jnp.abs(s - t) >= least) & ((s <= t) | (not causal))
    scores = scale * jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32)
    seen = seen[:, None]
    a = jnp.where(seen, jax.nn.softmax(scores, axis=-1, where=seen), 0).astype(v.dtype)
    log_z = jax.nn.logsumexp(jnp.where(seen, scores, _LOWEST), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", a, v), jnp.where(seen.any(-1), log_z, _LOWEST)


def supported(d_k: int, d_v: int) -> bool:
    """Whether there is a kernel for heads of these widths: powers of two from 16 to 128."""
    return all(d in (16, 32, 64, 128) for d in (d_k, d_v))


@partial(jax.custom_vjp, nondiff_argnums=(5, 6, 7, 8))
def window_attention(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    w: int,
    causal: bool,
    scale: float,
    least: int = 0,
) -> tuple[Array, Array]:
    """`plain` for finite inputs."""
    return _forward(q, k, v, q_lengths, kv_lengths, w, causal, scale, least)[0]


def _forward(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    w: int,
    causal: bool,
    scale: float,
    least: int,
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    known = q, k, v, q_lengths, kv_lengths
    local = on_rows(partial(_attend, static=(w, causal, scale, least)), "rrrrr", "rr")
    out, log_z = local(*known)
    return (out, log_z[:, :, : q.shape[1]]), (*known, out, log_z)


def _backward(
    w: int,
    causal: bool,
    scale: float,
    least: int,
    saved: tuple[Array, ...],
    g: tuple[Array, Array],
) -> tuple[Array | None, ...]:
    local = on_rows(partial(_gradients, static=(w, causal, scale, least)), "rrrrrrrrr", "rrr")
    return (*local(*saved, *g), None, None)


window_attention.defvjp(_forward, _backward)


def _attend(
    q: Array, k: Array, v: Array, q_lengths: Array, kv_lengths: Array, static: Static
) -> tuple[Array, Array]:
    """The output, and the log-sum-exp of the scores [B, h, T rounded up to whole blocks]."""
    (B, T, h, d_k), d_v = q.shape, v.shape[3]
    q, k, v = (_whole_blocks(x) for x in (q, k, v))

    def kernel(
        q: Any, k: Any, v: Any, q_lengths: Any, kv_lengths: Any, out: Any, log_z: Any
    ) -> None:
        i, b, head, rows = _place(h)
        x = q[b, rows, head, :]

        def add(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            largest, total, value = state
            keys = pl.ds(j * BLOCK, BLOCK)
            e, seen = _scores(x, k[b, keys, head, :], i, j, q_lengths[b], kv_lengths[b], static)
            after = jnp.maximum(largest, e.max(1))
            a = jnp.where(seen, jnp.exp(e - after[:, None]), 0)
            kept = jnp.exp(largest - after)
            weighted = _dot(a.astype(v.dtype), v[b, keys, head, :])
            return after, total * kept + a.sum(1), value * kept[:, None] + weighted

        first = (
            jnp.full(BLOCK, _LOWEST, jnp.float32),
            jnp.zeros(BLOCK, jnp.float32),
            jnp.zeros((BLOCK, d_v), jnp.float32),
        )
        ends = _blocks_seen(i, k.shape[1], static)
        largest, total, value = jax.lax.fori_loop(*ends, add, first)
        divisor = jnp.where(total > 0, total, 1)
        out[b, rows, head, :] = (value / divisor[:, None]).astype(out.dtype)
        log_z[b, head, rows] = largest + jnp.log(divisor)

    whole = q.shape[1]
    run = call(
        kernel,
        (whole // BLOCK, B * h),
        (
            jax.ShapeDtypeStruct((B, whole, h, d_v), v.dtype),
            jax.ShapeDtypeStruct((B, h, whole), jnp.float32),
        ),
        B * h * _pairs(whole, k.shape[1], static) * 2 * (d_k + d_v),
        "window_attention",
        warps=4,
    )
    out, log_z = run(q, k, v, q_lengths, kv_lengths)
    return out[:, :T], log_z


def _gradients(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    out: Array,
    log_z: Array,
    g: Array,
    g_log_z: Array,
    static: Static,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v for those of the output and of its log-sum-exp."""
    (B, T, h, d_k), S, d_v = q.shape, k.shape[1], v.shape[3]
    along = jnp.einsum("bthd,bthd->bht", g, out, preferred_element_type=jnp.float32)
    along -= g_log_z
    q, k, v, g = (_whole_blocks(x) for x in (q, k, v, g))
    along = jnp.pad(along, ((0, 0), (0, 0), (0, q.shape[1] - T)))
    scale, lengths = static[2], (q_lengths, kv_lengths)
    pairs = B * h * _pairs(q.shape[1], k.shape[1], static)

    def weights(x: Any, y: Any, z: Any, g: Any, i: Any, j: Any, *rest: Any) -> tuple[Array, Array]:
        """The weights of a block of pairs, and the gradient of its scores, divided by scale."""
        q_length, kv_length, log_z, along = rest
        e, seen = _scores(x, y, i, j, q_length, kv_length, static)
        a = jnp.where(seen, jnp.exp(e - log_z[:, None]), 0)
        return a, a * (_dot(g, z.T) - along[:, None])

    def of_queries(
        q: Any, k: Any, v: Any, q_n: Any, kv_n: Any, log_z: Any, along: Any, g: Any, dq: Any
    ) -> None:
        i, b, head, rows = _place(h)
        x, direction = q[b, rows, head, :], g[b, rows, head, :]
        of_row = q_n[b], kv_n[b], log_z[b, head, rows], along[b, head, rows]

        def add(j: Array, total: Array) -> Array:
            keys = pl.ds(j * BLOCK, BLOCK)
            y, z = k[b, keys, head, :], v[b, keys, head, :]
            _, de = weights(x, y, z, direction, i, j, *of_row)
            return total + _dot(de.astype(y.dtype), y)

        ends = _blocks_seen(i, k.shape[1], static)
        total = jax.lax.fori_loop(*ends, add, jnp.zeros((BLOCK, d_k), jnp.float32))
        dq[b, rows, head, :] = (scale * total).astype(dq.dtype)

    def of_keys(
        q: Any, k: Any, v: Any, q_n: Any, kv_n: Any, log_z: Any, along: Any, g: Any,
        dk: Any, dv: Any,
    ) -> None:  # fmt: skip
        j, b, head, rows = _place(h)
        y, z = k[b, rows, head, :], v[b, rows, head, :]

        def add(i: Array, totals: tuple[Array, Array]) -> tuple[Array, Array]:
            queries = pl.ds(i * BLOCK, BLOCK)
            x, direction = q[b, queries, head, :], g[b, queries, head, :]
            of_row = q_n[b], kv_n[b], log_z[b, head, queries], along[b, head, queries]
            a, de = weights(x, y, z, direction, i, j, *of_row)
            dk = totals[0] + _dot(de.T.astype(x.dtype), x)
            return dk, totals[1] + _dot(a.T.astype(direction.dtype), direction)

        zeros = (jnp.zeros((BLOCK, d), jnp.float32) for d in (d_k, d_v))
        ends = _blocks_seeing(j, q.shape[1], static)
        total_k, total_v = jax.lax.fori_loop(*ends, add, tuple(zeros))
        dk[b, rows, head, :] = (scale * total_k).astype(dk.dtype)
        dv[b, rows, head, :] = total_v.astype(dv.dtype)

    def like(x: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    def run(kernel: Callable[..., None], results: Any, length: int, flops: int, name: str) -> Any:
        grid = length // BLOCK, B * h
        done = call(kernel, grid, results, flops, f"window_attention_{name}", warps=4)
        return done(q, k, v, *lengths, log_z, along, g)

    dq = run(of_queries, like(q), q.shape[1], pairs * 2 * (2 * d_k + d_v), "queries")
    both = run(of_keys, (like(k), like(v)), k.shape[1], pairs * 4 * (d_k + d_v), "keys")
    return dq[:, :T], both[0][:, :S], both[1][:, :S]


def _place(h: int) -> tuple[Any, Any, Any, Any]:
    """The block of this program, its row of the batch, its head, and the positions of the block."""
    i, row = pl.program_id(0), pl.program_id(1)
    return i, row // h, row % h, pl.ds(i * BLOCK, BLOCK)


def _scores(
    x: Array, y: Array, i: Any, j: Any, q_length: Array, kv_length: Array, static: Static
) -> tuple[Array, Array]:
    """The scores of block i of queries and block j of keys, and which of these pairs count."""
    w, causal, scale, least = static
    t, s = i * BLOCK + jnp.arange(BLOCK)[:, None], j * BLOCK + jnp.arange(BLOCK)[None]
    seen = (t < q_length) & (s < kv_length) & (jnp.abs(s - t) <= w)
    seen &= jnp.abs(s - t) >= least
    if causal:
        seen &= s <= t
    return jnp.where(seen, scale * _dot(x, y.T), _LOWEST), seen


def _dot(x: Array, y: Array) -> Array:
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def _blocks_seen(i: Any, S: int, static: Static) -> tuple[Any, Any]:
    """The first block of keys that block i of queries sees, and the one after the last."""
    w, causal = static[:2]
    return _between(i * BLOCK - w, (i + 1) * BLOCK - 1 + (0 if causal else w), S)


def _blocks_seeing(j: Any, T: int, static: Static) -> tuple[Any, Any]:
    """The first block of queries that sees block j of keys, and the one after the last."""
    w, causal = static[:2]
    return _between(j * BLOCK - (0 if causal else w), (j + 1) * BLOCK - 1 + w, T)


def _between(first: Any, last: Any, length: int) -> tuple[Any, Any]:
    """The blocks of a sequence that hold the positions from first to last."""
    start = jnp.clip(first, 0, length) // BLOCK
    return start, jnp.maximum(jnp.minimum(last, length - 1) // BLOCK + 1, start)


def _pairs(T: int, S: int, static: Static) -> int:
    """Pairs of positions whose scores are computed, for one head."""
    w, causal = static[:2]
    blocks = 0
    for i in range(T // BLOCK):
        first = max(i * BLOCK - w, 0) // BLOCK
        last = min((i + 1) * BLOCK - 1 + (0 if causal else w), S - 1) // BLOCK
        blocks += max(last + 1 - first, 0)
    return blocks * BLOCK**2


def _whole_blocks(x: Array) -> Array:
    """x [B, L, ...] with zeros until BLOCK divides L."""
    missing = -x.shape[1] % BLOCK
    return jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2))) if missing else x
