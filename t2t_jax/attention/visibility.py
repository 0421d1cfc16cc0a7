"""Who may see whom, as structure: lengths and causality, never a [T, S] array."""

import jax
import jax.numpy as jnp
from flax import struct


@struct.dataclass
class Visibility:
    """Which keys each query may see.

    Attributes:
      q_lengths: int32 [B], queries that are real; the rest see nothing. None: all are.
      kv_lengths: int32 [B], keys that are real; the rest are seen by none. None: all are.
      causal: position t sees positions up to t only.
    """

    q_lengths: jax.Array | None = None
    kv_lengths: jax.Array | None = None
    causal: bool = struct.field(pytree_node=False, default=False)


def real(lengths: jax.Array, size: int) -> jax.Array:
    """Bool [B, size]: the positions below each row's length."""
    return jnp.arange(size)[None, :] < lengths[:, None]


def blank(x: jax.Array, lengths: jax.Array | None) -> jax.Array:
    """x [B, L, h, d] with zeros where a slot is padding, so that its content has no gradient."""
    if lengths is None:
        return x
    return jnp.where(real(lengths, x.shape[1])[:, :, None, None], x, jnp.zeros_like(x))
