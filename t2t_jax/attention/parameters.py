"""The parameters of the mechanisms."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jax import Array


class PerHead(nn.Module):
    """A float32 parameter [h, *shape] with logical axes for the sharding rules.

    It is a module so that several methods of a mechanism can read it; h counts heads of queries.
    `axes` are the logical names of the axes after the heads, of which the first gives the fan-in;
    `initial` is a function of (key, shape, dtype), by default normal with deviation fan-in^-0.5.
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
