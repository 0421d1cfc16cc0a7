"""Additive attention with coverage: scores that know how much of the source is already covered."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.additive import Additive
from t2t_jax.attention.dense import softmax
from t2t_jax.attention.mechanism import Bias, Dropout, State, refuse
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, length_mask


class Coverage(Additive):
    """softmax(v^T tanh(W_q q + W_k k + w_c c)) v; c sums a key's weights at all earlier queries.

    See et al. (2017), equations 10 and 11, without the bias b_attn of the latter and without their
    coverage loss. Queries depend on each
    other, so they are computed one by one.
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
        visibility = visibility.with_lengths(k, k)
        c = jnp.zeros((B, h, S), jnp.promote_types(k.dtype, jnp.float32))
        return super().start(k, v, visibility) | {"coverage": c}

    def step(
        self,
        state: State,
        q: Array,
        t: Array,
        k: Array | None = None,
        v: Array | None = None,
        bias: Bias = None,
    ) -> tuple[Array, State]:
        refuse("coverage", bias=bias)
        queries, u, w = self._projected(q)
        seen = length_mask(state["lengths"], state["v"].shape[2])
        c, out = _attend_one(queries[:, 0], seen, state["k"], state["v"], u, w, state["coverage"])
        return self.finish(out[:, None]), state | {"coverage": c}

    def _projected(self, q: Array) -> tuple[Array, Array, Array]:
        """W_q q [B, T, h, d], and the vectors v and w_c [h, d]."""
        d = q.shape[3]
        queries = jnp.einsum("bthd,hde->bthe", q, self.W_q(q, d, d))
        return queries, self.v(q, d), self.w_c(q, d)


def _attend_one(
    q: Array, seen: Array, keys: Array, v: Array, u: Array, w: Array, c: Array
) -> tuple[Array, Array]:
    """One query over all keys.

    Args:
      q: W_q q [B, h, d]; `keys` are W_k k [B, h, S, d], and v the values [B, h, S, d_v].
      seen: bool [B, S].
      u, w: v and w_c, [h, d].
      c: the coverage, float32 or wider [B, h, S].

    Returns:
      The coverage after the query, and its output [B, h, d_v].
    """
    q, keys, u, w = (x.astype(c.dtype) for x in (q, keys, u, w))
    pairs = jnp.tanh(q[:, :, None] + keys + c[..., None] * w[None, :, None])
    a = softmax(jnp.einsum("bhsd,hd->bhs", pairs, u), seen[:, None])
    return c + a, jnp.einsum("bhs,bhsd->bhd", a.astype(v.dtype), v)
