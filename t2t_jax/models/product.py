"""A product with a parameter, whose gradient transposes the narrower side.

Of y = x W, JAX writes W's gradient as (dy' x)': XLA on a CPU then transposes dy, which is wide in
logits and in the feed-forward layer's first product. Here it is x' dy.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(x: Array, W: Array, summed: int = 1, wide: Any = None) -> Array:
    """x [B, T, ...] times W [..., ...]: the last `summed` axes of x with as many first ones of W.

    The result is of type `wide`, by default of theirs; gradients are computed in that of x.
    """
    return jnp.tensordot(x, W, summed, preferred_element_type=wide)


def _forward(x: Array, W: Array, summed: int, wide: Any) -> tuple[Array, tuple[Array, Array]]:
    return product(x, W, summed, wide), (x, W)


def _backward(summed: int, wide: Any, kept: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, W = kept
    dy, rows = dy.astype(x.dtype), [*range(x.ndim - summed)]
    made = [*range(len(rows), dy.ndim)], [*range(summed, W.ndim)]
    return jnp.tensordot(dy, W, made), jnp.tensordot(x, dy, (rows, rows))


product.defvjp(_forward, _backward)
