"""Sparse patterns: strided and fixed (Child et al. 2019), random blocks (Zaheer et al. 2020).

Each is softmax(q k^T / sqrt(d_k)) v over the keys of its pattern, within one sequence. A pattern is
a few disjoint sets of keys whose scores are concatenated under one softmax. Child et al. define
theirs for causal attention; an encoder applies them to both sides.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import (
    blocks,
    on_axis,
    scaled_products,
    take_positions,
    unblock,
    with_neighbours,
)
from t2t_jax.attention.dense import single_query, softmax, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, write_at
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.patterns import Far, Listed, Near, Window, table, tile_of
from t2t_jax.ops.sparse_attention import Keys as FusedKeys
from t2t_jax.ops.sparse_attention import has_kernel, sparse_attention
from t2t_jax.ops.window_attention import window_attention


class Keys(NamedTuple):
    """A set of keys for queries in n blocks of b.

    Attributes:
      letters: the axes of k and v after the batch and before d, in an einsum whose queries have the
        axes n q h d; s is the axis of the keys.
      k, v: the keys and values.
      s: positions of the keys, int32 [B or 1, n or 1, b or 1, K].
      chosen: bool of the same axes, whether the pattern has the key.
    """

    letters: str
    k: Array
    v: Array
    s: Array
    chosen: Array


def attend(
    q: Array, sets: Sequence[Keys], visibility: Visibility, dropout: Dropout, bias: Bias
) -> Array:
    """Queries [B, n, b, h, d_k] over disjoint sets of keys -> [B, n, b, h, d_v]."""
    n, b = q.shape[1:3]
    t = jnp.arange(n * b).reshape(1, n, b, 1)
    scores, seen = [], []
    for x in sets:
        products = scaled_products(f"znqhd,z{x.letters}d->zhnqs", q, x.k)
        if bias is not None:
            products += jnp.moveaxis(bias(x.s - t), 0, 1)
        scores.append(products)
        allowed = visibility.allows(t, x.s) & x.chosen
        seen.append(jnp.broadcast_to(allowed, (q.shape[0], *products.shape[2:])))
    a = softmax(jnp.concatenate(scores, -1), jnp.concatenate(seen, -1)[:, None])
    if dropout is not None:
        a = dropout(a)
    ends = np.cumsum([x.shape[-1] for x in scores])[:-1]
    parts = jnp.split(a.astype(q.dtype), ends, axis=-1)
    out = jnp.zeros((), q.dtype)
    for part, x in zip(parts, sets, strict=True):
        out += jnp.einsum(f"zhnqs,z{x.letters}d->znqhd", part, x.v)
    return out


class Sparse(Mechanism):
    """The base class of patterns whose decoding state keeps all keys and values.

    A subclass defines `attend`, usually by the function `attend` of this file, and `seen_from`.
    """

    grouped: ClassVar[bool] = True

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of all positions, zero where they are not yet known."""
        lengths = visibility.kv_lengths
        return {"k": zero_padding(k, lengths), "v": zero_padding(v, lengths)}

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        """The positions that query t sees among S, int32 [K], each once, and which exist, bool."""
        raise NotImplementedError

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        state = {"k": write_at(state["k"], k, t), "v": write_at(state["v"], v, t)}
        s, exist = self.seen_from(t, state["k"].shape[1])
        keys, values = (jnp.take(state[n], s, axis=1, mode="clip") for n in "kv")
        seen = exist & (s >= 0) & (s <= t)
        return single_query(q, keys, values, seen[None], (s - t)[None], bias), state


class Strided(Sparse):
    """The keys within distance l, and those at distances divisible by l."""

    l: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        T, S = q.shape[1], k.shape[1]
        l = min(self.l, T)  # all keys are near if l is longer than the sequence
        n, m = -(-T // l), -(-S // l)
        after = 0 if visibility.causal else 1
        start = l * on_axis(1, 4, jnp.arange(n))
        row = on_axis(2, 4, jnp.arange(l))
        near = start + on_axis(3, 4, jnp.arange(-l, (1 + after) * l))
        within = jnp.abs(near - start - row) < l
        columns = row + l * on_axis(3, 4, jnp.arange(m))
        sets = [
            Keys(
                "nsh",
                with_neighbours(k, l, n, after),
                with_neighbours(v, l, n, after),
                near,
                within,
            ),
            Keys("sqh", blocks(k, l, m), blocks(v, l, m), columns, columns != start + row),
        ]
        return unblock(attend(blocks(q, l, n), sets, visibility, dropout, bias), T)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """The near keys as a window, the others as dense attention within each column of l."""
        if not has_kernel(q, v):
            return None
        (B, T, h, d_k), l, causal = q.shape, self.l, visibility.causal
        lengths, scale, n = visibility.with_lengths(q, k).q_lengths, d_k**-0.5, -(-T // l)
        near = window_attention(q, k, v, lengths, lengths, l - 1, causal, scale)

        def columns(x: Array) -> Array:  # as more heads, which avoids a copy
            return blocks(x, l, n).reshape(B, n, l * h, -1)

        of_column = (jnp.maximum(lengths[:, None] - jnp.arange(l)[None], 0) + l - 1) // l
        of_column = jnp.repeat(of_column, h, axis=1)
        keys, pattern = FusedKeys(columns(k), columns(v), of_column), Window(n, causal, 1)
        g = next(g for g in (16, 32, 64) if g >= min(n, 64))
        out, log_z = sparse_attention(columns(q), of_column, (keys,), ((pattern,),), scale, g)
        far = (
            unblock(out.reshape(B, n, l, h, -1), T),
            log_z.reshape(B, l, h, n).transpose(0, 2, 3, 1).reshape(B, h, n * l)[:, :, :T],
        )
        total = jnp.logaddexp(near[1], far[1])
        parts = (
            out * jnp.exp(log - total).swapaxes(1, 2)[..., None].astype(out.dtype)
            for out, log in (near, far)
        )
        return sum(parts, start=jnp.zeros((), v.dtype))

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        near = t - jnp.arange(self.l)
        columns = t - self.l * jnp.arange(1, -(-S // self.l))
        s = jnp.concatenate([near, columns])
        return s, s >= 0


class Fixed(Mechanism):
    """The query's own block of l keys, and the last c of each other (causal: earlier) block."""

    grouped: ClassVar[bool] = True

    l: int
    c: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        l, T = self.l, q.shape[1]
        b = min(l, T)
        n = -(-T // b)
        block = on_axis(1, 4, jnp.arange(n))
        own = b * block + on_axis(3, 4, jnp.arange(b))
        s = on_axis(3, 4, self._summaries(k.shape[1]))
        sets = [
            Keys("nsh", blocks(k, b, n), blocks(v, b, n), own, jnp.ones((1, 1, 1, 1), bool)),
            Keys("sh", self._columns(k), self._columns(v), s, s // l != block),
        ]
        return unblock(attend(blocks(q, b, n), sets, visibility, dropout, bias), T)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """Two sets of keys: those of the own block, and the last c of each block."""
        if not has_kernel(q, v):
            return None
        l, c, causal = self.l, self.c, visibility.causal
        lengths = visibility.with_lengths(q, k).q_lengths
        columns = lengths // l * c + jnp.maximum(lengths % l - (l - c), 0)
        sets = (
            FusedKeys(k, v, lengths),
            FusedKeys(self._columns(k), self._columns(v), columns),
        )
        patterns = (Near(l, 0, causal),), (Far(l, c, 0, causal),)
        return sparse_attention(q, lengths, sets, patterns, q.shape[-1] ** -0.5)[0]

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of the next position's block, and the last c of every block."""
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        own = (lengths // self.l * self.l)[:, None] + jnp.arange(min(self.l, k.shape[1]))[None]
        state: State = {}
        for name, x in (("k", k), ("v", v)):
            state |= {name: take_positions(x, own), f"{name}_columns": self._columns(x)}
        return state

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        l, c = self.l, self.c
        block, slot = t // l, t % l
        own = block * l + jnp.arange(state["k"].shape[1])
        after = dict(state)
        for name, new in (("k", k), ("v", v)):
            after[name] = write_at(state[name], new, slot)
            columns = state[f"{name}_columns"]
            kept = write_at(columns, new, block * c + slot - (l - c))
            after[f"{name}_columns"] = jnp.where(slot >= l - c, kept, columns)
        summaries = self._summaries(after["k_columns"].shape[1] // c * l)
        s = jnp.concatenate([own, summaries])
        seen = jnp.concatenate([own <= t, summaries // l < block])
        keys, values = (jnp.concatenate([after[n], after[f"{n}_columns"]], axis=1) for n in "kv")
        return single_query(q, keys, values, seen[None], (s - t)[None], bias), after

    def _summaries(self, S: int) -> Array:
        """Positions of the last c of each block of S positions."""
        blocks = self.l * jnp.arange(-(-S // self.l))[:, None]
        return (blocks + jnp.arange(self.l - self.c, self.l)[None]).reshape(-1)

    def _columns(self, x: Array) -> Array:
        """x [B, S, h, d] at `_summaries`."""
        m = -(-x.shape[1] // self.l)
        return unblock(blocks(x, self.l, m)[:, :, self.l - self.c :], m * self.c)


class Random(Sparse):
    """Blocks of b: a query's own block, its neighbours, the first block, and r random blocks.

    Causal: only earlier keys. Otherwise, the queries of the first block also see every key. The
    random blocks of block i are floor(u m), where m is the number of candidates (causal: the blocks
    before i; otherwise the blocks before the padding) and u is row i of
    default_rng(seed).random((., r)) in float32. A block that the pattern already has counts once.
    All heads share the pattern; in the code of Zaheer et al., each head draws its own.
    """

    b: int
    r: int
    seed: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        b, T = self.b, q.shape[1]
        n, m = -(-T // b), -(-k.shape[1] // b)
        after = 0 if visibility.causal else 1
        block = on_axis(1, 4, jnp.arange(n))
        near = b * block + on_axis(3, 4, jnp.arange(-b, (1 + after) * b))
        first = on_axis(3, 4, jnp.arange(b))
        i = jnp.arange(n)[None]
        filled = -(-visibility.kv_lengths[:, None] // b)
        j, drawn = self._random(i, jnp.minimum(i, m) if visibility.causal else filled)
        j, drawn = (jnp.broadcast_to(x, (q.shape[0], n, self.r)) for x in (j, drawn))
        far = (b * j[..., None] + on_axis(3, 4, jnp.arange(b))).reshape(*j.shape[:2], 1, -1)
        always = jnp.ones((1, 1, 1, 1), bool)
        sets = [
            Keys(
                "nsh",
                with_neighbours(k, b, n, after),
                with_neighbours(v, b, n, after),
                near,
                always,
            ),
            Keys("sh", blocks(k, b, 1)[:, 0], blocks(v, b, 1)[:, 0], first, block > 1),
            Keys("nsh", _take(k, b, j), _take(v, b, j), far, _spread(drawn, b)),
        ]
        out = unblock(attend(blocks(q, b, n), sets, visibility, dropout, bias), T)
        return out if visibility.causal else with_global(b, out, q, k, v, visibility, dropout, bias)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """Two sets of keys: those of the neighbours and the random blocks, and the first block."""
        b, T, causal, g = self.b, q.shape[1], visibility.causal, tile_of(self.b)
        if not g or not has_kernel(q, v):
            return None
        visibility = visibility.with_lengths(q, k)
        lengths, i = visibility.q_lengths, jnp.arange(-(-T // b))[None]
        j, drawn = self._random(i, i if causal else -(-lengths[:, None] // b))
        j = jnp.broadcast_to(jnp.where(drawn, j, -1), (q.shape[0], *j.shape[1:]))
        sets = (
            FusedKeys(k, v, lengths, table(j, b, g, T, T)),
            FusedKeys(k[:, :b], v[:, :b], jnp.minimum(lengths, b)),
        )
        patterns = (Near(b, 1, causal), Listed(b)), (Far(b, b, 1, causal),)
        out = sparse_attention(q, lengths, sets, patterns, q.shape[-1] ** -0.5, g)[0]
        if causal:
            return out
        q, k, v = (zero_padding(x, lengths) for x in (q, k, v))
        out = with_global(b, out, q, k, v, visibility, None, None)
        return zero_padding(out, lengths)  # which also zeroes the gradient of padding

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        b, i = self.b, t // self.b
        near = (i - 1) * b + jnp.arange(2 * b)
        j, drawn = self._random(i[None, None], i[None, None], -(-S // b))
        far = (b * j[0, 0, :, None] + jnp.arange(b)[None]).reshape(-1)
        exist = [near >= 0, jnp.broadcast_to(i > 1, b), _spread(drawn, b)[0, 0, 0]]
        return jnp.concatenate([near, jnp.arange(b), far]), jnp.concatenate(exist)

    def _random(self, i: Array, m: Array, n: int | None = None) -> tuple[Array, Array]:
        """The random blocks [B, I, r] of blocks i [1, I], and which ones are new to the pattern.

        Args:
          m: the number of candidates, [B or 1, I or 1].
          n: an exclusive upper bound of i, by default its length.
        """
        u = np.random.default_rng(self.seed).random((n or i.shape[1], self.r)).astype(np.float32)
        j = jnp.floor(jnp.asarray(u)[i] * m[..., None]).astype(jnp.int32)
        j = jnp.minimum(j, m[..., None] - 1)
        new = (j > 0) & (jnp.abs(j - i[..., None]) > 1)
        again = (j[..., :, None] == j[..., None, :]) & np.tri(self.r, k=-1, dtype=bool)[None, None]
        return j, new & ~again.any(-1)


def _take(x: Array, b: int, j: Array) -> Array:
    """Blocks j [B, n, r] of length b of x [B, S, ...] -> [B, n, r b, ...]."""
    x = blocks(x, b, -(-x.shape[1] // b))
    taken = jax.vmap(lambda x, j: jnp.take(x, j, axis=0, mode="clip"))(x, j)
    return taken.reshape(*j.shape[:2], -1, *x.shape[3:])


def _spread(x: Array, b: int) -> Array:
    """[B, n, r], a value for each block -> [B, n, 1, r b], a value for each key."""
    return jnp.repeat(x, b, axis=-1)[:, :, None]


def with_global(
    g: int,
    out: Array,
    q: Array,
    k: Array,
    v: Array,
    visibility: Visibility,
    dropout: Dropout,
    bias: Bias,
) -> Array:
    """The outputs [B, T, h, d_v], where those of the first g queries are over all keys."""
    scores = scaled_products("bthd,bshd->bhts", q[:, :g], k)
    first = weighted_sum(scores, v.swapaxes(1, 2), visibility, dropout=dropout, bias=bias)
    return jnp.concatenate([first, out[:, g:]], axis=1)
