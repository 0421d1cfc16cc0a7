"""Attention as a softmax over all pairs, for the mechanisms that are dense by nature."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import scaled
from t2t_jax.attention.mechanism import Bias, Drop, Mechanism, State, put
from t2t_jax.attention.visibility import Visibility, blank


def softmax(scores: Array, seen: Array) -> Array:
    """Weights over the last axis of scores, in float32 or wider: zeros for keys not seen.

    Args:
      seen: bool, broadcastable to scores.
    """
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    exponentials = jnp.where(seen, jnp.exp(scores - largest), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0, total, 1)


def weighted(
    scores: Array,
    v: Array,
    visibility: Visibility,
    first: Array | int = 0,
    drop: Drop = None,
    bias: Bias = None,
) -> Array:
    """Weighted sum [B, T, h, d_v] of v [B, h, S, d_v] by the softmax of scores [B, h, T, S].

    Args:
      first: the position of the first query.
      drop: dropout of the weights, which the paper does without.
    """
    t = (first + jnp.arange(scores.shape[2]))[None, :, None]
    s = jnp.arange(v.shape[2])[None, None, :]
    if bias is not None:
        scores += bias((s - t)[0])[None]
    a = softmax(scores, visibility.allows(t, s)[:, None])
    if drop is not None:
        a = drop(a)
    return jnp.einsum("bhts,bhsd->bthd", a.astype(v.dtype), v)


def one(q: Array, k: Array, v: Array, seen: Array, after: Array, bias: Bias = None) -> Array:
    """A single query [B, 1, h, d_k] over keys [B, K, h, d_k] -> [B, 1, h, d_v].

    Args:
      seen: bool [B or 1, K], of which keys it sees.
      after: int32 [1, K], how far after the query each stands.
    """
    scores = scaled("bqhd,bkhd->bhqk", q, k)
    if bias is not None:
        scores += bias(after)[None]
    a = softmax(scores, seen[:, None, None])
    return jnp.einsum("bhqk,bkhd->bqhd", a.astype(v.dtype), v)


class Dense(Mechanism):
    """softmax(scores(q, keys(k))) v: mechanisms that differ in their scores alone.

    Keys and values have the length behind the heads, [B, h, S, ...], as products of a head read
    them: a step of decoding would otherwise transpose them every time.
    """

    def keys(self, k: Array, s: Array) -> Array:
        """What scores need of the keys [B, S, h, d_k] at positions s, int32 [S]: [B, h, S, ...]."""
        return k.swapaxes(1, 2)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        """Scores [B, h, T, S], in float32 or wider.

        Args:
          t, s: positions of the queries and keys, int32 [T] and [S].
        """
        raise NotImplementedError

    def rows(
        self,
        q: Array,
        keys: Array,
        v: Array,
        visibility: Visibility,
        first: Array | int = 0,
        drop: Drop = None,
        bias: Bias = None,
    ) -> Array:
        """Queries at positions first, first + 1, ... over all keys -> [B, T, h, d_v]."""
        t, s = first + jnp.arange(q.shape[1]), jnp.arange(v.shape[2])
        return weighted(self.scores(q, keys, t, s), v, visibility, first, drop, bias)

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        keys = self.keys(k, jnp.arange(k.shape[1]))
        return self.rows(q, keys, v.swapaxes(1, 2), visibility, 0, drop, bias)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values, and for cross-attention how many are real."""
        lengths = visibility.kv_lengths
        k, v = blank(k, lengths), blank(v, lengths)
        known = {"k": self.keys(k, jnp.arange(k.shape[1])), "v": v.swapaxes(1, 2)}
        return known if visibility.causal else known | {"lengths": lengths}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        k, v = self.keys(k, t[None]), v.swapaxes(1, 2)
        state = {"k": put(state["k"], k, t, 2), "v": put(state["v"], v, t, 2)}
        causal = Visibility(causal=True)
        return self.rows(q, state["k"], state["v"], causal, t, bias=bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        visibility = Visibility(kv_lengths=state["lengths"])
        return self.rows(q, state["k"], state["v"], visibility, t, bias=bias)
