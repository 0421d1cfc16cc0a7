"""Each query's k highest scores (Gupta et al. 2021, "Memory-efficient Transformers via Top-k
Attention", section 3): the softmax is sparse, the scores are dense.
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import scaled_products
from t2t_jax.attention.dense import Dense, weighted_sum
from t2t_jax.attention.mechanism import Bias, Dropout
from t2t_jax.attention.visibility import Visibility


class TopK(Dense):
    """softmax(q k^T / sqrt(d_k)) v over the k highest scores of each query, bias included.

    Keys whose scores equal the k-th highest are kept, too. All scores [B, h, T, S] exist at once,
    whereas Gupta et al. compute them for some queries at a time.
    """

    k: int

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        return scaled_products("bthd,bhsd->bhts", q, keys)

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
        t, s = first + jnp.arange(q.shape[1]), jnp.arange(v.shape[2])
        scores = self.scores(q, keys, t, s)
        if bias is not None:
            scores += bias(s[None] - t[:, None])[None]
        seen = visibility.allows(t[None, :, None], s[None, None])[:, None]
        candidates = jnp.where(seen, jax.lax.stop_gradient(scores), -jnp.inf)
        highest, _ = jax.lax.top_k(candidates, min(self.k, len(s)))
        scores = jnp.where(candidates < highest[..., -1:], jnp.finfo(scores.dtype).min, scores)
        return weighted_sum(scores, v, visibility, first, dropout)
