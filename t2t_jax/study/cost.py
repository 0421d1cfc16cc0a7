"""What a config costs before it is run."""

import math

from t2t_jax.config import Config


def parameters(c: Config, V: int) -> int:
    """Parameters of a config's model with V subwords, counted without making them."""
    import jax
    import jax.numpy as jnp

    from t2t_jax.models import build

    token = jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(build(c, V).init, jax.random.key(0), token, token)
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["params"]))
