"""The base class of all mechanisms: the contract of `t2t_jax.attention`, with padding zeroed."""

from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding
from t2t_jax.ops.nan_guard import nan_guard

State = dict[str, Any]
Dropout = Callable[[Array], Array] | None
Bias = Callable[[Array], Array] | None


class Mechanism(nn.Module):
    """A mechanism defines `attend` for training, and `store` and the steps for decoding."""

    grouped: ClassVar[bool] = False  # whether `start` and `step` get h_kv heads, not h
    weighted: ClassVar[bool] = True  # whether an output is a sum of values, each times a number

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        visibility: Visibility,
        dropout: Dropout = None,
        bias: Bias = None,
        fused: bool = False,
    ) -> Array:
        """q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] -> [B, T, h, d_v].

        Args:
          bias: int32 distances s - t [...] -> what is added to the scores, [h, ...].
          fused: whether to use the method `fused` if it supports these arguments.
        """
        plain = dropout is None and bias is None and visibility.first is None
        # A subclass, which may compute something else, does not inherit the kernel.
        if fused and plain and "fused" in vars(type(self)):
            out = self.fused(q, k, v, visibility)
            if out is not None:
                return self.finish(out)
        visibility = visibility.with_lengths(q, k)
        # Zeros, as 0 * NaN is NaN: a weight of zero would not silence what stands in padding.
        q = zero_padding(q, visibility.q_lengths)
        k, v = (zero_padding(x, visibility.kv_lengths) for x in (k, v))

        def attend(q: Array, k: Array, v: Array) -> Array:
            return self.finish(self.attend(q, k, v, visibility, dropout, bias))

        if not visibility.causal:  # every key may be seen: a NaN among them is a NaN of the output
            return attend(q, k, v)
        return nan_guard(attend, q, k, v, length_mask(visibility.q_lengths, q.shape[1]))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        """`__call__` without `finish`, where both lengths are known and padding is zero."""
        raise NotImplementedError

    def finish(self, out: Array) -> Array:
        """Applied to the weighted sums of the values [B, T, h, d_v]; it may be non-linear.

        It must map zero to zero.
        """
        return out

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """`attend` without dropout and bias, by a GPU kernel; None if it lacks these arguments.

        The inputs are bfloat16 and finite, even in padding; the outputs and the gradients of
        padding are undefined.
        """
        return None

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The decoding state that holds the keys and values known before decoding."""
        visibility = visibility.with_lengths(k, k)
        k, v = (zero_padding(x, visibility.kv_lengths) for x in (k, v))
        return self.store(k, v, visibility)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """`start`, where the lengths are known and padding is zero."""
        raise NotImplementedError

    def step(
        self,
        state: State,
        q: Array,
        t: Array,
        k: Array | None = None,
        v: Array | None = None,
        bias: Bias = None,
    ) -> tuple[Array, State]:
        """The query [B, 1, h, d_k] at position t -> [B, 1, h, d_v], and the state after it."""
        if k is None or v is None:
            return self.finish(self.step_cross(state, q, t, bias)), state
        out, state = self.step_self(state, q, t, k, v, bias)
        return self.finish(out), state

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        """`step` without `finish`, after adding the key and value of position t to the state."""
        raise NotImplementedError

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        """`step` without `finish`, over the keys and values that `start` was given."""
        raise NotImplementedError


def refuse(name: str, **arguments: Any) -> None:
    """Raises ValueError if a mechanism gets an argument that it would otherwise ignore."""
    for argument, value in arguments.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} attention does not support {argument}.")


def repeat_heads(x: Array, h: int, axis: int = 2) -> Array:
    """Keys or values [B, S, h_kv, d] -> [B, S, h, d]: each head for the h / h_kv of its group."""
    return x if x.shape[axis] == h else jnp.repeat(x, h // x.shape[axis], axis)


def wide(x: Array) -> Array:
    """x in float32, or in its own type if that is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def write_at(x: Array, new: Array, t: Array, axis: int = 1) -> Array:
    """x [B, S, ...] with new [B, 1, ...] at position t; S is on `axis`."""
    return jax.lax.dynamic_update_slice_in_dim(x, new, t, axis)
