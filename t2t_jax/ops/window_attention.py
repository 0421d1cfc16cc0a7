"""Attention to the keys within distance w, by `ops.sparse_attention`.

Gain: compiled for an H100 (B 1, h 8, d 64, w 64, n 4,096), forward and backward move a quarter of
the bytes of the blocks that XLA gathers (`bench compile --mechanisms local`); on an H200 they are
13 times as fast (`experiments/gpu.py kernels`).
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.ops.patterns import Window
from t2t_jax.ops.sparse_attention import Keys, sparse_attention

_LOWEST = -1e30


def plain(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    w: int,
    causal: bool,
    scale: float,
    least: int = 0,
) -> tuple[Array, Array]:
    """softmax(scale q k^T) v over the keys before kv_lengths within distance w.

    q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] -> [B, T, h, d_v], and the log-sum-exp of
    the scores, float32 [B, h, T]. Lengths are int32 [B]. Causal: no later key. Outputs of queries
    that see nothing, or from q_lengths on, are zero, and their log-sum-exp is about -1e30.

    Args:
      least: keys at a smaller distance are not seen.
    """
    t, s = jnp.arange(q.shape[1])[None, :, None], jnp.arange(k.shape[1])[None, None, :]
    seen = (t < q_lengths[:, None, None]) & (s < kv_lengths[:, None, None])
    seen &= (jnp.abs(s - t) <= w) & (jnp.abs(s - t) >= least) & ((s <= t) | (not causal))
    scores = scale * jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32)
    seen = seen[:, None]
    a = jnp.where(seen, jax.nn.softmax(scores, axis=-1, where=seen), 0).astype(v.dtype)
    log_z = jax.nn.logsumexp(jnp.where(seen, scores, _LOWEST), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", a, v), jnp.where(seen.any(-1), log_z, _LOWEST)


def window_attention(
    q: Array,
    k: Array,
    v: Array,
    q_lengths: Array,
    kv_lengths: Array,
    w: int,
    causal: bool,
    scale: float,
    least: int = 0,
) -> tuple[Array, Array]:
    """`plain` for finite inputs."""
    keys, pattern = Keys(k, v, kv_lengths), Window(w, causal, least)
    return sparse_attention(q, q_lengths, (keys,), ((pattern,),), scale)
