"""A matmul with a parameter, whose gradient is computed without transposing the wider side.

For y = x W, JAX writes the gradient of W as (dy^T x)^T. XLA on a CPU then transposes dy, which is
wide in the logits and in the first matmul of the feed-forward layer. Here the gradient is x^T dy.

Gain: 1.5 times as fast on a CPU, or more (`experiments/tools/ops.py`); not measured on a GPU.
"""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array


def plain(x: Array, W: Array, axes: int = 1, dtype: Any = None) -> Array:
    """x [B, T, ...] times W [..., ...], contracting the last `axes` axes of x with W's first.

    Args:
      dtype: the type of the result and of the sums, by default the type of x and W.
    """
    return jnp.tensordot(x, W, axes, preferred_element_type=dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def matmul(x: Array, W: Array, axes: int = 1, dtype: Any = None) -> Array:
    """`plain`; gradients are computed in the type of x."""
    return plain(x, W, axes, dtype)


def _forward(x: Array, W: Array, axes: int, dtype: Any) -> tuple[Array, tuple[Array, Array]]:
    return matmul(x, W, axes, dtype), (x, W)


def _backward(axes: int, dtype: Any, saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, W = saved
    dy, leading = dy.astype(x.dtype), [*range(x.ndim - axes)]
    contracted = [*range(len(leading), dy.ndim)], [*range(axes, W.ndim)]
    return jnp.tensordot(dy, W, contracted), jnp.tensordot(x, dy, (leading, leading))


matmul.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def masked_matmul(
    x: Array, W: Array, present: Array, undefined: Literal["x", "dy"], axes: int = 1
) -> Array:
    """`plain` with gradients that padding does not affect, even if it holds NaN.

    Args:
      present: bool [B, T], false in padding.
      undefined: "x" if x is undefined in padding, where dy, the gradient of the result, must then
        be zero; "dy" if dy is undefined there, where x must then be finite.
    """
    return plain(x, W, axes)


def _masked_forward(
    x: Array, W: Array, present: Array, undefined: str, axes: int
) -> tuple[Array, tuple[Array, Array, Array]]:
    return plain(x, W, axes), (x, W, present)


def _masked_backward(
    undefined: str, axes: int, saved: tuple[Array, Array, Array], dy: Array
) -> tuple[Array, Array, None]:
    x, W, present = saved

    def masked(y: Array) -> Array:
        return jnp.where(present.reshape(*present.shape, *(1,) * (y.ndim - 2)), y, 0)

    # XLA fuses a mask with the product that reads it only if no other product reads it.
    dx, _ = _backward(axes, None, (x, W), dy)
    if undefined == "x":
        return dx, _backward(axes, None, (masked(x), W), dy)[1], None
    return masked(dx), _backward(axes, None, (x, W), masked(dy))[1], None


masked_matmul.defvjp(_masked_forward, _masked_backward)
