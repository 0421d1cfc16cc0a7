"""The quantities of Table 1, measured: FLOPs, sequential operations and path length of a layer."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxprs_in_params

Layer = Callable[[Array], Array]  # [1, n, d] -> [1, n, d]


def counted(layer: Layer, n: int, d: int) -> tuple[float, int]:
    """Returns the FLOPs of a layer's matrix products, and the steps of its loops."""
    return count(jax.make_jaxpr(layer)(jnp.zeros((1, n, d))).jaxpr)


def count(jaxpr: Any) -> tuple[float, int]:
    """Returns the FLOPs of a traced program's matrix products, and the steps of all its loops.

    A multiplication and an addition are two operations. The body of a loop counts as often as it
    runs, and a triangular system as a product with half a matrix.

    Raises:
      ValueError: the program has a loop of unknown length.
    """
    flops, steps = 0.0, 0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            products = math.prod(shape[i] for i in contracted)
            flops += 2.0 * math.prod(equation.outvars[0].aval.shape) * products
            continue
        if name == "triangular_solve":
            n = equation.invars[0].aval.shape[-1]
            flops += float(equation.outvars[0].aval.size * (n - 1))
            continue
        if name == "while":
            raise ValueError("a loop whose length is not known cannot be counted.")
        if name == "custom_linear_solve":  # its other programs are for gradients
            params = {"solve": params["jaxprs"].solve}
        inner = [count(j) for j in jaxprs_in_params(params)]
        times = params["length"] if name == "scan" else 1
        flops += times * sum(f for f, _ in inner)
        inner_steps = sum(s for _, s in inner)
        steps += times * max(1, inner_steps) if name == "scan" else inner_steps
    return flops, steps


def layers_to_the_end(layer: Callable[[int], Layer], n: int, d: int) -> int:
    """Returns after how many layers the last of n positions depends on the first.

    A tangent at the first position is pushed through layer(0), layer(1), ... until it reaches the
    last.

    Raises:
      ValueError: it does not reach the last within n layers.
    """
    x = jax.random.normal(jax.random.key(0), (1, n, d))
    dx = jnp.zeros_like(x).at[:, 0].set(1.0)
    for depth in range(n):
        x, pull_back = jax.vjp(layer(depth), x)
        # The transpose of the VJP is the JVP, which some layers do not define.
        (dx,) = jax.linear_transpose(lambda dy, f=pull_back: f(dy)[0], x)(dx)
        if jnp.any(dx[0, -1] != 0):
            return depth + 1
        dx /= jnp.abs(dx).max()
    raise ValueError(f"the last of {n} positions does not see the first within {n} layers.")
