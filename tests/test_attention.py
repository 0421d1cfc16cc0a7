"""Dot-product attention against its definition, one query at a time in float64."""

import doctest
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax import attention
from t2t_jax.attention import MECHANISMS, Visibility

B, T, S, H, D_K, D_V = 3, 7, 5, 2, 6, 4


def draw(seed, T=T, S=S):
    rng = np.random.default_rng(seed)
    shapes = (B, T, H, D_K), (B, S, H, D_K), (B, S, H, D_V)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def expected(q, k, v, q_lengths, kv_lengths, causal, scaled):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    out = np.zeros((*q.shape[:3], v.shape[-1]))
    for b in range(q.shape[0]):
        for t in range(q_lengths[b]):
            seen = min(kv_lengths[b], t + 1) if causal else kv_lengths[b]
            for i in range(H):
                if seen:
                    scores = k[b, :seen, i] @ q[b, t, i] / (np.sqrt(D_K) if scaled else 1)
                    a = np.exp(scores - scores.max())
                    out[b, t, i] = a @ v[b, :seen, i] / a.sum()
    return out


@partial(jax.jit, static_argnums=0)
def run(name, q, k, v, visibility):
    return MECHANISMS[name]().apply({}, q, k, v, visibility)


@pytest.mark.parametrize(("name", "scaled"), [("scaled_dot_product", True), ("dot_product", False)])
@settings(max_examples=20, deadline=None)
@given(
    q_lengths=st.lists(st.integers(0, T), min_size=B, max_size=B),
    kv_lengths=st.lists(st.integers(0, S), min_size=B, max_size=B),
    causal=st.booleans(),
)
def test_equals_definition(name, scaled, q_lengths, kv_lengths, causal):
    q, k, v = draw(0)
    visibility = Visibility(jnp.array(q_lengths), jnp.array(kv_lengths), causal)
    found = run(name, q, k, v, visibility)
    wanted = expected(q, k, v, q_lengths, kv_lengths, causal, scaled)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("causal", [False, True])
def test_padding_changes_nothing_not_even_as_nan(name, causal):
    q, k, v = draw(1, T=S)
    lengths = np.array([0, 1, 4])
    visibility = Visibility(jnp.array(lengths), jnp.array(lengths), causal)
    spoilt = [x.copy() for x in (q, k, v)]
    for b, length in enumerate(lengths):
        for x in spoilt:
            x[b, length:] = np.nan

    def loss(q, k, v):
        out = run(name, q, k, v, visibility)
        return (out * jnp.cos(jnp.arange(out.size)).reshape(out.shape)).sum(), out

    gradient = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    both = jax.tree.leaves(gradient(q, k, v)), jax.tree.leaves(gradient(*spoilt))
    for clean, dirty in zip(*both, strict=True):
        np.testing.assert_array_equal(clean, dirty)
        for b, length in enumerate(lengths):
            assert not np.any(clean[b, length:])


@pytest.mark.parametrize("name", MECHANISMS)
def test_steps_equal_the_whole(name):
    q, k, v = draw(2, T=S)
    mechanism = MECHANISMS[name]()
    whole = run(name, q, k, v, Visibility(causal=True))
    empty = Visibility(kv_lengths=jnp.zeros(B, jnp.int32), causal=True)
    state = mechanism.apply(
        {}, jnp.full_like(k, jnp.nan), jnp.full_like(v, 9), empty, method="start"
    )
    for t in range(S):
        new = (x[:, t : t + 1] for x in (k, v))
        out, state = mechanism.apply({}, state, q[:, t : t + 1], jnp.int32(t), *new, method="step")
        np.testing.assert_allclose(out[:, 0], whole[:, t], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MECHANISMS)
def test_cross_steps_equal_the_whole(name):
    q, k, v = draw(3)
    mechanism = MECHANISMS[name]()
    visibility = Visibility(kv_lengths=jnp.array([0, 2, 5]))
    whole = run(name, q, k, v, visibility)
    memory = mechanism.apply({}, k, v, visibility, method="start")
    for t in range(T):
        out, after = mechanism.apply({}, memory, q[:, t : t + 1], jnp.int32(t), method="step")
        np.testing.assert_allclose(out[:, 0], whole[:, t], rtol=1e-5, atol=1e-6)
        assert after is memory


def test_the_packages_example_runs():
    tried = doctest.testmod(attention)
    assert tried.attempted
    assert not tried.failed
