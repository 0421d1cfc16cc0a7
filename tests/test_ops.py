"""Every function of `t2t_jax.ops` equals its plain definition in values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.ops import additive_scores, matmul, nan_guard, target_logit, top_k
from tests.gradients import drawn

CASES = [  # forward, x, W, summed axes
    ("btd,df->btf", (2, 3, 4), (4, 5), 1),
    ("btm,mhd->bthd", (2, 3, 4), (4, 5, 6), 1),
    ("bthd,hdm->btm", (2, 3, 4, 5), (4, 5, 6), 2),
]


@pytest.mark.parametrize(("equation", "x", "W", "summed"), CASES)
def test_matmul_and_its_gradients_equal_einsum(equation, x, W, summed):
    x, W = drawn(x, 0), drawn(W, 1)
    y, back = jax.vjp(lambda x, W: matmul.matmul(x, W, summed), x, W)
    dy = drawn(y.shape, 2)
    sides, out = equation.split("->")
    of_x, of_W = sides.split(",")
    close = dict(rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, np.einsum(equation, x, W), **close)
    dx, dW = back(dy)
    np.testing.assert_allclose(dx, np.einsum(f"{out},{of_W}->{of_x}", dy, W), **close)
    np.testing.assert_allclose(dW, np.einsum(f"{of_x},{out}->{of_W}", x, dy), **close)


def test_gradients_have_the_dtype_of_their_parameter():
    x, W = (jnp.asarray(drawn(shape, 0), jnp.bfloat16) for shape in CASES[0][1:3])
    y, back = jax.vjp(lambda x, W: matmul.matmul(x, W, dtype=jnp.float32), x, W)
    assert y.dtype == jnp.float32
    assert [g.dtype for g in back(y)] == [jnp.bfloat16] * 2


def test_the_wider_operand_is_not_transposed():
    x, W = drawn((2, 3, 4), 0), drawn((4, 50), 1)
    program = jax.make_jaxpr(jax.grad(lambda x, W: matmul.matmul(x, W).sum(), argnums=1))(x, W)
    (gradient,) = [e for e in program.eqns if e.outvars == program.jaxpr.outvars]
    assert gradient.primitive.name == "dot_general"
    assert gradient.invars[0].aval.shape == x.shape


def agree(fast, plain, *arguments, tolerance=1e-5):
    """Asserts that values, and gradients of their product with a random array, are equal."""
    y, back = jax.vjp(fast, *arguments)
    expected, plain_back = jax.vjp(plain, *arguments)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    g = drawn(y.shape, 9).astype(y.dtype)
    for x, z in zip(back(g), plain_back(g), strict=True):
        if x.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(x, z, rtol=tolerance, atol=tolerance)


def test_target_logit_equals_its_plain_definition():
    target = jnp.asarray(np.random.default_rng(0).integers(0, 11, (2, 7)))
    logits = drawn((2, 7, 11), 1)
    agree(
        lambda z: target_logit.target_logit(z, target),
        lambda z: target_logit.plain(z, target),
        logits,
    )


@pytest.mark.parametrize("gpu", [False, True])
def test_additive_scores_equal_their_plain_definition(gpu, monkeypatch):
    monkeypatch.setattr(additive_scores, "on_gpu", lambda: gpu)
    q, k, v = drawn((3, 2, 4, 5), 0), drawn((3, 2, 4, 7), 1), drawn((3, 4), 2)
    agree(additive_scores.additive_scores, additive_scores.plain, q, k, v)


def test_nan_guard_equals_attention_over_each_prefix():
    def attend(q, k, v):
        T = q.shape[1]
        scores = jnp.where(
            np.tri(T, dtype=bool)[None, None], jnp.einsum("bthd,bshd->bhts", q, k), -1e9
        )
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)

    q, k, v = (drawn((2, 5, 3, 4), i) for i in range(3))
    v = v.at[0, 3, 1].set(jnp.nan)
    guarded = nan_guard.nan_guard(attend, q, k, v, np.ones((2, 5), bool))
    plain = nan_guard.plain(attend, q, k, v)
    np.testing.assert_array_equal(np.isnan(guarded), np.isnan(plain))
    np.testing.assert_allclose(guarded, plain, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    V=st.sampled_from([1, 5, 63, 64, 257, 640, 1001]),
    k=st.sampled_from([1, 4, 7]),
    values=st.sampled_from([20, 400, 10**6]),  # many ties, some, none
    first=st.sampled_from([0, 3]),
)
def test_top_k_is_the_start_of_a_stable_sort(seed, V, k, values, first):
    x = np.random.default_rng(seed).integers(-values, 0, (3, V)).astype(np.float32)
    x[:, :first] = 1  # the largest values, but excluded
    masked = np.where(np.arange(V) >= first, x, -np.inf)
    k = min(k, V)
    order = np.argsort(-masked, axis=1, kind="stable")[:, :k]
    for f in (top_k.top_k, top_k.plain):
        values, ids = f(jnp.asarray(x), k, first)
        np.testing.assert_array_equal(values, np.take_along_axis(masked, order, axis=1))
        np.testing.assert_array_equal(ids, order)
