"""A decaying memory, chunk by chunk: one chunk after the other, or all at once on a GPU.

The memory S [m, d_v] of a head is updated at each position, and the query reads it:

    S_t = diag(a_t) S_{t-1} + k_t u_t^T,    out_t = S_t^T q_t,

where the decay a_t has m elements, or one that they share. Usually u_t = v_t. The delta rule
(Schlag et al. 2021) erases what the memory has stored at a key e_t in proportion to k_t:
u_t = v_t - (diag(a_t) S_{t-1})^T e_t.

Within a chunk, everything is a matmul. The vectors u of the delta rule solve a triangular system,
which is the WY form of a product of Householder matrices (Yang et al. 2024, "Parallelizing Linear
Transformers with the Delta Rule"). The decay between two positions is exp of a sum of logarithms,
which is negative or zero, so that it never overflows.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks, unblock
from t2t_jax.ops.tiles import on_gpu

LOG_ZERO = -128.0  # exp of it is zero in float32, and sums of small multiples of it are exact


class Keys(NamedTuple):
    """What each position writes into the memory, in float32 or wider; zeros change nothing."""

    k: Array  # [B, S, h, m]
    u: Array  # [B, S, h, d_v], before erasing
    log_a: Array  # the logarithm of the decay, zero or less, [B, S, h, m] or [B, S, h, 1]
    e: Array | None = None  # the keys that the delta rule erases, [B, S, h, m]; None: no erasing


Pair = tuple[Array, Array]


def scan(q: Array, keys: Keys, chunk: int, backwards: bool = False) -> tuple[Array, Array]:
    """What queries [B, T, h, m] read, [B, T, h, d_v], and the memory after all keys.

    Backwards, the recurrence runs from the last position to the first, and a query does not see the
    key of its own position.
    """
    T, L = q.shape[1], max(q.shape[1], keys.k.shape[1])
    n = -(-L // chunk)
    x = jax.tree.map(lambda x: blocks(x, chunk, n).swapaxes(0, 1), (q, keys))
    if backwards:
        x = jax.tree.map(lambda x: jnp.flip(x, (0, 2)), x)

    def step(S: Array, x: tuple[Array, Keys]) -> Pair:
        return advance(S, *x, not backwards)

    if on_gpu():
        memory, out = _parallel(x[0], x[1], not backwards)
    else:
        empty = jnp.zeros((q.shape[0], *q.shape[2:], keys.u.shape[-1]), q.dtype)
        if keys.log_a.shape[-1] > 1:
            step = jax.checkpoint(step)  # each pair has m decays, which are computed again
        memory, out = jax.lax.scan(step, empty, x)
    out = jnp.flip(out, (0, 2)) if backwards else out
    return unblock(out.swapaxes(0, 1), T), memory


def _parallel(q: Array, keys: Keys, own: bool) -> Pair:
    """The last memory and what all queries read, for all chunks [n, B, C, h, ...] at once.

    A chunk maps S to A S + added, where A is a matrix if keys are erased, and otherwise diagonal.

    Gain: compiled for an H100, retention has 54 kernels instead of 10,779 at n = 16,384
    (`experiments/tools/programs.py`).
    """
    n = len(q)
    q, (k, u, log_a, e) = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (q, keys))
    before = jnp.exp(jnp.cumsum(log_a, axis=1))
    A, late = before[:, -1, ..., None], k * _decay(log_a)[:, -1]

    def pairs(x: Array, log_a: Array, own: bool) -> Array:
        return _pairs(x, k, _decay(log_a), own)

    if log_a.shape[-1] > 1:
        pairs = jax.checkpoint(pairs, static_argnums=2)  # as in `scan`
    if e is not None:  # what each position adds is u - e^T S
        both = _solve(pairs(e, log_a, False), jnp.concatenate([u, e * before], -1))
        u, e = jnp.split(both, u.shape[-1:], -1)
        A = A * jnp.eye(k.shape[-1])[None, None] - jnp.einsum("bshm,bshd->bhmd", late, e)
    added = jnp.einsum("bshm,bshd->bhmd", late, u)
    memories = _memories(*(x.reshape(n, -1, *x.shape[1:]) for x in (A, added)))
    S = memories[:-1].reshape(added.shape)
    if e is not None:
        u = u - jnp.einsum("bthm,bhmd->bthd", e, S)
    out = jnp.einsum("bthm,bhmd->bthd", q * before, S)
    out += jnp.einsum("bhts,bshd->bthd", pairs(q, log_a, own), u)
    return memories[-1], out.reshape(n, -1, *out.shape[1:])


@jax.custom_vjp
def _memories(A: Array, added: Array) -> Array:
    """The memories [n + 1, B, h, m, d] before each of n chunks, and after all of them.

    They are a parallel prefix sum, and so is their gradient, from the last chunk to the first. A is
    [n, B, h, m, m], or [n, B, h, m or 1, 1], the factors of a diagonal matrix.
    """
    after = _prefix(A, added)
    return jnp.concatenate([jnp.zeros_like(after[:1]), after])


def _memories_forward(A: Array, added: Array) -> tuple[Array, Pair]:
    memories = _memories(A, added)
    return memories, (A, memories)


def _memories_backward(saved: Pair, g: Array) -> Pair:
    A, memories = saved
    later = jnp.roll(A if A.shape[-1] == 1 else A.mT, -1, 0)  # the last one is not used
    g = _prefix(later, g[1:], reverse=True)
    return jax.vjp(_times, A, memories[:-1])[1](g)[0], g


_memories.defvjp(_memories_forward, _memories_backward)


def _prefix(A: Array, added: Array, reverse: bool = False) -> Array:
    """S_i = A_i S_{i-1} + added_i of all i, from S = 0 before the first; or from the last back."""
    width = A.shape[-1]

    def join(x: Array, y: Array) -> Array:
        """The map y after the map x; [A, added] in one array takes one matmul."""
        own = jnp.pad(y[..., width:], ((0, 0),) * (y.ndim - 1) + ((width, 0),))
        return _times(y[..., :width], x) + own

    A = jnp.broadcast_to(A, (*added.shape[:-1], width))
    return jax.lax.associative_scan(join, jnp.concatenate([A, added], -1), reverse)[..., width:]


def _times(A: Array, S: Array) -> Array:
    return A * S if A.shape[-1] == 1 else A @ S


def advance(S: Array, q: Array, keys: Keys, own: bool = True) -> tuple[Array, Array]:
    """The memory [B, h, m, d_v] after a chunk of C positions, and what its queries read.

    `own` says whether a query sees the key of its own position.
    """
    k, u, log_a, e = keys
    before = jnp.exp(jnp.cumsum(log_a, axis=1))  # the decay since the previous chunk; never above 1
    decay = _decay(log_a)
    if e is not None:
        u = u - jnp.einsum("bthm,bhmd->bthd", e * before, S)
        # Each u depends on the earlier ones of its chunk: one triangular system for all of them.
        u = _solve(_pairs(e, k, decay, own=False), u)
    out = jnp.einsum("bthm,bhmd->bthd", q * before, S)
    out += jnp.einsum("bhts,bshd->bthd", _pairs(q, k, decay, own), u)
    added = jnp.einsum("bshm,bshd->bhmd", k * decay[:, -1], u)
    return S * before[:, -1, ..., None] + added, out


def _decay(log_a: Array) -> Array:
    """The decay from s to t, for log_a [B, C, h, m]: [B, t, s, h, m]; zero where s > t.

    Logarithms are summed from s + 1 to t. The difference of two cumulative sums would lose
    precision after a strong decay before s.
    """
    past, seen = (jnp.tri(log_a.shape[1], k=k, dtype=bool)[None, :, :, None, None] for k in (-1, 0))
    if on_gpu() and log_a.shape[-1] > 1:  # no array of [t, s, m] is stored for the sums
        log_a = jnp.maximum(log_a, LOG_ZERO)
        whole = jax.lax.stop_gradient(jnp.round(log_a))  # its sums are exact; sums of the rest
        sums = (jnp.cumsum(x, axis=1) for x in (whole, log_a - whole))  # are small
        total = sum((x[:, :, None] - x[:, None] for x in sums), jnp.zeros((), log_a.dtype))
        return jnp.exp(jnp.where(seen, total, -jnp.inf))
    total = jnp.cumsum(jnp.where(past, log_a[:, :, None], 0), axis=1)
    return jnp.where(seen, jnp.exp(total), 0)


def _pairs(x: Array, y: Array, decay: Array, own: bool) -> Array:
    """x_t^T diag(the decay from s to t) y_s for s < t, or s <= t if `own`; else 0: [B, h, C, C]."""
    if decay.shape[-1] == 1:
        products = jnp.einsum("bthm,bshm->bhts", x, y) * decay[..., 0].transpose(0, 3, 1, 2)
    else:
        products = jnp.einsum("btshm,bshm->bhts", x[:, :, None] * decay, y)
    return products if own else products * jnp.tri(x.shape[1], k=-1, dtype=x.dtype)[None, None]


def _solve(below: Array, u: Array) -> Array:
    """x with (I + below) x = u, for below [B, h, C, C] with zeros on and above the diagonal.

    The gradient solves one system; `triangular_solve` solves two in its own, which can wait for
    each other's threads for ever on a CPU with few cores (jaxlib 0.10.2).
    """
    if u.shape[1] == 1:
        return u
    inverse = _inverse(below) if on_gpu() else None

    def solve(b: Array, transpose: bool = False) -> Array:
        if inverse is not None:
            return (inverse.mT if transpose else inverse) @ b
        return jax.lax.linalg.triangular_solve(
            below, b, left_side=True, lower=True, unit_diagonal=True, transpose_a=transpose
        )

    x: Array = jax.lax.custom_linear_solve(
        lambda x: x + below @ x,
        u.swapaxes(1, 2),
        lambda _, b: solve(b),
        lambda _, b: solve(b, transpose=True),
    )
    return x.swapaxes(1, 2)


def _inverse(below: Array) -> Array:
    """The inverse of I + below [..., C, C], from the inverses of its halves, all in matmuls.

    The Neumann series, which needs fewer, has terms as large as 10^18 where all keys are equal.
    """
    C = below.shape[-1]
    if C <= 2:
        return jnp.broadcast_to(jnp.eye(C, dtype=below.dtype), below.shape) - below
    m = (C + 1) // 2
    x = jnp.pad(below, [(0, 0)] * (below.ndim - 2) + [(0, 2 * m - C)] * 2)
    top, bottom = _inverse(jnp.stack([x[..., :m, :m], x[..., m:, m:]]))
    corner = -jnp.matmul(bottom, jnp.matmul(x[..., m:, :m], top, precision="highest"))
    return jnp.block([[top, jnp.zeros_like(top)], [corner, bottom]])[..., :C, :C]
