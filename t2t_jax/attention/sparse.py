"""Sparse patterns: strided and fixed (Child et al. 2019), random blocks (Zaheer et al. 2020).

Each is softmax(q k^T / sqrt(d_k)) v over the keys of its pattern, within one sequence. Keys come in
disjoint sets whose scores stand side by side under one softmax.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import along, around, blocks, gather, scaled, unblock
from t2t_jax.attention.dense import one, softmax, weighted
from t2t_jax.attention.mechanism import Bias, Drop, Mechanism, State, put
from t2t_jax.attention.visibility import Visibility, blank


class Keys(NamedTuple):
    """A set of keys for queries in n blocks of b.

    Attributes:
      letters: the axes of k and v after the batch, as in an einsum whose queries are n q h d; s is
        the axis to choose from.
      k, v: the keys and values.
      s: int32 positions [B or 1, n or 1, b or 1, K].
      chosen: bool, likewise: those of them that the pattern has.
    """

    letters: str
    k: Array
    v: Array
    s: Array
    chosen: Array


def attend(q: Array, sets: Sequence[Keys], visibility: Visibility, drop: Drop, bias: Bias) -> Array:
    """Queries [B, n, b, h, d_k] over disjoint sets of keys -> [B, n, b, h, d_v]."""
    n, b = q.shape[1:3]
    t = jnp.arange(n * b).reshape(1, n, b, 1)
    scores, seen = [], []
    for x in sets:
        found = scaled(f"znqhd,z{x.letters}d->zhnqs", q, x.k)
        if bias is not None:
            found += jnp.moveaxis(bias(x.s - t), 0, 1)
        scores.append(found)
        allowed = visibility.allows(t, x.s) & x.chosen
        seen.append(jnp.broadcast_to(allowed, (q.shape[0], *found.shape[2:])))
    a = softmax(jnp.concatenate(scores, -1), jnp.concatenate(seen, -1)[:, None])
    if drop is not None:
        a = drop(a)
    ends = np.cumsum([x.shape[-1] for x in scores])[:-1]
    parts = jnp.split(a.astype(q.dtype), ends, axis=-1)
    out = jnp.zeros((), q.dtype)
    for part, x in zip(parts, sets, strict=True):
        out += jnp.einsum(f"zhnqs,z{x.letters}d->znqhd", part, x.v)
    return out


class _Sparse(Mechanism):
    """Decoding for patterns whose later queries may need any earlier key."""

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values known."""
        lengths = visibility.kv_lengths
        return {"k": blank(k, lengths), "v": blank(v, lengths)}

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        """Of S positions those that t sees, int32 [K], each once, and bool [K], which exist."""
        raise NotImplementedError

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        state = {"k": put(state["k"], k, t), "v": put(state["v"], v, t)}
        s, exist = self.seen_from(t, state["k"].shape[1])
        keys, values = (jnp.take(state[n], s, axis=1, mode="clip") for n in "kv")
        seen = exist & (s >= 0) & (s <= t)
        return one(q, keys, values, seen[None], (s - t)[None], bias), state


class Strided(_Sparse):
    """The keys at distance l at most, and those at a distance that l divides."""

    l: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        l, T, S = self.l, q.shape[1], k.shape[1]
        n, m = -(-T // l), -(-S // l)
        after = 0 if visibility.causal else 1
        start = l * along(1, 4, jnp.arange(n))
        row = along(2, 4, jnp.arange(l))
        near = start + along(3, 4, jnp.arange(-l, (1 + after) * l))
        within = jnp.abs(near - start - row) < l
        columns = row + l * along(3, 4, jnp.arange(m))
        sets = [
            Keys("nsh", around(k, l, n, after), around(v, l, n, after), near, within),
            Keys("sqh", blocks(k, l, m), blocks(v, l, m), columns, columns != start + row),
        ]
        return unblock(attend(blocks(q, l, n), sets, visibility, drop, bias), T)

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        near = t - jnp.arange(self.l)
        columns = t - self.l * jnp.arange(1, -(-S // self.l))
        s = jnp.concatenate([near, columns])
        return s, s >= 0


class Fixed(Mechanism):
    """The keys of the own block of l, and the last c of all other (causal: earlier) blocks."""

    l: int
    c: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        l, T = self.l, q.shape[1]
        n = -(-T // l)
        block = along(1, 4, jnp.arange(n))
        own = l * block + along(3, 4, jnp.arange(l))
        s = along(3, 4, self._summaries(k.shape[1]))
        sets = [
            Keys("nsh", blocks(k, l, n), blocks(v, l, n), own, jnp.ones((1, 1, 1, 1), bool)),
            Keys("sh", self._columns(k), self._columns(v), s, s // l != block),
        ]
        return unblock(attend(blocks(q, l, n), sets, visibility, drop, bias), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The block that the next position is in, and the last c keys and values of every block."""
        lengths = visibility.bounded(k, k).kv_lengths
        k, v = blank(k, lengths), blank(v, lengths)
        at = (lengths // self.l * self.l)[:, None] + jnp.arange(self.l)[None]
        state: State = {}
        for name, x in (("k", k), ("v", v)):
            state |= {name: gather(x, at), f"{name}_columns": self._columns(x)}
        return state

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        l, c = self.l, self.c
        block, slot = t // l, t % l
        own = block * l + jnp.arange(l)
        after = dict(state)
        for name, new in (("k", k), ("v", v)):
            after[name] = put(state[name], new, slot)
            columns = state[f"{name}_columns"]
            kept = put(columns, new, block * c + slot - (l - c))
            after[f"{name}_columns"] = jnp.where(slot >= l - c, kept, columns)
        summaries = self._summaries(after["k_columns"].shape[1] // c * l)
        s = jnp.concatenate([own, summaries])
        seen = jnp.concatenate([own <= t, summaries // l < block])
        keys, values = (jnp.concatenate([after[n], after[f"{n}_columns"]], axis=1) for n in "kv")
        return one(q, keys, values, seen[None], (s - t)[None], bias), after

    def _summaries(self, S: int) -> Array:
        """Positions of the last c of each block of S positions."""
        blocks = self.l * jnp.arange(-(-S // self.l))[:, None]
        return (blocks + jnp.arange(self.l - self.c, self.l)[None]).reshape(-1)

    def _columns(self, x: Array) -> Array:
        """x [B, S, h, d] at `_summaries`."""
        m = -(-x.shape[1] // self.l)
        return unblock(blocks(x, self.l, m)[:, :, self.l - self.c :], m * self.c)


class Random(_Sparse):
    """Blocks of b: a query's own and its neighbours, the first of all, and r at random.

    Causal: of those, the earlier ones. Otherwise the first block's queries see everything, too.
    Block i's random blocks are floor(u m) of the m there are to choose from (causal: those before
    i; else the real ones of the sequence), u from row i of default_rng(seed).random((., r)),
    float32; what the pattern has already is not seen twice. All heads share the pattern.
    """

    b: int
    r: int
    seed: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        b, T = self.b, q.shape[1]
        n, m = -(-T // b), -(-k.shape[1] // b)
        after = 0 if visibility.causal else 1
        block = along(1, 4, jnp.arange(n))
        near = b * block + along(3, 4, jnp.arange(-b, (1 + after) * b))
        first = along(3, 4, jnp.arange(b))
        i = jnp.arange(n)[None]
        real = -(-visibility.kv_lengths[:, None] // b)
        j, drawn = self._random(i, jnp.minimum(i, m) if visibility.causal else real)
        j, drawn = (jnp.broadcast_to(x, (q.shape[0], n, self.r)) for x in (j, drawn))
        far = (b * j[..., None] + along(3, 4, jnp.arange(b))).reshape(*j.shape[:2], 1, -1)
        always = jnp.ones((1, 1, 1, 1), bool)
        sets = [
            Keys("nsh", around(k, b, n, after), around(v, b, n, after), near, always),
            Keys("sh", blocks(k, b, 1)[:, 0], blocks(v, b, 1)[:, 0], first, block > 1),
            Keys("nsh", _take(k, b, j), _take(v, b, j), far, _spread(drawn, b)),
        ]
        out = unblock(attend(blocks(q, b, n), sets, visibility, drop, bias), T)
        if visibility.causal:
            return out
        everything = weighted(
            scaled("bthd,bshd->bhts", q[:, :b], k),
            v.swapaxes(1, 2),
            visibility,
            drop=drop,
            bias=bias,
        )
        return jnp.concatenate([everything, out[:, b:]], axis=1)

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        b, i = self.b, t // self.b
        near = (i - 1) * b + jnp.arange(2 * b)
        j, drawn = self._random(i[None, None], i[None, None], -(-S // b))
        far = (b * j[0, 0, :, None] + jnp.arange(b)[None]).reshape(-1)
        exist = [near >= 0, jnp.broadcast_to(i > 1, b), _spread(drawn, b)[0, 0, 0]]
        return jnp.concatenate([near, jnp.arange(b), far]), jnp.concatenate(exist)

    def _random(self, i: Array, there: Array, n: int | None = None) -> tuple[Array, Array]:
        """The random blocks [B, I, r] of blocks i [1, I], and which of them are new to each.

        Args:
          there: blocks to choose from, [B or 1, I or 1].
          n: what i is below; as many as there are if not given.
        """
        u = np.random.default_rng(self.seed).random((n or i.shape[1], self.r)).astype(np.float32)
        j = jnp.floor(jnp.asarray(u)[i] * there[..., None]).astype(jnp.int32)
        j = jnp.minimum(j, there[..., None] - 1)
        new = (j > 0) & (jnp.abs(j - i[..., None]) > 1)
        again = (j[..., :, None] == j[..., None, :]) & np.tri(self.r, k=-1, dtype=bool)[None, None]
        return j, new & ~again.any(-1)


def _take(x: Array, b: int, j: Array) -> Array:
    """Blocks j [B, n, r] of length b of x [B, S, ...] -> [B, n, r b, ...]."""
    x = blocks(x, b, -(-x.shape[1] // b))
    taken = jax.vmap(lambda x, j: jnp.take(x, j, axis=0, mode="clip"))(x, j)
    return taken.reshape(*j.shape[:2], -1, *x.shape[3:])


def _spread(x: Array, b: int) -> Array:
    """[B, n, r] -> [B, n, 1, r b]: of each block, for each of its keys."""
    return jnp.repeat(x, b, axis=-1)[:, :, None]
