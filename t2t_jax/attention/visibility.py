"""Who may see whom, as structure: lengths and causality, never a [T, S] array."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

Lengths = Any  # int32 [B], or None


@struct.dataclass
class Visibility:
    """Which keys each query may see.

    Attributes:
      q_lengths: int32 [B], queries that are real; the rest see nothing. None: all are.
      kv_lengths: int32 [B], keys that are real; the rest are seen by none. None: all are.
      causal: position t sees positions up to t only.
    """

    q_lengths: Lengths = None
    kv_lengths: Lengths = None
    causal: bool = struct.field(pytree_node=False, default=False)

    def bounded(self, q: Array, k: Array) -> "Visibility":
        """The same with both lengths given: where there are none, all of q and k [B, L, ...]."""

        def known(lengths: Lengths, x: Array) -> Array:
            return jnp.full(x.shape[0], x.shape[1], jnp.int32) if lengths is None else lengths

        return Visibility(known(self.q_lengths, q), known(self.kv_lengths, k), self.causal)

    def allows(self, t: Array, s: Array) -> Array:
        """Bool: whether queries at positions t may see keys at positions s.

        Args:
          t, s: int32 with the same number of axes, of which the first is B or 1; a position below
            0 is nowhere.
        """
        seen = s >= 0
        if self.causal:
            seen &= s <= t
        for x, lengths in ((t, self.q_lengths), (s, self.kv_lengths)):
            if lengths is not None:
                seen &= x < lengths.reshape(-1, *(1,) * (x.ndim - 1))
        return seen


def real(lengths: Array, size: int) -> Array:
    """Bool [B, size]: the positions below each row's length."""
    return jnp.arange(size)[None, :] < lengths[:, None]


def blank(x: Array, lengths: Lengths) -> Array:
    """x [B, L, h, d] with zeros where a slot is padding, so that its content has no gradient."""
    if lengths is None:
        return x
    return jnp.where(real(lengths, x.shape[1])[:, :, None, None], x, jnp.zeros_like(x))
