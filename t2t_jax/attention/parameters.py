"""The parameters of a mechanism."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array


class PerHead(nn.Module):
    """A float32 parameter [h, *shape] with logical axes for the sharding rules.

    It is a module so that several methods of a mechanism can read it, with h taken from the
    queries.

    Attributes:
      axes: logical names of the axes after the heads; the first is contracted.
    """

    axes: tuple[str, ...]

    @nn.compact
    def __call__(self, q: Array, *shape: int) -> Array:
        """The parameter for queries [B, T, h, d_k], in their type."""
        fan_in = nn.initializers.normal(shape[0] ** -0.5)
        init = nn.with_logical_partitioning(fan_in, ("heads", *self.axes))
        weight = self.param("weight", init, (q.shape[2], *shape), jnp.float32)
        return jnp.asarray(weight, q.dtype)
