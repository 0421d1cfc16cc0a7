"""Attention within a window around a predicted position, in O(n w): local-p (Luong et al. 2015)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks, on_axis, unblock
from t2t_jax.attention.dense import scaled_products, softmax
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, repeat_heads, wide
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility


class LocalPredictive(Mechanism):
    """local-p (Luong et al. 2015, equations 9 and 10): the centre of the window is predicted.

    The centre is p_t = S sigmoid(v_p^T tanh(W_p q)), where S is the length before the padding and q
    the query of the head. The weights of the keys within distance w of p_t are the softmax of their
    scaled dot products, multiplied by a Gaussian of standard deviation w / 2. They do not sum to 1.
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
        x = wide(q)
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

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values, and their lengths before the padding."""
        return {"k": k, "v": v, "lengths": visibility.kv_lengths}

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        k, v = (repeat_heads(state[n], q.shape[2]) for n in "kv")
        visibility = Visibility(kv_lengths=state["lengths"]).with_lengths(q, k)
        return self.attend(q, k, v, visibility, None, bias)


def _take_per_head(x: Array, s: Array) -> Array:
    """x [B, S, h, d] at positions s [B, T, h, K] of each head -> [B, T, h, K, d]."""
    B, T, h, K = s.shape
    s = jnp.clip(s, 0, x.shape[1] - 1).swapaxes(2, 3).reshape(B, T * K, h, 1)
    return jnp.take_along_axis(x, s, axis=1).reshape(B, T, K, h, -1).swapaxes(2, 3)
