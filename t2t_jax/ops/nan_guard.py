"""Keeps a NaN or an infinity of a later position out of the outputs and gradients of earlier ones.

A weight of zero does not silence a NaN, as 0 NaN = NaN. So positions that are not finite are set to
zero before attention, and every output that may see one of them is set to NaN after it.

Gain: a mechanism needs no masked matmul of its own. The cost is an eighth of the time of dense
attention on a CPU (`experiments/tools/ops.py`).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

Attend = Callable[[Array, Array, Array], Array]


def plain(attend: Attend, q: Array, k: Array, v: Array) -> Array:
    """Causal attention position by position: the output at t depends on positions up to t alone.

    q [B, T, h, d_k], k [B, T, h, d_k], v [B, T, h, d_v] -> [B, T, h, d_v].
    """
    prefixes = [
        attend(q[:, : t + 1], k[:, : t + 1], v[:, : t + 1])[:, -1:] for t in range(q.shape[1])
    ]
    return jnp.concatenate(prefixes, axis=1)


def nan_guard(attend: Attend, q: Array, k: Array, v: Array, is_query: Array) -> Array:
    """`plain` at the cost of one call; an output that sees a position that is not finite is NaN.

    Args:
      attend: causal attention of q, k and v.
      is_query: bool [B, T], false for padding, which sees no key.
    """
    bad_q = ~jnp.isfinite(q).all(-1, keepdims=True)
    bad_k = ~(jnp.isfinite(k).all(-1, keepdims=True) & jnp.isfinite(v).all(-1, keepdims=True))
    out = attend(jnp.where(bad_q, 0, q), jnp.where(bad_k, 0, k), jnp.where(bad_k, 0, v))
    T = q.shape[1]
    seen = jax.lax.cummax(bad_k.astype(jnp.int8), axis=1).astype(bool)
    seen = jnp.pad(seen, ((0, 0), (0, max(T - k.shape[1], 0)), (0, 0), (0, 0)), "edge")[:, :T]
    seen &= is_query[:, :, None, None]
    return jnp.where(seen | bad_q, jnp.nan, out)
