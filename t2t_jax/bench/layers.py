"""What a layer is, found by looking at it: its products, its sequential steps, its reach."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxprs_in_params

Layer = Callable[[Array], Array]  # [1, n, d] -> the same


def counted(layer: Layer, n: int, d: int) -> tuple[float, int]:
    """FLOPs of a layer's matrix products, and the steps of its loops."""
    return count(jax.make_jaxpr(layer)(jnp.zeros((1, n, d))).jaxpr)


def count(jaxpr: Any) -> tuple[float, int]:
    """FLOPs of the matrix products of a traced program, and the steps of its loops in all.

    A multiplication and an addition count as two; a loop's body as often as it runs.

    Raises:
      ValueError: there is a loop of unknown length.
    """
    flops, steps = 0.0, 0
    for e in jaxpr.eqns:
        if e.primitive.name == "dot_general":
            (contracted, _), _ = e.params["dimension_numbers"]
            shape = e.invars[0].aval.shape
            size = math.prod(e.outvars[0].aval.shape) * math.prod(shape[i] for i in contracted)
            flops += 2.0 * size
            continue
        if e.primitive.name == "while":
            raise ValueError("a loop whose length is not known cannot be counted.")
        inner = [count(j) for j in jaxprs_in_params(e.params)]
        times = e.params["length"] if e.primitive.name == "scan" else 1
        flops += times * sum(f for f, _ in inner)
        within = sum(s for _, s in inner)
        steps += times * max(1, within) if e.primitive.name == "scan" else within
    return flops, steps


def layers_to_the_end(layer: Callable[[int], Layer], n: int, d: int) -> int:
    """How many layers, layer(0) first, until the first of n positions moves the last."""
    x = jax.random.normal(jax.random.key(0), (1, n, d))
    dx = jnp.zeros_like(x).at[:, 0].set(1.0)
    for depth in range(n):
        x, back = jax.vjp(layer(depth), x)
        (dx,) = jax.linear_transpose(lambda dy, back=back: back(dy)[0], x)(dx)  # transposed twice
        if jnp.any(dx[0, -1] != 0):
            return depth + 1
        dx /= jnp.abs(dx).max()
    raise ValueError(f"the first of {n} positions does not move the last within {n} layers.")
