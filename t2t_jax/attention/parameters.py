"""The parameters of the mechanisms."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array


class PerHead(nn.Module):
    """A float32 parameter [h, *shape] with logical axes for the sharding rules.

    It is a module so that several methods of a mechanism can read it; h counts heads of queries.

    Attributes:
      axes: logical names of the axes after the heads; the first gives the fan-in.
      initial: a function of (key, shape, dtype), by default normal with deviation fan-in^-0.5.
    """

    axes: tuple[str | None, ...] = ()
    initial: Callable[..., Array] | None = None

    @nn.compact
    def __call__(self, q: Array, *shape: int) -> Array:
        """The parameter for queries [B, T, h, d_k], in their type."""
        init = self.initial or nn.initializers.normal(shape[0] ** -0.5)
        boxed = nn.with_logical_partitioning(init, ("heads", *self.axes))
        weight = self.param("weight", boxed, (q.shape[2], *shape), jnp.float32)
        return jnp.asarray(weight, q.dtype)


def log_rate(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """The logarithms of decay rates that are uniform from 1 to 16, as in the code of Mamba-2."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 1, 16))


def log_time(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """b such that the time step softplus(b) is log-uniform from 0.001 to 0.1, as in Mamba-2."""
    low, high = jnp.log(jnp.asarray([0.001, 0.1], dtype))
    time = jnp.exp(jax.random.uniform(key, shape, dtype, low, high))
    return time + jnp.log(-jnp.expm1(-time))
