"""Attention to a list of keys for each query and head, for patterns that depend on the queries."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import blocks, unblock
from t2t_jax.attention.dense import scaled_products, softmax
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, wide, write_at
from t2t_jax.attention.visibility import Visibility, length_mask


def attend_listed(
    q: Array,
    k: Array,
    v: Array,
    s: Array,
    visibility: Visibility,
    tile: int,
    first: Array | int = 0,
    factors: Array | None = None,
) -> Array:
    """softmax(q k^T / sqrt(d_k)) v over the keys at positions s -> [B, T, h, d_v].

    Args:
      q, k, v: [B, T, h, d_k], [B, S, h, d_k] and [B, S, h, d_v].
      s: int32 [B, T, h, K], each position once; negative where there is no key.
      tile: queries whose keys are gathered at once; the backward pass gathers them again.
      first: the position of the first query.
      factors: [B, T, h, K], by which the weights are multiplied.
    """
    T = q.shape[1]
    k, v = wide(k), wide(v)  # their gradients sum many terms

    @jax.checkpoint
    def attend_tile(q: Array, s: Array, t: Array, factors: Array | None = None) -> Array:
        scores = scaled_products("bthd,bthkd->bthk", q, _take(k, s).astype(q.dtype))
        a = softmax(scores, visibility.allows(t[:, :, None, None], s))
        a = a if factors is None else a * factors
        return jnp.einsum("bthk,bthkd->bthd", a.astype(q.dtype), _take(v, s).astype(q.dtype))

    if tile >= T:
        return attend_tile(q, s, first + jnp.arange(T)[None], factors)
    n = -(-T // tile)
    every = (q, s) if factors is None else (q, s, factors)
    q, s, *more = (blocks(x, tile, n).swapaxes(0, 1) for x in every)
    t = first + jnp.arange(n * tile).reshape(n, 1, tile)
    out = jax.lax.map(lambda x: attend_tile(*x), (q, s, t, *more))
    return unblock(out.swapaxes(0, 1), T)


def _take(x: Array, s: Array) -> Array:
    """x [B, S, h, d] at positions s [B, T, h, K] of each head -> [B, T, h, K, d]."""

    def of_head(x: Array, s: Array) -> Array:
        return jnp.take(x, s, axis=0, mode="clip")

    return jax.vmap(jax.vmap(of_head, 1, 1))(x, s)


class BlockSelect(Mechanism):
    """The query's own block of b keys, and the n other blocks with the highest scores.

    This is MoBA, "Mixture of Block Attention for Long-Context LLMs" (Lu et al. 2025, section 2.2),
    in O(T S / b + T n b). In `native_sparse`, the key of a block is a learned function of its keys.

    Causal: earlier blocks only. The score of a block is the dot product of the query with the mean
    of the block's keys before the padding; of two blocks with equal scores, the earlier is taken.
    Each head selects its own blocks. No gradient passes through the selection. The top-k of Lu et
    al. includes the query's own block, so that their k is n + 1.
    """

    b: int
    n: int
    tile: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("block_select", dropout=dropout, bias=bias)
        sums, t = self._sums(k), jnp.arange(q.shape[1])
        start = self.b * jnp.arange(sums.shape[1])[None]
        counts = jnp.clip(visibility.kv_lengths[:, None] - start, 0, self.b)
        s = self._select(q, sums, counts, t // self.b, visibility.causal)
        return attend_listed(q, k, v, s, visibility, self.tile)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of all positions, and the sums of the keys of each block."""
        return {"k": k, "v": v, "sums": self._sums(k)}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse("block_select", bias=bias)
        own, sums = t // self.b, state["sums"]
        after = {n: write_at(state[n], x, t) for n, x in (("k", k), ("v", v))}
        after["sums"] = sums.at[:, own].add(k[:, 0].astype(sums.dtype))
        counts = jnp.full(sums.shape[:2], self.b)  # of earlier blocks, which are complete
        s = self._select(q, after["sums"], counts, own[None], True)
        out = attend_listed(q, after["k"], after["v"], s, Visibility(causal=True), self.tile, t)
        return out, after

    def _sums(self, k: Array) -> Array:
        """The sums of the keys [B, S, h, d_k] over each of m blocks, [B, m, h, d_k]."""
        dtype = jnp.promote_types(k.dtype, jnp.float32)
        return blocks(k, self.b, -(-k.shape[1] // self.b)).sum(2, dtype=dtype)

    def _select(self, q: Array, sums: Array, counts: Array, own: Array, causal: bool) -> Array:
        """Positions of the keys that queries [B, T, h, d_k] in blocks `own` [T] see.

        They are int32 [B, T, h, (1 + n) b], negative where there is no such block. The keys of each
        block have the sum `sums` [B, m, h, d_k] and the number `counts` [B, m].
        """
        (B, T, h, _), m = q.shape, sums.shape[1]
        means = sums / jnp.maximum(counts, 1)[:, :, None, None]
        q, means = jax.lax.stop_gradient((q.astype(sums.dtype), means))
        block, mine = jnp.arange(m)[None], own[:, None]
        others = (block < mine if causal else block != mine)[None] & (counts > 0)[:, None]
        scores = jnp.einsum("bthd,bmhd->bthm", q, means)
        scores = jnp.where(others[:, :, None], scores, -jnp.inf)
        scores, best = jax.lax.top_k(scores, min(self.n, m))
        best = jnp.where(scores > -jnp.inf, best, -1)
        own = jnp.broadcast_to(own[None, :, None, None], (B, T, h, 1))
        selected = jnp.concatenate([own, best], -1)
        s = self.b * selected[..., None] + jnp.arange(self.b)[None, None, None, None]
        return s.reshape(B, T, h, -1)


class LSH(Mechanism):
    """A query sees its own position and, in each of r rounds, the c nearest keys of its bucket.

    The buckets are of a random hash, after Kitaev et al. (2020), "Reformer", section 2.

    Causal: the last c up to the query. Otherwise, also the first c after it. The bucket of x is the
    argmax of the first b elements of [x R; -x R]. R [d_k, ceil(b / 2)] is Gaussian; for head i and
    round j it is default_rng(seed).normal(size=(h, r, d_k, ceil(b / 2)))[i, j]. One softmax is
    taken over the union of the keys of all rounds (equation 6 of Kitaev et al.).

    Differences from Kitaev et al.: Their keys are the queries divided by their length; here q and k
    differ and are not normalised, and the same R hashes both. Their positions see themselves only
    if they see no other. They sort the positions by bucket and cut them into chunks, whose ends
    depend on later positions; the nearest c keys do not, so that decoding equals the causal call.
    Their code draws R in every step; here it is drawn once.
    """

    b: int
    c: int
    r: int
    seed: int
    tile: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("lsh", dropout=dropout, bias=bias)
        T, S = q.shape[1], k.shape[1]
        present = length_mask(visibility.kv_lengths, S)[:, None, None]
        of_q, of_k = self._buckets(q), jnp.where(present, self._buckets(k), self.b)
        size, t = max(T, S), jnp.arange(T)
        # Numbers that sort by bucket and then by position.
        keys = jnp.sort(of_k * size + jnp.arange(S)[None, None, None])
        search = _on_rows(lambda x, y: jnp.searchsorted(x, y, side="right"))
        end = search(keys, of_q * size + t[None, None, None])
        near = jnp.arange(-self.c, 0 if visibility.causal else self.c)
        index = end[..., None] + near[None, None, None, None]
        listed = _on_rows(lambda x, i: jnp.take(x, i, mode="clip"))(keys, index)
        exist = (index >= 0) & (index < S) & (listed // size == of_q[..., None])
        s = _once(jnp.where(exist, listed % size, -1), t)
        return attend_listed(q, k, v, s, visibility, self.tile)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys, the values and the buckets of all positions."""
        return {"k": k, "v": v, "buckets": self._buckets(k)}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse("lsh", bias=bias)
        after = {n: write_at(state[n], x, t) for n, x in (("k", k), ("v", v))}
        after["buckets"] = write_at(state["buckets"], self._buckets(k), t, 3)
        s = jnp.arange(after["k"].shape[1])[None, None, None]
        same = (after["buckets"] == self._buckets(q)) & (s <= t)
        last, _ = jax.lax.top_k(jnp.where(same, s, -1), min(self.c, s.shape[-1]))
        s = _once(last[..., None, :], t[None])
        out = attend_listed(q, after["k"], after["v"], s, Visibility(causal=True), self.tile, t)
        return out, after

    def _buckets(self, x: Array) -> Array:
        """The buckets [B, h, r, L] of queries or keys [B, L, h, d_k]."""
        h, d_k = x.shape[2:]
        x = wide(x)
        R = np.random.default_rng(self.seed).normal(size=(h, self.r, d_k, -(-self.b // 2)))
        projected = jnp.einsum("blhd,hrdm->bhrlm", x, jnp.asarray(R, x.dtype))
        return jnp.concatenate([projected, -projected], -1)[..., : self.b].argmax(-1)


def _on_rows(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The function f of vectors, mapped over the axes B, h and r of arrays [B, h, r, ...]."""
    return jax.vmap(jax.vmap(jax.vmap(f)))


def _once(s: Array, t: Array) -> Array:
    """Positions [B, h, r, T, c] of all rounds and t [T]: [B, T, h, r c + 1], -1 for repeats."""
    B, h, _, T, _ = s.shape
    s = jnp.moveaxis(s, 3, 1).reshape(B, T, h, -1)
    own = jnp.broadcast_to(t[None, :, None, None], (B, T, h, 1))
    s = jnp.sort(jnp.concatenate([s, own], -1))
    again = s[..., 1:] == s[..., :-1]
    return jnp.concatenate([s[..., :1], jnp.where(again, -1, s[..., 1:])], -1)
