"""What the tests of kernels share: arrays, and values with gradients."""

import jax
import jax.numpy as jnp
import numpy as np


def drawn(shape, seed, scale=1.0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) * scale, jnp.float32)


def value_and_gradients(f, g, *x):
    """The value of f and its gradients along g, in one compiled program."""

    def run(*x):
        y, back = jax.vjp(f, *x)
        return y, back(g)

    return jax.jit(run)(*x)


def close(x, y, tolerance=2e-5):
    for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
