"""Each query's k highest scores: the softmax is sparse, the scores are dense.

Gupta et al. (2021), "Memory-efficient Transformers via Top-k Attention".
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import ScaledDotProduct, softmax


class TopK(ScaledDotProduct):
    """softmax(q k^T / sqrt(d_k)) v over the k highest scores of each query, bias included.

    Keys whose scores equal the k-th highest are kept, too. All scores [B, h, T, S] exist at once,
    whereas Gupta et al. compute them for some queries at a time.
    """

    k: int = 8

    def weights(self, scores: Array, seen: Array) -> Array:
        candidates = jnp.where(seen, jax.lax.stop_gradient(scores), -jnp.inf)
        highest, keys = jax.lax.top_k(candidates, min(self.k, scores.shape[-1]))
        # A compiled program may compute the scores once for `top_k` and again for the comparison,
        # and round them differently: by its index, the k-th highest is kept in any case.
        equal = candidates >= highest[..., -1:]
        kept = jnp.put_along_axis(equal, keys, True, axis=-1, inplace=False)
        return softmax(scores, seen & kept)
