"""Attention within parts of a sequence, computed as if each part were a sequence of its own.

Dilated windows: Beltagy et al. (2020), "Longformer", section 3.1, after the dilated convolutions
of WaveNet (van den Oord et al. 2016). Blocks: the one-dimensional local attention of Parmar et al.
(2018), "Image Transformer", with no memory beyond the block of queries; also the identity
permutation of Qiu et al. (2020), "Blockwise Self-Attention".
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks, scaled_products, take_positions, unblock
from t2t_jax.attention.dense import single_query, weighted_sum
from t2t_jax.attention.local import Local, ring
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, write_at
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.patterns import Near
from t2t_jax.ops.sparse_attention import Keys, has_kernel, sparse_attention
from t2t_jax.ops.window_attention import window_attention


class Dilated(Local):
    """softmax(q k^T / sqrt(d_k)) v over the keys at distances 0, r, ..., w r; causal: no later one.

    The positions t with the same t mod r are a sequence of their own, with a window of w.

    Attributes:
      r: the dilation.
    """

    r: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        B, T, h, _ = q.shape
        rows, keys = (self._lengths(x) for x in (visibility.q_lengths, visibility.kv_lengths))
        of_part = Visibility(rows.reshape(-1), keys.reshape(-1), visibility.causal)
        spread = None if bias is None else lambda distance: bias(self.r * distance)
        q, k, v = (self._parts(x).swapaxes(1, 2) for x in (q, k, v))
        q, k, v = (x.reshape(B * self.r, *x.shape[2:]) for x in (q, k, v))
        out = super().attend(q, k, v, of_part, dropout, spread)
        return unblock(out.reshape(B, self.r, -1, h, v.shape[-1]).swapaxes(1, 2), T)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """The parts are treated as more heads, which avoids a copy."""
        if not has_kernel(q, v):
            return None
        B, T, h, d_k = q.shape
        visibility, causal = visibility.with_lengths(q, k), visibility.causal
        lengths = (self._lengths(x) for x in (visibility.q_lengths, visibility.kv_lengths))
        rows, keys = (jnp.repeat(x, h, axis=1) for x in lengths)
        q, k, v = (self._parts(x).reshape(B, -1, self.r * h, x.shape[-1]) for x in (q, k, v))
        out, _ = window_attention(q, k, v, rows, keys, self.w, causal, d_k**-0.5)
        return unblock(out.reshape(B, -1, self.r, h, v.shape[-1]), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """Causal: a ring of the last w r + 1 keys and values, position p in slot p mod (w r + 1).

        It has fewer slots if there are fewer positions.
        Otherwise all of them, and their lengths before the padding.
        """
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        if not visibility.causal:
            return {"k": k, "v": v, "lengths": lengths}
        positions = ring(lengths[:, None] - 1, min(self.w * self.r, k.shape[1]) + 1)
        return {"k": take_positions(k, positions), "v": take_positions(v, positions)}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        size = state["k"].shape[1]
        state = {n: write_at(state[n], x, t % size) for n, x in (("k", k), ("v", v))}
        s = t - self.r * jnp.arange((size - 1) // self.r + 1)
        keys, values = (jnp.take(state[n], s % size, axis=1) for n in "kv")
        return single_query(q, keys, values, (s >= 0)[None], (s - t)[None], bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        s = (t + self.r * jnp.arange(-self.w, self.w + 1))[None]
        keys, values = (jnp.take(state[n], s[0], axis=1, mode="clip") for n in "kv")
        seen = (s >= 0) & (s < state["lengths"][:, None])
        return single_query(q, keys, values, seen, s - t, bias)

    def _parts(self, x: Array) -> Array:
        """x [B, L, h, d] -> [B, n, r, h, d], part p in column p."""
        return blocks(x, self.r, -(-x.shape[1] // self.r))

    def _lengths(self, lengths: Array) -> Array:
        """The length of every part, [B, r]."""
        return (jnp.maximum(lengths[:, None] - jnp.arange(self.r)[None], 0) + self.r - 1) // self.r


class BlockLocal(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the query's own block of b keys; causal: no later key."""

    grouped: ClassVar[bool] = True
    b: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        B, T, h, _ = q.shape
        b = min(self.b, T)
        n = -(-T // b)
        start = b * jnp.arange(n)[None]
        rows, keys = (
            jnp.clip(x[:, None] - start, 0, b).reshape(-1)
            for x in (visibility.q_lengths, visibility.kv_lengths)
        )
        of_block = Visibility(rows, keys, visibility.causal)
        q, k, v = (blocks(x, b, n).reshape(B * n, b, h, -1) for x in (q, k, v))
        scores = scaled_products("bthd,bshd->bhts", q, k)
        out = weighted_sum(scores, v.swapaxes(1, 2), of_block, dropout=dropout, bias=bias)
        return unblock(out.reshape(B, n, b, h, -1), T)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        if not has_kernel(q, v):
            return None
        lengths, pattern = (
            visibility.with_lengths(q, k).q_lengths,
            Near(self.b, 0, visibility.causal),
        )
        sets = (Keys(k, v, lengths),)
        return sparse_attention(q, lengths, sets, ((pattern,),), q.shape[-1] ** -0.5)[0]

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of the next position's block."""
        lengths = visibility.with_lengths(k, k).kv_lengths
        own = (lengths // self.b * self.b)[:, None] + jnp.arange(min(self.b, k.shape[1]))[None]
        known = (("k", zero_padding(k, lengths)), ("v", zero_padding(v, lengths)))
        return {name: take_positions(x, own) for name, x in known}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        slot, slots = t % self.b, jnp.arange(state["k"].shape[1])
        state = {n: write_at(state[n], x, slot) for n, x in (("k", k), ("v", v))}
        seen, distance = (slots <= slot)[None], (slots - slot)[None]
        return single_query(q, state["k"], state["v"], seen, distance, bias), state
