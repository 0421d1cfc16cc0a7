"""Attention within buckets of a random hash, after Kitaev et al. (2020), "Reformer", section 2."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention import gathered
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, write_at
from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding


class LSH(Mechanism):
    """A query sees its own position and, in each of r rounds, the c nearest keys of its bucket.

    Causal: the last c up to the query. Otherwise, also the first c after it. The bucket of x is the
    argmax of the first b elements of [x R; -x R]. R [d_k, ceil(b / 2)] is Gaussian; for head i and
    round j it is default_rng(seed).normal(size=(h, r, d_k, ceil(b / 2)))[i, j]. One softmax is
    taken over the union of the keys of all rounds (equation 6 of Kitaev et al.).

    Differences from Kitaev et al.: Their keys are the queries divided by their length; here q and k
    differ and are not normalised, and the same R hashes both. Their positions see themselves only
    if they see no other. They sort the positions by bucket and cut them into chunks, whose ends
    depend on later positions; the nearest c keys do not, so that decoding equals the causal call.
    Their code draws R in every step; here it is drawn once.

    Attributes:
      b: the number of buckets.
      c: the number of keys of a bucket on either side of the query.
      r: the number of rounds.
      tile: the number of queries whose keys are gathered at once.
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
        end = _on_rows(lambda x, y: jnp.searchsorted(x, y, side="right"))(
            keys, of_q * size + t[None, None, None]
        )
        near = jnp.arange(-self.c, 0 if visibility.causal else self.c)
        index = end[..., None] + near[None, None, None, None]
        listed = _on_rows(lambda x, i: jnp.take(x, i, mode="clip"))(keys, index)
        exist = (index >= 0) & (index < S) & (listed // size == of_q[..., None])
        s = _once(jnp.where(exist, listed % size, -1), t)
        return gathered.attend(q, k, v, s, visibility, self.tile)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys, the values and the buckets of all positions."""
        lengths = visibility.kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        return {"k": k, "v": v, "buckets": self._buckets(k)}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse("lsh", bias=bias)
        after = {
            "k": write_at(state["k"], k, t),
            "v": write_at(state["v"], v, t),
            "buckets": write_at(state["buckets"], self._buckets(k), t, 3),
        }
        s = jnp.arange(after["k"].shape[1])[None, None, None]
        same = (after["buckets"] == self._buckets(q)) & (s <= t)
        last, _ = jax.lax.top_k(jnp.where(same, s, -1), min(self.c, s.shape[-1]))
        s = _once(last[..., None, :], t[None])
        causal = Visibility(causal=True)
        return gathered.attend(q, after["k"], after["v"], s, causal, self.tile, t), after

    def _buckets(self, x: Array) -> Array:
        """The buckets [B, h, r, L] of queries or keys [B, L, h, d_k]."""
        h, d_k = x.shape[2:]
        wide = jnp.promote_types(x.dtype, jnp.float32)
        R = np.random.default_rng(self.seed).normal(size=(h, self.r, d_k, -(-self.b // 2)))
        projected = jnp.einsum("blhd,hrdm->bhrlm", x.astype(wide), jnp.asarray(R, wide))
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
