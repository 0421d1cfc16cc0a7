"""Parameters that a mechanism has of its own."""

import flax.linen as nn
import jax.numpy as jnp
from jax import Array


class PerHead(nn.Module):
    """A float32 parameter [h, *shape] whose logical axes the sharding rules know.

    A module of its own, so that a mechanism may ask for it in each of its methods and it takes h
    from the queries.

    Attributes:
      axes: the logical names of the axes after the heads; the first is summed over.
    """

    axes: tuple[str, ...]

    @nn.compact
    def __call__(self, q: Array, *shape: int) -> Array:
        """For queries [B, T, h, d_k], in their type."""
        fan_in = nn.initializers.normal(shape[0] ** -0.5)
        init = nn.with_logical_partitioning(fan_in, ("heads", *self.axes))
        weight = self.param("weight", init, (q.shape[2], *shape), jnp.float32)
        return jnp.asarray(weight, q.dtype)
