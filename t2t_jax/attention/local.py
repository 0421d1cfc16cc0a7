"""Attention within a window, in O(n w): sliding, local-m and local-p (Luong et al. 2015)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import (
    blocks,
    on_axis,
    scaled_products,
    take_positions,
    unblock,
    with_neighbours,
)
from t2t_jax.attention.costs import window_block
from t2t_jax.attention.dense import single_query, softmax
from t2t_jax.attention.mechanism import (
    Bias,
    Dropout,
    Mechanism,
    State,
    refuse,
    repeat_heads,
    write_at,
)
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.sparse_attention import has_kernel
from t2t_jax.ops.window_attention import window_attention


class Local(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the keys within distance w; causal: no later key.

    Between two sequences it is local-m (Luong et al. 2015, section 3.2), whose window is centred at
    the query's own position. Within one it is the sliding window of Longformer (Beltagy et al.
    2020, section 3.1). Queries are cut into blocks, each of which reads its own block of keys and
    the neighbouring ones.

    Attributes:
      w: the largest distance.
      block: the minimum length of a block, which is w if w is larger.
    """

    grouped: ClassVar[bool] = True

    w: int
    block: int

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        if not has_kernel(q, v):
            return None
        visibility, scale = visibility.with_lengths(q, k), q.shape[-1] ** -0.5
        lengths = visibility.q_lengths, visibility.kv_lengths
        return window_attention(q, k, v, *lengths, self.w, visibility.causal, scale)[0]

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        T = q.shape[1]
        b = window_block(self.w, self.block, T, k.shape[1])
        n = -(-T // b)
        after = 0 if visibility.causal else 1
        q = blocks(q, b, n)
        k, v = with_neighbours(k, b, n, after), with_neighbours(v, b, n, after)
        start = b * on_axis(1, 4, jnp.arange(n))
        t = start + on_axis(2, 4, jnp.arange(b))
        s = start + on_axis(3, 4, jnp.arange(-b, (1 + after) * b))
        scores = scaled_products("bnqhd,bnkhd->bnhqk", q, k)
        if bias is not None:
            scores += bias((s - t)[0, 0])[None, None]
        seen = visibility.allows(t, s) & (jnp.abs(s - t) <= self.w)
        a = softmax(scores, seen[:, :, None])
        if dropout is not None:
            a = dropout(a)
        return unblock(jnp.einsum("bnhqk,bnkhd->bnqhd", a.astype(v.dtype), v), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """Causal: a ring of the last w + 1 keys and values, position p in slot p mod (w + 1).

        It has fewer slots if there are fewer positions.
        Otherwise all of them with w zeros on either side, and their lengths before the padding.
        """
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        if not visibility.causal:
            width = ((0, 0), (self.w, self.w), (0, 0), (0, 0))
            return {"k": jnp.pad(k, width), "v": jnp.pad(v, width), "lengths": lengths}
        positions = ring(lengths[:, None] - 1, min(self.w, k.shape[1]) + 1)
        return {name: take_positions(x, positions) for name, x in (("k", k), ("v", v))}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        size = state["k"].shape[1]
        slot = t % size
        state = {"k": write_at(state["k"], k, slot), "v": write_at(state["v"], v, slot)}
        s = ring(jnp.full((1, 1), t), size)
        return single_query(q, state["k"], state["v"], s >= 0, s - t, bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        size = 2 * self.w + 1
        first = jnp.minimum(t, state["k"].shape[1] - size)
        k, v = (jax.lax.dynamic_slice_in_dim(state[n], first, size, axis=1) for n in "kv")
        s = first - self.w + jnp.arange(size)[None]
        seen = (s >= 0) & (s < state["lengths"][:, None]) & (jnp.abs(s - t) <= self.w)
        return single_query(q, k, v, seen, s - t, bias)


def ring(last: Array, size: int) -> Array:
    """The position in each slot if `last` [B, 1] is the newest; negative if there is none."""
    return last - (last - jnp.arange(size)[None]) % size


class LocalPredictive(Mechanism):
    """local-p (Luong et al. 2015, equations 9 and 10): the centre of the window is predicted.

    The centre is p_t = S sigmoid(v_p^T tanh(W_p q)), where S is the length before the padding and q
    the query of the head. The weights of the keys within distance w of p_t are the softmax of their
    scaled dot products, multiplied by a Gaussian of standard deviation w / 2. They do not sum to 1.

    Attributes:
      w: the largest distance.
      tile: the number of queries whose keys are gathered at once; the backward pass gathers them
        again.
    """

    grouped: ClassVar[bool] = True

    w: int
    tile: int

    def setup(self) -> None:
        self.W_p = PerHead(("d_k", "d_hidden"))
        self.v_p = PerHead(("d_hidden",))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("local_p", dropout=dropout, bias=bias, causality=visibility.causal)
        T = q.shape[1]
        # If p is rounded, keys at the edges of the window enter or leave it.
        x = q.astype(jnp.promote_types(q.dtype, jnp.float32))
        d_k = q.shape[-1]
        hidden = jnp.tanh(jnp.einsum("bthd,hde->bthe", x, self.W_p(x, d_k, d_k)))
        logits = jnp.einsum("bthe,he->bth", hidden, self.v_p(x, d_k))
        lengths = visibility.kv_lengths[:, None, None]
        p = lengths * jax.nn.sigmoid(logits)
        k, v = k.astype(x.dtype), v.astype(x.dtype)  # their gradients sum many terms

        @jax.checkpoint
        def attend_tile(q: Array, p: Array, present: Array) -> Array:
            s = jnp.ceil(p - self.w).astype(jnp.int32)[..., None]
            s += on_axis(3, 4, jnp.arange(2 * self.w + 1))
            seen = (s >= 0) & (s < lengths[..., None]) & (jnp.abs(s - p[..., None]) <= self.w)
            scores = scaled_products("bthd,bthkd->bthk", q, _take_per_head(k, s).astype(q.dtype))
            a = softmax(scores, seen & present[..., None])
            a *= jnp.exp(-2 * ((s - p[..., None]) / self.w) ** 2)
            values = _take_per_head(v, s).astype(q.dtype)
            return jnp.einsum("bthk,bthkd->bthd", a.astype(q.dtype), values)

        n = -(-T // self.tile)
        t = jnp.arange(T)[None, :, None]
        tiled = [
            blocks(x, min(T, self.tile), n).swapaxes(0, 1)
            for x in (q, p, t < visibility.q_lengths[:, None, None])
        ]
        out = jax.lax.map(lambda x: attend_tile(*x), tiled)
        return unblock(out.swapaxes(0, 1), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values, and their lengths before the padding."""
        lengths = visibility.with_lengths(k, k).kv_lengths
        return {"k": zero_padding(k, lengths), "v": zero_padding(v, lengths), "lengths": lengths}

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        k, v = (repeat_heads(state[n], q.shape[2]) for n in "kv")
        visibility = Visibility(kv_lengths=state["lengths"]).with_lengths(q, k)
        return self.attend(q, k, v, visibility, None, bias)


def _take_per_head(x: Array, s: Array) -> Array:
    """x [B, S, h, d] at positions s [B, T, h, K] of each head -> [B, T, h, K, d]."""
    B, T, h, K = s.shape
    s = jnp.clip(s, 0, x.shape[1] - 1).swapaxes(2, 3).reshape(B, T * K, h, 1)
    return jnp.take_along_axis(x, s, axis=1).reshape(B, T, K, h, -1).swapaxes(2, 3)
