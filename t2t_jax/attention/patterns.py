"""The engine of sparse patterns, in O(n (window + kept keys)): a `Reach` decides what it computes.

Keys are read in disjoint sets, whose scores share one softmax: keys near a query, kept keys, keys
at multiples of a stride, and random blocks of keys. In training, queries are cut into blocks, each
of which reads its own block of keys and the neighbouring ones.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention import pattern_kernels
from t2t_jax.attention.blocks import (
    blocks,
    cut_parts,
    draw_blocks,
    of_parts,
    on_axis,
    random_blocks,
    take_columns,
    take_positions,
    unblock,
)
from t2t_jax.attention.dense import scaled_products, single_query, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, write_at
from t2t_jax.attention.reach import Reach
from t2t_jax.attention.visibility import Visibility, zero_padding


class Keys(NamedTuple):
    """A set of keys for queries in n blocks of b.

    `letters` are the axes of k and v after the batch and before d, in an einsum whose queries have
    the axes n q h d; s is the axis of the keys.
    """

    letters: str
    k: Array
    v: Array
    s: Array  # positions of the keys, int32 [B or 1, n or 1, b or 1, K]
    seen: Array  # bool of the same axes, whether a query sees the key in this set


class Pattern(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the keys that a `Reach` allows; causal: no later key."""

    grouped: ClassVar[bool] = True
    power: ClassVar[float] = 0.5

    reach: Reach

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        r, (B, T) = self.reach.parts, q.shape[:2]
        if r == 1:
            return self._attend(q, k, v, visibility, dropout, bias)
        rows, keys = (of_parts(n, r) for n in (visibility.q_lengths, visibility.kv_lengths))
        first = visibility.first
        if first is not None:  # position i of part p is i r + p
            first = -((jnp.arange(r)[None, None] - cut_parts(first[..., None], r)[..., 0]) // r)
            first = first.swapaxes(1, 2).reshape(B * r, -1)
        of_part = Visibility(rows.reshape(-1), keys.reshape(-1), visibility.causal, first)
        spread = None if bias is None else lambda distance: bias(r * distance)
        q, k, v = (cut_parts(x, r).swapaxes(1, 2) for x in (q, k, v))
        q, k, v = (x.reshape(B * r, *x.shape[2:]) for x in (q, k, v))
        out = self._attend(q, k, v, of_part, dropout, spread)
        return unblock(out.reshape(B, r, *out.shape[1:]).swapaxes(1, 2), T)

    def _attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        """`attend` within one part."""
        reach, T, causal = self.reach, q.shape[1], visibility.causal
        b, near = reach.blocks(T, k.shape[1])
        n = -(-T // b)
        t = b * on_axis(1, 4, jnp.arange(n)) + on_axis(2, 4, jnp.arange(b))
        sets = [self._near(k, v, t, b, near, causal)]
        if reach.kept:
            sets.append(self._kept(k, v, t))
        if reach.stride:
            sets.append(self._strided(k, v, t, b))
        if reach.r:
            sets.append(self._random(k, v, t, visibility))
        out = unblock(_softmax(blocks(q, b, n), t, sets, visibility, dropout, bias), T)
        if causal or not reach.rows:
            return out
        return self._with_rows(out, q, k, v, visibility, dropout=dropout, bias=bias)

    def _with_rows(
        self, out: Array, q: Array, k: Array, v: Array, visibility: Visibility, **rest: Any
    ) -> Array:
        """The outputs [B, T, h, d_v]; the first queries attend to all keys."""
        rows = self.reach.rows
        scores = scaled_products("bthd,bshd->bhts", q[:, :rows], k)
        first = weighted_sum(scores, v.swapaxes(1, 2), visibility, **rest)
        return jnp.concatenate([first, out[:, rows:]], axis=1)

    def _near(self, k: Array, v: Array, t: Array, b: int, near: int, causal: bool) -> Keys:
        """The keys of a block of b queries and of its neighbours that are in no other set."""
        after, n = 0 if causal else near, t.shape[1]
        s = b * on_axis(1, 4, jnp.arange(n)) + on_axis(3, 4, jnp.arange(-near * b, (1 + after) * b))

        def of_blocks(x: Array) -> Array:
            shifted = [blocks(x, b, n, shift) for shift in range(-near, after + 1)]
            return jnp.concatenate(shifted, axis=2)

        r = self.reach.parts
        return Keys("nsh", of_blocks(k), of_blocks(v), s, self.reach.near_alone(r * t, r * s))

    def _kept(self, k: Array, v: Array, t: Array) -> Keys:
        columns = self.reach.columns(k.shape[1])
        s = on_axis(3, 4, jnp.asarray(columns))
        k, v = take_columns(k, columns), take_columns(v, columns)
        return Keys("sh", k, v, s, self.reach.sees(t, s))

    def _strided(self, k: Array, v: Array, t: Array, l: int) -> Keys:
        m = -(-k.shape[1] // l)
        s = on_axis(2, 4, jnp.arange(l)) + l * on_axis(3, 4, jnp.arange(m))
        seen = self.reach.sees(t, s) & (s % self.reach.stride == t % self.reach.stride)
        return Keys("sqh", blocks(k, l, m), blocks(v, l, m), s, seen)

    def _random(self, k: Array, v: Array, t: Array, visibility: Visibility) -> Keys:
        b, n, S = self.reach.block, t.shape[1], k.shape[1]
        j = random_blocks(self.reach, visibility, n, S)
        s = (b * j[..., None] + on_axis(3, 4, jnp.arange(b))).reshape(*j.shape[:2], 1, -1)

        def of_blocks(x: Array) -> Array:
            x = blocks(x, b, -(-S // b))
            taken = jax.vmap(lambda x, j: jnp.take(x, j, axis=0, mode="clip"))(x, j)
            return taken.reshape(*j.shape[:2], -1, *x.shape[3:])

        return Keys("nsh", of_blocks(k), of_blocks(v), s, ~self.reach.sees(t, s))

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        out = pattern_kernels.attend(self.reach, q, k, v, visibility)
        if out is None or visibility.causal or not self.reach.rows:
            return out
        visibility = visibility.with_lengths(q, k)
        k, v = (zero_padding(x, visibility.kv_lengths) for x in (k, v))
        q = zero_padding(q, visibility.q_lengths)
        out = self._with_rows(out, q, k, v, visibility)
        return zero_padding(out, visibility.q_lengths)  # also zeroes the gradient of padding

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values that later steps may see.

        Causal: a ring of the last ones, position p in slot p mod its size, and the kept ones; or
        all, if a step may see any. Otherwise all of them, and their lengths before the padding.
        """
        reach, S = self.reach, k.shape[1]
        lengths = visibility.kv_lengths
        if not visibility.causal:
            return {"k": k, "v": v, "lengths": lengths}
        if reach.stride or reach.r:
            return {"k": k, "v": v}
        last = _ring(lengths[:, None] - 1, min(reach.window * reach.parts + 1, S))
        state = {"k": take_positions(k, last), "v": take_positions(v, last)}
        if len(columns := reach.columns(S)):
            state |= {"k_kept": take_columns(k, columns), "v_kept": take_columns(v, columns)}
        return state

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        reach, new, after = self.reach, {"k": k, "v": v}, dict(state)
        for name, x in new.items():
            after[name] = write_at(state[name], x, t % state[name].shape[1])
        if reach.kept and "k_kept" in state:
            slot = (reach.first_columns(state["k_kept"].shape[1]) < t).sum()
            for name, x in new.items():
                kept = state[f"{name}_kept"]
                written = write_at(kept, x, slot)
                after[f"{name}_kept"] = jnp.where(reach.kept(t), written, kept)
        keys, values, s, seen = self._stored(after, t)
        seen &= (s >= 0) & (s <= t)
        return single_query(q, keys, values, seen[None], (s - t)[None], bias), after

    def _stored(self, state: State, t: Array) -> tuple[Array, Array, Array, Array]:
        """What query t reads of a causal state: keys, values, their positions, and which it sees.

        Keys that are not yet known, and those before position 0, are not excluded.
        """
        reach, size = self.reach, state["k"].shape[1]
        if reach.stride or reach.r:
            s, seen = self._sets(t, size)
            keys, values = (jnp.take(state[n], s, axis=1, mode="clip") for n in "kv")
            return keys, values, s, seen
        keys, values = state["k"], state["v"]
        s = _ring(t[None, None], size)[0]
        if reach.parts > 1:  # only a part of the ring is of this sequence
            s = t - reach.parts * jnp.arange((size - 1) // reach.parts + 1)
            keys, values = (jnp.take(x, s % size, axis=1) for x in (keys, values))
        seen = reach.near_alone(t, s)
        if "k_kept" in state:
            columns = jnp.asarray(reach.first_columns(state["k_kept"].shape[1]))
            keys = jnp.concatenate([keys, state["k_kept"]], axis=1)
            values = jnp.concatenate([values, state["v_kept"]], axis=1)
            seen = jnp.concatenate([seen, reach.sees(t, columns)])
            s = jnp.concatenate([s, columns])
        return keys, values, s, seen

    def _sets(self, t: Array, S: int) -> tuple[Array, Array]:
        """The positions that query t reads of all S, int32 [K], and which of them it sees."""
        reach, b = self.reach, self.reach.block
        near = t - jnp.arange(min(reach.window + 1, S))
        columns = jnp.asarray(reach.columns(S))
        sets = [(near, reach.near_alone(t, near)), (columns, reach.sees(t, columns))]
        if reach.stride:
            s = t - b * jnp.arange(-(-S // b))
            sets.append((s, reach.sees(t, s)))
        if reach.r:
            i = t // b
            j = draw_blocks(jnp.asarray(reach.uniform(-(-S // b)))[i], i[None])
            s = (b * j[:, None] + jnp.arange(b)[None]).reshape(-1)
            sets.append((s, ~reach.sees(t, s)))
        positions, seen = (jnp.concatenate(x) for x in zip(*sets, strict=True))
        return positions, seen

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        reach, S = self.reach, state["k"].shape[1]
        if reach.parts == 1:
            size = min(2 * reach.window + 1, S)
            first = jnp.clip(t - reach.window, 0, S - size)
            s = first + jnp.arange(size)
            k, v = (jax.lax.dynamic_slice_in_dim(state[n], first, size, axis=1) for n in "kv")
        else:
            s = t + reach.parts * jnp.arange(-reach.window, reach.window + 1)
            k, v = (jnp.take(state[n], s, axis=1, mode="clip") for n in "kv")
        seen = (s >= 0)[None] & (s[None] < state["lengths"][:, None]) & reach.sees(t, s)[None]
        return single_query(q, k, v, seen, (s - t)[None], bias)


def _softmax(
    q: Array, t: Array, sets: Sequence[Keys], visibility: Visibility, dropout: Dropout, bias: Bias
) -> Array:
    """Queries [B, n, b, h, d_k] at t [1, n, b, 1] over disjoint sets -> [B, n, b, h, d_v]."""
    scores, seen = [], []
    for x in sets:
        products = _products("znqhd", q, x, x.k, "znhqs", scaled_products)
        if bias is not None:
            products += jnp.moveaxis(bias(x.s - t), 0, 2)
        scores.append(products)
        seen.append((visibility.allows(t, x.s) & x.seen)[:, :, None])
    # One softmax over disjoint sets: no key is counted twice. Sets are not concatenated, which
    # would copy the scores.
    lowest = jnp.finfo(scores[0].dtype).min
    scores = [jnp.where(x, y, lowest) for x, y in zip(seen, scores, strict=True)]
    largest = reduce(jnp.maximum, (x.max(-1, keepdims=True, initial=lowest) for x in scores))
    largest = jax.lax.stop_gradient(largest)
    a = [jnp.where(x, jnp.exp(y - largest), 0) for x, y in zip(seen, scores, strict=True)]
    total = reduce(add, (x.sum(-1, keepdims=True) for x in a))
    a = [x / jnp.where(total > 0, total, 1) for x in a]
    if dropout is not None:
        edges = np.cumsum([x.shape[-1] for x in a])[:-1]
        a = jnp.split(dropout(jnp.concatenate(a, -1)), edges, axis=-1)
    sums = (
        _products("znhqs", x.astype(q.dtype), keys, keys.v, "znqhd")
        for x, keys in zip(a, sets, strict=True)
    )
    return reduce(add, sums)


def _products(
    axes: str, x: Array, keys: Keys, y: Array, result: str, einsum: Any = jnp.einsum
) -> Array:
    """The products of x [B, n, ...] with the keys or values y of a set, as an einsum.

    A block that has keys of its own is a row of the batch: XLA then makes fewer copies.
    """
    if keys.letters != "nsh":
        return einsum(f"{axes},z{keys.letters}d->{result}", x, y)
    rows = (z.reshape(-1, *z.shape[2:]) for z in (x, y))
    out = einsum(f"{axes},znshd->{result}".replace("n", ""), *rows)
    return out.reshape(*x.shape[:2], *out.shape[1:])


def _ring(last: Array, size: int) -> Array:
    """The position in each slot if `last` [B, 1] is the newest; negative if there is none."""
    return last - (last - jnp.arange(size)[None]) % size
