"""A sliding window and a few keys that every query sees, in O(n (w + g)).

Attention sinks: Xiao et al. (2024), "Efficient Streaming Language Models with Attention Sinks"
(StreamingLLM), section 3.2. Global attention: Beltagy et al. (2020), "Longformer", section 3.1.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import (
    blocks,
    on_axis,
    take_positions,
    unblock,
    with_neighbours,
)
from t2t_jax.attention.costs import window_block
from t2t_jax.attention.dense import single_query
from t2t_jax.attention.local import ring
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, write_at
from t2t_jax.attention.sparse import Keys, attend, with_global
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.patterns import Window
from t2t_jax.ops.sparse_attention import Keys as FusedKeys
from t2t_jax.ops.sparse_attention import has_kernel, sparse_attention

_BEYOND = 2**30  # beyond every distance


class Streaming(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the keys within distance w and the first g keys.

    The first g are the attention sinks. Causal: only earlier keys, and decoding stores w + 1 + g of
    them. Positions are those in the sequence; Xiao et al. count them among the stored keys.

    Attributes:
      w: the largest distance.
      g: the number of keys at the start that every query sees.
      block: the minimum length of a block, which is w if w is larger.
    """

    grouped: ClassVar[bool] = True
    w: int
    g: int
    block: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        T = q.shape[1]
        b = window_block(self.w, self.block, T, k.shape[1])
        n, after = -(-T // b), 0 if visibility.causal else 1
        start = b * on_axis(1, 4, jnp.arange(n))
        t = start + on_axis(2, 4, jnp.arange(b))
        near = start + on_axis(3, 4, jnp.arange(-b, (1 + after) * b))
        first = on_axis(3, 4, jnp.arange(self.g))
        windows = [with_neighbours(x, b, n, after) for x in (k, v)]
        sets = [
            Keys("nsh", windows[0], windows[1], near, jnp.abs(near - t) <= self.w),
            Keys("sh", self._first(k), self._first(v), first, jnp.abs(first - t) > self.w),
        ]
        return unblock(attend(blocks(q, b, n), sets, visibility, dropout, bias), T)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """Two sets of keys: those of the window, and the first g at larger distances."""
        if not has_kernel(q, v):
            return None
        w, causal = self.w, visibility.causal
        lengths = visibility.with_lengths(q, k).q_lengths
        first = FusedKeys(k[:, : self.g], v[:, : self.g], jnp.minimum(lengths, self.g))
        patterns = (Window(w, causal),), (Window(_BEYOND, causal, w + 1),)
        sets = FusedKeys(k, v, lengths), first
        return sparse_attention(q, lengths, sets, patterns, q.shape[-1] ** -0.5)[0]

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """A ring of the last w + 1 keys and values, p in slot p mod (w + 1), and the first g.

        The ring has fewer slots if there are fewer positions.
        """
        lengths = visibility.with_lengths(k, k).kv_lengths
        positions = ring(lengths[:, None] - 1, min(self.w, k.shape[1]) + 1)
        state: State = {}
        for name, x in (("k", zero_padding(k, lengths)), ("v", zero_padding(v, lengths))):
            state |= {name: take_positions(x, positions), f"{name}_first": self._first(x)}
        return state

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        after, size = State(), state["k"].shape[1]
        for name, new in (("k", k), ("v", v)):
            first = state[f"{name}_first"]
            after[name] = write_at(state[name], new, t % size)
            after[f"{name}_first"] = jnp.where(t < self.g, write_at(first, new, t), first)
        last, first = ring(t[None, None], size)[0], jnp.arange(self.g)
        seen = jnp.concatenate([last >= 0, first < t - self.w])[None]
        distance = jnp.concatenate([last, first])[None] - t
        keys, values = (jnp.concatenate([after[n], after[f"{n}_first"]], axis=1) for n in "kv")
        return single_query(q, keys, values, seen, distance, bias), after

    def _first(self, x: Array) -> Array:
        """The first g positions of x [B, S, h, d], zero if there are fewer."""
        return blocks(x, self.g, 1)[:, 0]


class Longformer(Streaming):
    """`Streaming` whose first g queries see every key: global attention of the first g positions.

    Causal: the same as `Streaming`, as no query sees a later key. The window has w keys on either
    side; that of Beltagy et al. has w / 2. They have separate projections for global attention,
    which here uses those of the window.
    """

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        out = super().attend(q, k, v, visibility, dropout, bias)
        if visibility.causal:
            return out
        return with_global(self.g, out, q, k, v, visibility, dropout, bias)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        out = super().fused(q, k, v, visibility)
        if out is None or visibility.causal:
            return out
        visibility = visibility.with_lengths(q, k)
        q, k, v = (zero_padding(x, visibility.kv_lengths) for x in (q, k, v))
        out = with_global(self.g, out, q, k, v, visibility, None, None)
        return zero_padding(out, visibility.q_lengths)  # which also zeroes the gradient of padding
