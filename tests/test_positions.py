"""Rotary positions and T5's buckets against their definitions, at any distance."""

import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.models.positions import bucket, rotate
from tests.reference import transformer as reference


def test_rotation_turns_pairs_by_their_position():
    x = np.random.default_rng(0).normal(size=(2, 7, 3, 6)).astype(np.float32)
    found = rotate(jnp.asarray(x), jnp.arange(7))
    for b, i in np.ndindex(2, 3):
        np.testing.assert_allclose(found[b, :, i], reference.turned(x[b, :, i]), atol=1e-5)


def test_a_product_of_rotated_vectors_depends_on_their_distance_alone():
    q, k = np.random.default_rng(1).normal(size=(2, 1, 1, 1, 8)).astype(np.float32)
    at = [
        [(rotate(jnp.asarray(x), jnp.array([pos + d]))) for d in (0, 40)]
        for x, pos in ((q, 5), (k, 2))
    ]
    products = [float((at[0][i] * at[1][i]).sum()) for i in (0, 1)]
    assert products[0] == pytest.approx(products[1], rel=1e-5)
    assert products[0] != pytest.approx(float((q * k).sum()), rel=1e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_buckets(causal):
    distances = np.arange(-300, 300)
    found = np.asarray(bucket(jnp.asarray(distances), causal))
    wanted = np.array([reference.bucket(d, causal) for d in distances])
    edges = np.isin(np.abs(distances), [16, 32, 64, 128])  # logarithms that round either way
    np.testing.assert_array_equal(found[~edges], wanted[~edges])
    assert set(found) == set(range(32)) - (set() if causal else {16})  # no key is 0 after
