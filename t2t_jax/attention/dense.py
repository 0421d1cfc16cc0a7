"""Attention as a softmax over all pairs, for the mechanisms that are dense by nature."""

import jax
import jax.numpy as jnp

from t2t_jax.attention.mechanism import Bias, Drop, Mechanism, State, put
from t2t_jax.attention.visibility import Visibility, blank


def softmax(scores: jax.Array, seen: jax.Array) -> jax.Array:
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
    scores: jax.Array,
    v: jax.Array,
    visibility: Visibility,
    first: jax.Array | int = 0,
    drop: Drop = None,
    bias: Bias = None,
) -> jax.Array:
    """Weighted sum [B, T, h, d_v] of v [B, S, h, d_v] by the softmax of scores [B, h, T, S].

    Args:
      first: the position of the first query.
      drop: dropout of the weights, which the paper does without.
    """
    t = (first + jnp.arange(scores.shape[2]))[None, :, None]
    s = jnp.arange(v.shape[1])[None, None, :]
    if bias is not None:
        scores += bias((s - t)[0])[None]
    a = softmax(scores, visibility.allows(t, s)[:, None])
    if drop is not None:
        a = drop(a)
    return jnp.einsum("bhts,bshd->bthd", a.astype(v.dtype), v)


class Dense(Mechanism):
    """softmax(scores(q, keys(k))) v: mechanisms that differ in their scores alone."""

    def keys(self, k: jax.Array) -> jax.Array:
        """What scores and decoding need of the keys [B, S, h, d_k]: [B, S, h, ...]."""
        return k

    def scores(self, q: jax.Array, keys: jax.Array) -> jax.Array:
        """Scores [B, h, T, S], in float32 or wider."""
        raise NotImplementedError

    def rows(
        self,
        q: jax.Array,
        keys: jax.Array,
        v: jax.Array,
        visibility: Visibility,
        first: jax.Array | int = 0,
        drop: Drop = None,
        bias: Bias = None,
    ) -> jax.Array:
        """Queries at positions first, first + 1, ... over all keys -> [B, T, h, d_v]."""
        return weighted(self.scores(q, keys), v, visibility, first, drop, bias)

    def attend(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        visibility: Visibility,
        drop: Drop,
        bias: Bias,
    ) -> jax.Array:
        return self.rows(q, self.keys(k), v, visibility, 0, drop, bias)

    def start(self, k: jax.Array, v: jax.Array, visibility: Visibility) -> State:
        """The keys and values, and for cross-attention how many are real."""
        lengths = visibility.kv_lengths
        k, v = blank(k, lengths), blank(v, lengths)
        known = {"k": self.keys(k), "v": v}
        return known if visibility.causal else known | {"lengths": lengths}

    def step(
        self,
        state: State,
        q: jax.Array,
        t: jax.Array,
        k: jax.Array | None = None,
        v: jax.Array | None = None,
        bias: Bias = None,
    ) -> tuple[jax.Array, State]:
        if k is None or v is None:
            visibility = Visibility(kv_lengths=state["lengths"])
            return self.rows(q, state["k"], state["v"], visibility), state
        state = {"k": put(state["k"], self.keys(k), t), "v": put(state["v"], v, t)}
        causal = Visibility(causal=True)
        return self.rows(q, state["k"], state["v"], causal, t, bias=bias), state
