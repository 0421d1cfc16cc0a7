"""The engine of sparse patterns, in O(n (window + kept keys)): a `Reach` decides what it computes.

Keys are read in disjoint sets, whose scores are concatenated under one softmax: those near a query,
the kept ones, those at multiples of a stride, and those of random blocks. In training, queries are
cut into blocks, each of which reads its own block of keys and the neighbouring ones.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import blocks, on_axis, scaled_products, take_positions, unblock
from t2t_jax.attention.dense import single_query, softmax, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, write_at
from t2t_jax.attention.reach import Predicate, Reach
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.patterns import Pattern as TilePattern
from t2t_jax.ops.patterns import Reached, ranges, table, tile_of
from t2t_jax.ops.sparse_attention import TILE, has_kernel, sparse_attention
from t2t_jax.ops.sparse_attention import Keys as FusedKeys


class Keys(NamedTuple):
    """A set of keys for queries in n blocks of b.

    Attributes:
      letters: the axes of k and v after the batch and before d, in an einsum whose queries have the
        axes n q h d; s is the axis of the keys.
      k, v: the keys and values.
      s: positions of the keys, int32 [B or 1, n or 1, b or 1, K].
      seen: bool of the same axes, whether a query sees the key in this set.
    """

    letters: str
    k: Array
    v: Array
    s: Array
    seen: Array


class Pattern(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the keys that a `Reach` allows; causal: no later key."""

    grouped: ClassVar[bool] = True

    reach: Reach

    def has_kernel(self) -> bool:
        return type(self) is Pattern

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        r, (B, T) = self.reach.parts, q.shape[:2]
        if r == 1:
            return self._attend(q, k, v, visibility, dropout, bias)
        rows, keys = (_of_parts(n, r) for n in (visibility.q_lengths, visibility.kv_lengths))
        of_part = Visibility(rows.reshape(-1), keys.reshape(-1), visibility.causal)
        spread = None if bias is None else lambda distance: bias(r * distance)
        q, k, v = (_parts(x, r).swapaxes(1, 2) for x in (q, k, v))
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
        return self._with_rows(out, q, k, v, visibility, dropout, bias)

    def _with_rows(
        self,
        out: Array,
        q: Array,
        k: Array,
        v: Array,
        visibility: Visibility,
        dropout: Dropout,
        bias: Bias,
    ) -> Array:
        """The outputs [B, T, h, d_v]; the first queries attend to all keys."""
        rows = self.reach.rows
        scores = scaled_products("bthd,bshd->bhts", q[:, :rows], k)
        first = weighted_sum(scores, v.swapaxes(1, 2), visibility, dropout=dropout, bias=bias)
        return jnp.concatenate([first, out[:, rows:]], axis=1)

    def _near(self, k: Array, v: Array, t: Array, b: int, near: int, causal: bool) -> Keys:
        """The keys of a block of b queries and of its neighbours that are in no other set."""
        after, n = 0 if causal else near, t.shape[1]
        s = b * on_axis(1, 4, jnp.arange(n)) + on_axis(3, 4, jnp.arange(-near * b, (1 + after) * b))

        def of_blocks(x: Array) -> Array:
            shifted = [blocks(x, b, n, shift) for shift in range(-near, after + 1)]
            return jnp.concatenate(shifted, axis=2)

        r = self.reach.parts
        return Keys("nsh", of_blocks(k), of_blocks(v), s, near_alone(self.reach, r * t, r * s))

    def _kept(self, k: Array, v: Array, t: Array) -> Keys:
        columns = self.reach.columns(k.shape[1])
        s = on_axis(3, 4, jnp.asarray(columns))
        return Keys("sh", _take(k, columns), _take(v, columns), s, self.reach.sees(t, s))

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
        """Parts, and positions at multiples of a stride, are more heads, which avoids a copy."""
        reach, (B, T, h, _), causal = self.reach, q.shape, visibility.causal
        g = tile_of(reach.block) if reach.r else TILE
        if not g or not has_kernel(q, v):
            return None
        visibility = visibility.with_lengths(q, k)
        lengths, r = (visibility.q_lengths, visibility.kv_lengths), reach.parts
        if r > 1:
            rows, keys = (jnp.repeat(_of_parts(n, r), h, axis=1) for n in lengths)
            q, k, v = (_parts(x, r).reshape(B, -1, r * h, x.shape[-1]) for x in (q, k, v))
            out, _ = self._tiled(q, k, v, Visibility(rows, keys, causal), g)
            return unblock(out.reshape(B, -1, r, h, v.shape[-1]), T)
        out, log_z = self._tiled(q, k, v, visibility, g)
        if reach.stride:
            out = _together((out, log_z), self._tiled_multiples(q, k, v, visibility))
        if causal or not reach.rows:
            return out
        q, k, v = (
            zero_padding(x, n) for x, n in ((q, lengths[0]), (k, lengths[1]), (v, lengths[1]))
        )
        out = self._with_rows(out, q, k, v, visibility, None, None)
        return zero_padding(out, lengths[0])  # which also zeroes the gradient of padding

    def _tiled(
        self, q: Array, k: Array, v: Array, visibility: Visibility, g: int
    ) -> tuple[Array, Array]:
        """The near, kept and random keys by a kernel, and the log-sum-exp of their scores."""
        reach, T, S, causal = self.reach, q.shape[1], k.shape[1], visibility.causal
        r, lengths = reach.parts, visibility.kv_lengths

        def pattern(seen: Predicate, s: np.ndarray, ends: Reached) -> TilePattern:
            return TilePattern(_causal(seen) if causal else seen, s, ranges(T, g, s, ends))

        near = pattern(
            lambda t, s: near_alone(reach, r * t, r * s),
            np.arange(S),
            lambda first, last: reach.ends(first, last, causal),
        )
        if reach.r:
            blocks = random_blocks(reach, visibility, -(-T // reach.block), S)
            blocks = jnp.where(self._all_seen(blocks), -1, blocks)
            listed = table(blocks, reach.block, g, T, S)
            of_list = TilePattern(lambda t, s: ~reach.sees(t, s), b=reach.block)
            sets = [FusedKeys(k, v, lengths, listed)]
            patterns: list[tuple[TilePattern, ...]] = [(near, of_list)]
        else:
            sets, patterns = [FusedKeys(k, v, lengths)], [(near,)]
        columns = reach.columns(S)
        if len(columns):
            sets.append(FusedKeys(_take(k, columns), _take(v, columns), lengths))
            patterns.append((pattern(reach.sees, columns, _all_keys(causal)),))
        scale = q.shape[-1] ** -0.5
        return sparse_attention(q, visibility.q_lengths, tuple(sets), tuple(patterns), scale, g)

    def _tiled_multiples(
        self, q: Array, k: Array, v: Array, visibility: Visibility
    ) -> tuple[Array, Array]:
        """The keys at multiples of the stride, likewise."""
        reach, (B, T, h, d_k), causal = self.reach, q.shape, visibility.causal
        l = reach.stride
        rows, keys = (
            jnp.repeat(_of_parts(x, l), h, axis=1)
            for x in (visibility.q_lengths, visibility.kv_lengths)
        )
        q, k, v = (_parts(x, l).reshape(B, -1, l * h, x.shape[-1]) for x in (q, k, v))
        n, s = q.shape[1], np.arange(k.shape[1])
        g = next(g for g in (16, 32, TILE) if g >= min(n, TILE))

        def seen(t: Array, s: Array) -> Array:
            return reach.sees(l * t, l * s) & ((s <= t) | (not causal))

        pattern = TilePattern(seen, s, ranges(n, g, s, _all_keys(causal)))
        sets = (FusedKeys(k, v, keys),)
        out, log_z = sparse_attention(q, rows, sets, ((pattern,),), d_k**-0.5, g)
        out = unblock(out.reshape(B, n, l, h, -1), T)
        return out, log_z.reshape(B, l, h, n).transpose(0, 2, 3, 1).reshape(B, h, n * l)[:, :, :T]

    def _all_seen(self, j: Array) -> Array:
        """Whether all keys of random blocks j [B, n, r] are seen by `reach.sees`."""
        b, i = self.reach.block, jnp.arange(j.shape[1])[None, :, None]
        t = b * i[..., None, None] + on_axis(3, 5, jnp.arange(b))
        s = b * j[..., None, None] + on_axis(4, 5, jnp.arange(b))
        return self.reach.sees(t, s).all((-2, -1))

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values that later steps may see.

        Causal: a ring of the last ones, position p in slot p mod its size, and the kept ones; or
        all, if a step may see any. Otherwise all of them, and their lengths before the padding.
        """
        reach, S = self.reach, k.shape[1]
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        if not visibility.causal:
            return {"k": k, "v": v, "lengths": lengths}
        if reach.stride or reach.r:
            return {"k": k, "v": v}
        last = _ring(lengths[:, None] - 1, min(reach.window * reach.parts + 1, S))
        state = {"k": take_positions(k, last), "v": take_positions(v, last)}
        if len(columns := reach.columns(S)):
            state |= {"k_kept": _take(k, columns), "v_kept": _take(v, columns)}
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
        seen = near_alone(reach, t, s)
        if "k_kept" in state:
            columns = jnp.asarray(reach.first_columns(state["k_kept"].shape[1]))
            keys, values = (
                jnp.concatenate([x, state[f"{n}_kept"]], axis=1)
                for n, x in (("k", keys), ("v", values))
            )
            seen = jnp.concatenate([seen, reach.sees(t, columns)])
            s = jnp.concatenate([s, columns])
        return keys, values, s, seen

    def _sets(self, t: Array, S: int) -> tuple[Array, Array]:
        """The positions that query t reads of all S, int32 [K], and which of them it sees."""
        reach, b = self.reach, self.reach.block
        near = t - jnp.arange(min(reach.window + 1, S))
        columns = jnp.asarray(reach.columns(S))
        sets = [(near, near_alone(reach, t, near)), (columns, reach.sees(t, columns))]
        if reach.stride:
            s = t - b * jnp.arange(-(-S // b))
            sets.append((s, reach.sees(t, s)))
        if reach.r:
            i = t // b
            j = _draw(jnp.asarray(reach.uniform(-(-S // b)))[i], i[None])
            s = (b * j[:, None] + jnp.arange(b)[None]).reshape(-1)
            sets.append((s, ~reach.sees(t, s)))
        positions, seen = (jnp.concatenate(x) for x in zip(*sets, strict=True))
        return positions, seen

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        reach, S = self.reach, state["k"].shape[1]
        if reach.kept or reach.stride or reach.r or reach.rows:
            raise ValueError(
                "Cross-attention decodes only patterns of near keys: leave it to them."
            )
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


def _causal(seen: Predicate) -> Predicate:
    return lambda t, s: seen(t, s) & (s <= t)


def _all_keys(causal: bool) -> Reached:
    """The first and the last key that some queries may see if distance does not matter."""
    return lambda first, last: (0, last if causal else np.iinfo(np.int32).max)


def _together(*parts: tuple[Array, Array]) -> Array:
    """The outputs [B, T, h, d_v] of one softmax from two parts: outputs and log-sum-exps."""
    total = jnp.logaddexp(*(log_z for _, log_z in parts))
    return sum(
        (
            out * jnp.exp(log_z - total).swapaxes(1, 2)[..., None].astype(out.dtype)
            for out, log_z in parts
        ),
        start=jnp.zeros((), parts[0][0].dtype),
    )


def near_alone(reach: Reach, t: Array, s: Array) -> Array:
    """Whether the query at t sees the key at s, which is neither kept nor at a multiple."""
    seen = reach.sees(t, s)
    if reach.kept:
        seen &= ~reach.kept(s)
    if reach.stride:
        seen &= s % reach.stride != t % reach.stride
    return seen


def random_blocks(reach: Reach, visibility: Visibility, n: int, S: int) -> Array:
    """The random blocks of S keys [B, n, r] that n blocks of queries see; -1 is none."""
    i, lengths = jnp.arange(n)[None], visibility.kv_lengths
    if visibility.causal:
        candidates = jnp.broadcast_to(jnp.minimum(i, -(-S // reach.block)), (len(lengths), n))
    else:
        candidates = jnp.broadcast_to(-(-lengths[:, None] // reach.block), (len(lengths), n))
    return _draw(jnp.asarray(reach.uniform(n))[None], candidates[..., None])


def _draw(u: Array, m: Array) -> Array:
    """floor(u m) of random numbers [..., r], each block once; -1 is none."""
    j = jnp.minimum(jnp.floor(u * m).astype(jnp.int32), m - 1)
    earlier = np.tri(j.shape[-1], k=-1, dtype=bool)
    again = (j[..., :, None] == j[..., None, :]) & jnp.expand_dims(
        earlier, tuple(range(j.ndim - 1))
    )
    return jnp.where(again.any(-1), -1, j)


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
    if len(sets) > 1:
        seen = [
            jnp.broadcast_to(x, (*y.shape[:2], 1, *y.shape[3:]))
            for x, y in zip(seen, scores, strict=True)
        ]
    a = softmax(jnp.concatenate(scores, -1), jnp.concatenate(seen, -1))
    if dropout is not None:
        a = dropout(a)
    parts = jnp.split(a.astype(q.dtype), np.cumsum([x.shape[-1] for x in scores])[:-1], axis=-1)
    sums = (_products("znhqs", part, x, x.v, "znqhd") for part, x in zip(parts, sets, strict=True))
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


def _parts(x: Array, r: int) -> Array:
    """x [B, L, h, d] -> [B, n, r, h, d], part p in column p."""
    return blocks(x, r, -(-x.shape[1] // r))


def _of_parts(lengths: Array, r: int) -> Array:
    """The length of every part, [B, r]."""
    return (jnp.maximum(lengths[:, None] - jnp.arange(r)[None], 0) + r - 1) // r


def _ring(last: Array, size: int) -> Array:
    """The position in each slot if `last` [B, 1] is the newest; negative if there is none."""
    return last - (last - jnp.arange(size)[None]) % size


def _take(x: Array, columns: np.ndarray) -> Array:
    """x [B, S, ...] at positions that are known when it is compiled, each once."""
    return x.at[:, columns].get(unique_indices=True, indices_are_sorted=True, mode="clip")
