"""Which keys each query sees, as structure: lengths and causality, never a [T, S] array."""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

Lengths = Any  # int32 [B], or None


@struct.dataclass
class Visibility:
    """Which keys each query sees.

    Attributes:
      q_lengths: int32 [B], the queries before the padding; padding sees nothing. None: all T.
      kv_lengths: int32 [B], the keys before the padding; padding is not seen. None: all S.
      causal: whether position t sees only positions up to t.
      first: int32 [B, T], the first key that each query sees: where its document begins. None: 0.
    """

    q_lengths: Lengths = None
    kv_lengths: Lengths = None
    causal: bool = struct.field(pytree_node=False, default=False)
    first: Array | None = None

    def with_lengths(self, q: Array, k: Array) -> "Visibility":
        """The same with both lengths set: None becomes the full length of q or k [B, L, ...]."""

        def known(lengths: Lengths, x: Array) -> Array:
            return jnp.full(x.shape[0], x.shape[1], jnp.int32) if lengths is None else lengths

        q_lengths, kv_lengths = known(self.q_lengths, q), known(self.kv_lengths, k)
        return Visibility(q_lengths, kv_lengths, self.causal, self.first)

    def allows(self, t: Array, s: Array) -> Array:
        """Bool: whether queries at positions t see keys at positions s.

        Args:
          t, s: int32 of equal rank, whose first axis is B or 1, for t 1 where `first` is set.
            Negative key positions are masked.
        """
        seen = s >= 0
        if self.first is not None:
            seen &= s >= jnp.take(self.first, t[0], axis=1, mode="clip")
        if self.causal:
            seen &= s <= t
        for x, lengths in ((t, self.q_lengths), (s, self.kv_lengths)):
            if lengths is not None:
                seen &= x < lengths.reshape(-1, *(1,) * (x.ndim - 1))
        return seen


def length_mask(lengths: Array, size: int) -> Array:
    """Bool [B, size]: the positions before the length of each row."""
    return jnp.arange(size)[None, :] < lengths[:, None]


def zero_padding(x: Array, lengths: Lengths) -> Array:
    """x [B, L, h, d] with padding set to zero, so that its content has no gradient."""
    if lengths is None:
        return x
    return jnp.where(length_mask(lengths, x.shape[1])[:, :, None, None], x, jnp.zeros_like(x))
