"""Additive attention (Bahdanau et al. 2015, appendix A.1.2): scores v^T tanh(W_q q + W_k k)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import Dense, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout, refuse
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility
from t2t_jax.ops.additive_scores import additive_scores


class Additive(Dense):
    """softmax(v^T tanh(W_q q + W_k k)) v with d_k hidden features.

    Attributes:
      tile: the number of queries whose scores [B, h, tile, S] are in memory at once; the backward
        pass recomputes them.
    """

    grouped: ClassVar[bool] = False

    tile: int

    def setup(self) -> None:
        self.W_q = PerHead(("d_k", "d_hidden"))
        self.W_k = PerHead(("d_k", "d_hidden"))
        self.v = PerHead(("d_hidden",))

    def keys(self, k: Array, s: Array) -> Array:
        """W_k k, computed once for each key."""
        return _project(k, self.W_k).swapaxes(1, 2)

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
        refuse("additive", dropout=dropout)
        B, T, h, d = q.shape
        u = self.v(q, d)
        a = _project(q, self.W_q).swapaxes(1, 2)
        a, c, u = (jnp.moveaxis(x, -1, 0) for x in (a, keys, u))  # [d, B, h, T], [d, B, h, S]

        @jax.checkpoint
        def attend_tile(a: Array, first: Array | int) -> Array:
            return weighted_sum(additive_scores(a, c, u), v, visibility, first, bias=bias)

        if self.tile >= T:
            return attend_tile(a, first)
        tiles = -(-T // self.tile)
        a = jnp.pad(a, ((0, 0), (0, 0), (0, 0), (0, tiles * self.tile - T)))
        a = jnp.moveaxis(a.reshape(d, B, h, tiles, self.tile), 3, 0)
        out = jax.lax.map(lambda x: attend_tile(*x), (a, first + self.tile * jnp.arange(tiles)))
        return out.swapaxes(0, 1).reshape(B, tiles * self.tile, h, -1)[:, :T]


def _project(x: Array, W: PerHead) -> Array:
    return jnp.einsum("bthd,hde->bthe", x, W(x, x.shape[-1], x.shape[-1]))
