"""Attention that reads a decaying memory, chunk by chunk: the base of the gated mechanisms.

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
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse
from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding

_EPSILON = 1e-6
_LOG_ZERO = -1e30  # stands for the logarithm of zero


class Keys(NamedTuple):
    """What each position writes into the memory, in float32 or wider; zeros change nothing.

    Attributes:
      k: [B, S, h, m].
      u: [B, S, h, d_v], before erasing.
      log_a: the logarithm of the decay, zero or less, [B, S, h, m] or [B, S, h, 1].
      e: the keys that the delta rule erases, [B, S, h, m]; None if nothing is erased.
    """

    k: Array
    u: Array
    log_a: Array
    e: Array | None = None


class Memory(Mechanism):
    """Reads a memory, and divides the output by its root mean square.

    Some papers scale the normalised output by a learned vector. This is left out, as W_O can
    express it, even after an output gate. Their output gate, a SiLU, is left out, too;
    `attention_gate` adds a sigmoid in its place. An encoder sums what it reads in both directions,
    in which each position sees itself once (LION, Afzal et al. 2025).

    Attributes:
      chunk: the number of positions by which the memory advances; within a chunk, the weight of
        every pair is computed.
    """

    chunk: int

    def queries(self, q: Array) -> Array:
        """The queries [B, T, h, m] that read the memory, of q [B, T, h, d_k] in float32 or wider.

        A query of zeros must remain zero.
        """
        return q

    def keys(self, k: Array, v: Array) -> Keys:
        """What keys [B, S, h, d_k + gates] and values [B, S, h, d_v] write, in float32 or wider."""
        raise NotImplementedError

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        name = type(self).__name__
        refuse(name, dropout=dropout, bias=bias)
        queries, keys = self.queries(_wide(q)), self._known(k, v, visibility)
        out, _ = scan(queries, keys, self.chunk)
        if not visibility.causal:
            refuse(name, **{"the two sides of an encoder": keys.e})
            out += scan(queries, keys, self.chunk, backwards=True)[0]
        return zero_padding(out, visibility.q_lengths).astype(v.dtype)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The memory [B, h, m, d_v] after the known keys."""
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        keys = self._known(k, v, Visibility(kv_lengths=lengths))
        return {"memory": scan(jnp.zeros_like(keys.k), keys, self.chunk)[1]}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse(type(self).__name__, bias=bias)
        keys = self.keys(_wide(k), _wide(v))
        memory, out = advance(state["memory"], self.queries(_wide(q)), keys)
        return out.astype(v.dtype), {"memory": memory}

    def finish(self, out: Array) -> Array:
        """The output divided by its root mean square over the last axis; zero remains zero."""
        wide = _wide(out)
        norm = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + _EPSILON)
        return (wide * norm).astype(out.dtype)

    def _known(self, k: Array, v: Array, visibility: Visibility) -> Keys:
        """What the keys write; padding writes nothing, and the memory does not decay there."""
        present = length_mask(visibility.kv_lengths, k.shape[1])[:, :, None, None]
        keys = self.keys(_wide(k), _wide(v))
        keys = jax.tree.map(lambda x: jnp.where(present, x, 0), keys)
        if visibility.first is None:
            return keys
        # The memory is empty where a document begins.
        begins = (visibility.first == jnp.arange(k.shape[1])[None])[:, :, None, None]
        return keys._replace(log_a=jnp.where(begins, _LOG_ZERO, keys.log_a))


def scan(q: Array, keys: Keys, chunk: int, backwards: bool = False) -> tuple[Array, Array]:
    """What queries [B, T, h, m] read, [B, T, h, d_v], and the memory after all keys.

    Args:
      backwards: the recurrence runs from the last position to the first, and a query does not see
        the key of its own position.
    """
    T, L = q.shape[1], max(q.shape[1], keys.k.shape[1])
    n = -(-L // chunk)
    x = jax.tree.map(lambda x: blocks(x, chunk, n).swapaxes(0, 1), (q, keys))
    if backwards:
        x = jax.tree.map(lambda x: jnp.flip(x, (0, 2)), x)
    empty = jnp.zeros((q.shape[0], *q.shape[2:], keys.u.shape[-1]), q.dtype)

    def step(S: Array, x: tuple[Array, Keys]) -> tuple[Array, Array]:
        return advance(S, *x, not backwards)

    if keys.log_a.shape[-1] > 1:
        step = jax.checkpoint(step)  # each pair has m decays, which are computed again
    memory, out = jax.lax.scan(step, empty, x)
    out = jnp.flip(out, (0, 2)) if backwards else out
    return unblock(out.swapaxes(0, 1), T), memory


def advance(S: Array, q: Array, keys: Keys, own: bool = True) -> tuple[Array, Array]:
    """The memory [B, h, m, d_v] after a chunk of C positions, and what its queries read.

    Args:
      own: whether a query sees the key of its own position.
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

    The gradient solves one system. That of `triangular_solve` solves two, which can wait for each
    other's threads for ever on a CPU with few cores (jaxlib 0.10.2).
    """
    if u.shape[1] == 1:
        return u

    def solve(b: Array, transpose: bool = False) -> Array:
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


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
