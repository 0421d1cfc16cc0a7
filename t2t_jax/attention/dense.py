"""Attention as a masked softmax over all pairs: the [T, S] array is built here and nowhere else."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from t2t_jax.attention.visibility import Visibility, real


def mask(visibility: Visibility, T: int, S: int) -> jax.Array:
    """Bool, broadcastable to [B, 1, T, S]: True where the query may see the key."""
    seen = jnp.ones((1, 1, T, S), bool)
    if visibility.q_lengths is not None:
        seen &= real(visibility.q_lengths, T)[:, None, :, None]
    if visibility.kv_lengths is not None:
        seen &= real(visibility.kv_lengths, S)[:, None, None, :]
    if visibility.causal:
        seen &= (jnp.arange(S)[None, :] <= jnp.arange(T)[:, None])[None, None]
    return seen


def weights(scores: jax.Array, seen: jax.Array) -> jax.Array:
    """Softmax of scores [B, h, T, S] over the keys seen, in float32 or wider; zeros if none is."""
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    exponentials = jnp.where(seen, jnp.exp(scores - largest), 0)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / jnp.where(total > 0, total, 1)


def attend(
    scores: jax.Array,
    v: jax.Array,
    seen: jax.Array,
    drop: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Weighted sum [B, T, h, d_v] of v [B, S, h, d_v] by the softmax of scores [B, h, T, S].

    Args:
      drop: dropout of the weights, which the paper does without.
    """
    a = weights(scores, seen)
    if drop is not None:
        a = drop(a)
    return jnp.einsum("bhts,bshd->bthd", a.astype(v.dtype), v)
