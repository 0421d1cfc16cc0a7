"""The parameters of a mechanism."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array


class PerHead(nn.Module):
    """A float32 parameter [h, *shape] with logical axes for the sharding rules.

    It is a module so that several methods of a mechanism can read it, with h taken from the
    queries.

    Attributes:
      axes: logical names of the axes after the heads; the first is contracted.
      initial: initialises it; by default normal, with the variance 1 / fan_in.
    """

    axes: tuple[str | None, ...] = ()
    initial: Any = None

    @nn.compact
    def __call__(self, q: Array, *shape: int) -> Array:
        """The parameter for queries [B, T, h, d_k], in their type."""
        init = self.initial or nn.initializers.normal(shape[0] ** -0.5)
        init = nn.with_logical_partitioning(init, ("heads", *self.axes))
        weight = self.param("weight", init, (q.shape[2], *shape), jnp.float32)
        return jnp.asarray(weight, q.dtype)
