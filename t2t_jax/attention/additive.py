"""Additive attention (Bahdanau et al. 2015, appendix A.1.2), also with coverage."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import Dense, softmax, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout, State, refuse
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.ops.additive_scores import additive_scores


class Additive(Dense):
    """softmax(v^T tanh(W_q q + W_k k)) v with d_k hidden features."""

    grouped: ClassVar[bool] = False

    tile: int  # queries whose scores are in memory at once; the backward pass recomputes them

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


class Coverage(Additive):
    """softmax(v^T tanh(W_q q + W_k k + w_c c)) v; c sums a key's weights at all earlier queries.

    See et al. (2017), equations 10 and 11, without the bias b_attn of the latter and without their
    coverage loss. Queries depend on each other, so they are computed one by one.
    """

    def setup(self) -> None:
        super().setup()
        self.w_c = PerHead(("d_hidden",))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("coverage", dropout=dropout, bias=bias)
        t, s = jnp.arange(q.shape[1])[None, :, None], jnp.arange(k.shape[1])[None, None]
        seen = visibility.allows(t, s)
        queries, u, w = self._projected(q)
        state = self.start(k, v, visibility)
        # The scan sums the gradients of these over the queries.
        summed = (state["k"], state["v"], u, w)
        keys, values, u, w = (x.astype(state["coverage"].dtype) for x in summed)

        @jax.checkpoint  # the tanh of all pairs would be an array [T, B, h, S, d]
        def advance(c: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            return _attend_one(*row, keys, values, u, w, c)

        rows = queries.swapaxes(0, 1), seen.swapaxes(0, 1)
        _, out = jax.lax.scan(advance, state["coverage"], rows)
        return out.swapaxes(0, 1).astype(v.dtype)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        B, S, h, _ = k.shape
        c = jnp.zeros((B, h, S), jnp.promote_types(k.dtype, jnp.float32))
        return super().start(k, v, visibility) | {"coverage": c}

    def step(
        self, state: State, q: Array, t: Array, k: Any = None, v: Any = None, bias: Bias = None
    ) -> tuple[Array, State]:
        refuse("coverage", bias=bias)
        queries, u, w = self._projected(q)
        seen = length_mask(state["lengths"], state["v"].shape[2])
        c, out = _attend_one(queries[:, 0], seen, state["k"], state["v"], u, w, state["coverage"])
        return self.finish(out[:, None]), state | {"coverage": c}

    def _projected(self, q: Array) -> tuple[Array, Array, Array]:
        """W_q q [B, T, h, d], and the vectors v and w_c [h, d]."""
        d = q.shape[3]
        return _project(q, self.W_q), self.v(q, d), self.w_c(q, d)


def _attend_one(
    q: Array, seen: Array, keys: Array, v: Array, u: Array, w: Array, c: Array
) -> tuple[Array, Array]:
    """The coverage after one query, and its output [B, h, d_v].

    q is W_q q [B, h, d], keys are W_k k [B, h, S, d], v are the values [B, h, S, d_v], u and w are
    v and w_c [h, d], seen is bool [B, S], and c is the coverage before, float32 or wider [B, h, S].
    """
    q, keys, u, w = (x.astype(c.dtype) for x in (q, keys, u, w))
    pairs = jnp.tanh(q[:, :, None] + keys + c[..., None] * w[None, :, None])
    a = softmax(jnp.einsum("bhsd,hd->bhs", pairs, u), seen[:, None])
    return c + a, jnp.einsum("bhs,bhsd->bhd", a.astype(v.dtype), v)


def _project(x: Array, W: PerHead) -> Array:
    return jnp.einsum("bthd,hde->bthe", x, W(x, x.shape[-1], x.shape[-1]))
