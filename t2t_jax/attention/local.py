"""Attention within a window around a predicted position, in O(n w): local-p (Luong et al. 2015)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import on_axis
from t2t_jax.attention.gathered import attend_listed
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
        # If p is rounded, keys at the edges of the window enter or leave it.
        x = wide(q)
        d_k = q.shape[-1]
        hidden = jnp.tanh(jnp.einsum("bthd,hde->bthe", x, self.W_p(x, d_k, d_k)))
        logits = jnp.einsum("bthe,he->bth", hidden, self.v_p(x, d_k))
        p = (visibility.kv_lengths[:, None, None] * jax.nn.sigmoid(logits))[..., None]
        s = jnp.ceil(p - self.w).astype(jnp.int32) + on_axis(3, 4, jnp.arange(2 * self.w + 1))
        gaussian = jnp.exp(-2 * ((s - p) / self.w) ** 2)
        s = jnp.where(jnp.abs(s - p) <= self.w, s, -1)
        return attend_listed(q, k, v, s, visibility, self.tile, factors=gaussian)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values, and their lengths before the padding."""
        return {"k": k, "v": v, "lengths": visibility.kv_lengths}

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        k, v = (repeat_heads(state[n], q.shape[2]) for n in "kv")
        visibility = Visibility(kv_lengths=state["lengths"]).with_lengths(q, k)
        return self.attend(q, k, v, visibility, None, bias)
