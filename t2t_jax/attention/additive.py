"""Additive attention (Bahdanau et al. 2015): the score of a pair is v^T tanh(W_q q + W_k k).

The tanh of every pair in every feature would be an array [T, S, d]. It never is one: queries are
taken in tiles and features one at a time, forward and, recomputed, backward.
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import Dense, weighted
from t2t_jax.attention.mechanism import Bias, Drop, refuse
from t2t_jax.attention.visibility import Visibility
from t2t_jax.attention.weights import PerHead
from t2t_jax.attention.work import ADDITIVE_TILE


class Additive(Dense):
    """softmax(v^T tanh(W_q q + W_k k)) v with d_k hidden features."""

    def setup(self) -> None:
        self.W_q = PerHead(("d_k", "d_hidden"))
        self.W_k = PerHead(("d_k", "d_hidden"))
        self.v = PerHead(("d_hidden",))

    def keys(self, k: Array, s: Array) -> Array:
        """k W_k, once a key."""
        return _project(k, self.W_k).swapaxes(1, 2)

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
        refuse("additive", drop=drop)
        B, T, h, d = q.shape
        u = self.v(q, d)
        a = _project(q, self.W_q).swapaxes(1, 2)
        a, c, u = (jnp.moveaxis(x, -1, 0) for x in (a, keys, u))  # [d, B, h, T], [d, B, h, S]

        @jax.checkpoint
        def tile(a: Array, at: Array | int) -> Array:
            return weighted(_scores(a, c, u), v, visibility, at, bias=bias)

        if T <= ADDITIVE_TILE:
            return tile(a, first)
        tiles = -(-T // ADDITIVE_TILE)
        a = jnp.pad(a, ((0, 0), (0, 0), (0, 0), (0, tiles * ADDITIVE_TILE - T)))
        a = jnp.moveaxis(a.reshape(d, B, h, tiles, ADDITIVE_TILE), 3, 0)
        out = jax.lax.map(lambda x: tile(*x), (a, first + ADDITIVE_TILE * jnp.arange(tiles)))
        return out.swapaxes(0, 1).reshape(B, tiles * ADDITIVE_TILE, h, -1)[:, :T]


def _project(x: Array, W: PerHead) -> Array:
    return jnp.einsum("bthd,hde->bthe", x, W(x, x.shape[-1], x.shape[-1]))


def _pair(a: Array, c: Array) -> Array:
    """The tanh of a [B, h, T] + c [B, h, S] for every pair."""
    return jnp.tanh(a[..., :, None] + c[..., None, :])


@jax.custom_vjp
def _scores(a: Array, c: Array, u: Array) -> Array:
    """Sum over d of u tanh(a + c) in float32 or wider.

    a [d, B, h, T], c [d, B, h, S], u [d, h] -> [B, h, T, S].
    """
    wide = jnp.promote_types(a.dtype, jnp.float32)
    a, c, u = (x.astype(wide) for x in (a, c, u))
    _, B, h, T = a.shape

    def add(total: Array, x: tuple[Array, ...]) -> tuple[Array, None]:
        a, c, u = x
        return total + u[None, :, None, None] * _pair(a, c), None

    zeros = jnp.zeros((B, h, T, c.shape[-1]), a.dtype)
    return jax.lax.scan(add, zeros, (a, c, u))[0]


def _forward(a: Array, c: Array, u: Array) -> tuple[Array, tuple[Array, ...]]:
    return _scores(a, c, u), (a, c, u)


def _backward(saved: tuple[Array, ...], g: Array) -> tuple[Array, ...]:
    def one(a: Array, c: Array, u: Array) -> tuple[Array, ...]:
        y = _pair(a, c)
        slope = g * (1 - y * y)
        u = u[None, :, None]
        return u * slope.sum(3), u * slope.sum(2), (g * y).sum((0, 2, 3))

    wide = [x.astype(g.dtype) for x in saved]
    found = jax.lax.map(lambda x: one(*x), wide)
    return tuple(x.astype(y.dtype) for x, y in zip(found, saved, strict=True))


_scores.defvjp(_forward, _backward)
