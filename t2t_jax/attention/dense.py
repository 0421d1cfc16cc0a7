"""Dense attention, a weight for every pair of a query and a key: the engine, and dot products.

Scaled dot-product attention is the paper's (section 3.2.1).
"""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.mechanism import (
    Bias,
    Dropout,
    Mechanism,
    State,
    repeat_heads,
    wide,
    write_at,
)
from t2t_jax.attention.visibility import Visibility
from t2t_jax.ops.flash_attention import MAX_WIDTH, flash_attention


def scaled_products(equation: str, q: Array, k: Array, power: float = 0.5) -> Array:
    """An einsum over d_k, the last axis, divided by d_k^power, in float32 or wider."""
    dtype = jnp.promote_types(q.dtype, jnp.float32)
    products = jnp.einsum(equation, q, k, preferred_element_type=dtype)
    if power == 0.5:
        return products / jnp.sqrt(q.shape[-1]).astype(dtype)
    return products / q.shape[-1] ** power if power else products


def softmax(scores: Array, seen: Array) -> Array:
    """Weights over the last axis of scores, in float32 or wider; zero where `seen` is false."""
    scores = wide(scores)
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    # The maximum cancels in the quotient, so that no gradient passes through it.
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    # Masked once more: if nothing is seen, all scores are equal and exp would be 1 everywhere.
    exponentials = jnp.where(seen, jnp.exp(scores - largest), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0, total, 1)


def weighted_sum(
    scores: Array,
    v: Array,
    visibility: Visibility,
    first: Array | int = 0,
    dropout: Dropout = None,
    bias: Bias = None,
    weights: Callable[[Array, Array], Array] = softmax,
) -> Array:
    """The sum [B, T, h, d_v] of v [B, h, S, d_v], by the weights of scores [B, h, T, S].

    The first query is at position `first`; `weights` maps scores and what is seen to weights.
    """
    t = (first + jnp.arange(scores.shape[2]))[None, :, None]
    s = jnp.arange(v.shape[2])[None, None, :]
    if bias is not None:
        scores += bias((s - t)[0])[None]
    a = weights(scores, visibility.allows(t, s)[:, None])  # [B, h, T, S]
    if dropout is not None:
        a = dropout(a)
    return jnp.einsum("bhts,bhsd->bthd", a.astype(v.dtype), v)


def single_query(
    q: Array, k: Array, v: Array, seen: Array, distance: Array, bias: Bias = None
) -> Array:
    """One query [B, 1, h, d_k] over keys [B, K, h or h_kv, d_k] -> [B, 1, h, d_v].

    Args:
      seen: bool [B or 1, K], the keys that it sees.
      distance: int32 [1, K], the position of each key minus the position of the query.
    """
    k, v = (repeat_heads(x, q.shape[2]) for x in (k, v))
    scores = scaled_products("bqhd,bkhd->bhqk", q, k)
    if bias is not None:
        scores += bias(distance)[None]
    a = softmax(scores, seen[:, None, None])
    return jnp.einsum("bhqk,bkhd->bqhd", a.astype(v.dtype), v)


class Dense(Mechanism):
    """weights(scores(q, keys(k))) v: the mechanisms that differ in their scores or weights alone.

    Keys and values are stored with the length after the heads, [B, h, S, ...], the layout that the
    matmuls of a head read; otherwise, every decoding step would transpose them.
    """

    grouped: ClassVar[bool] = True  # unless `keys` depends on the head of the query

    def keys(self, k: Array, s: Array) -> Array:
        """What `scores` reads of keys [B, S, h, d_k] at positions s, int32 [S]: [B, h, S, ...]."""
        return k.swapaxes(1, 2)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        """Scores [B, h, T, S], float32 or wider, of q [B, T, h, d_k] at t [T] and keys at s [S]."""
        raise NotImplementedError

    def weights(self, scores: Array, seen: Array) -> Array:
        """Weights from scores [B, h, T, S]; zero where `seen`, bool [B or 1, 1, T, S], is false."""
        return softmax(scores, seen)

    def rows(
        self,
        q: Array,
        keys: Array,
        v: Array,
        visibility: Visibility,
        first: Array | int = 0,
        dropout: Dropout = None,
        bias: Bias = None,
    ) -> Array:
        """Queries at positions first, first + 1, ... over all keys -> [B, T, h, d_v]."""
        keys, v = (repeat_heads(x, q.shape[2], 1) for x in (keys, v))
        t, s = first + jnp.arange(q.shape[1]), jnp.arange(v.shape[2])
        scores = self.scores(q, keys, t, s)
        return weighted_sum(scores, v, visibility, first, dropout, bias, self.weights)

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        keys = self.keys(k, jnp.arange(k.shape[1]))
        return self.rows(q, keys, v.swapaxes(1, 2), visibility, 0, dropout, bias)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values; for cross-attention also their lengths before the padding."""
        known = {"k": self.keys(k, jnp.arange(k.shape[1])), "v": v.swapaxes(1, 2)}
        return known if visibility.causal else known | {"lengths": visibility.kv_lengths}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        k, v = self.keys(k, t[None]), v.swapaxes(1, 2)
        state = {"k": write_at(state["k"], k, t, 2), "v": write_at(state["v"], v, t, 2)}
        causal = Visibility(causal=True)
        return self.rows(q, state["k"], state["v"], causal, t, bias=bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        visibility = Visibility(kv_lengths=state["lengths"])
        return self.rows(q, state["k"], state["v"], visibility, t, bias=bias)


class DotProduct(Dense):
    """softmax(q k^T) v: "dot" of Luong et al. (2015, section 3.1)."""

    power = 0.0

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        return scaled_products("bthd,bhsd->bhts", q, keys, self.power)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        return flash(q, k, v, visibility, q.shape[-1] ** -self.power)


class ScaledDotProduct(DotProduct):
    """softmax(q k^T / d_k^power) v (equation 1).

    The power is 0.5 in the paper, and 1 in muP (Yang et al. 2022, definition 4.1).
    """

    power: float = 0.5
    fused = DotProduct.fused


def flash(q: Array, k: Array, v: Array, visibility: Visibility, scale: float) -> Array | None:
    """Attention by `ops.flash_attention`; None if it does not support the arguments."""
    if max(q.shape[-1], v.shape[-1]) > MAX_WIDTH:
        return None
    visibility = visibility.with_lengths(q, k)
    lengths = visibility.q_lengths, visibility.kv_lengths
    return flash_attention(q, k, v, *lengths, visibility.causal, scale)
