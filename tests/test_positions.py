"""Rotary positions, the buckets of T5 and the slopes of ALiBi equal their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.models.positions import Encoding, alibi, bucket, rotary
from tests.reference import transformer as reference


def test_rotary_rotates_pairs_of_features_by_their_position():
    x = np.random.default_rng(0).normal(size=(2, 7, 3, 6)).astype(np.float32)
    actual = rotary(jnp.asarray(x), jnp.arange(7))
    for b, i in np.ndindex(2, 3):
        np.testing.assert_allclose(actual[b, :, i], reference.rotated(x[b, :, i]), atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_those_of_t5(causal):
    distances = np.arange(-300, 300)
    actual = np.asarray(bucket(jnp.asarray(distances), causal))
    expected = np.array([reference.bucket(d, causal) for d in distances])
    edges = np.isin(np.abs(distances), [16, 32, 64, 128])  # here the logarithm may round either way
    np.testing.assert_array_equal(actual[~edges], expected[~edges])
    absent = set() if causal else {16}  # which would be a key ahead at distance 0
    assert set(actual) == set(range(32)) - absent


def test_alibi_has_the_slopes_of_the_paper():
    """Press et al. 2022: for 8 heads 1/2, 1/4, ..., 1/256; for 16 heads from 2^-0.5 on."""
    for h, slopes in ((8, 0.5 ** np.arange(1, 9)), (16, 0.5 ** np.arange(0.5, 8.5, 0.5))):
        distances = np.array([[0, -1, -2], [5, 0, -7]])
        actual = alibi(None, h, causal=True)(jnp.asarray(distances))
        expected = -slopes[:, None, None] * np.abs(distances)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("d_model", [32, 512])
def test_learned_positions_begin_with_the_variance_of_sinusoids(d_model):
    zeros = jnp.zeros((1, 64, d_model))
    sizes = []
    for scheme in ("learned", "sinusoid"):
        encoding, drawn = Encoding(scheme, 64, jnp.float32).init_with_output(
            jax.random.key(3), zeros
        )
        assert bool(drawn) == (scheme == "learned")
        sizes.append(float((encoding**2).mean()))
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)
