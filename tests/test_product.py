"""Products with a parameter, and their gradients, against einsum in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.models.product import product

CASES = [  # forward, x, W, summed axes
    ("btd,df->btf", (2, 3, 4), (4, 5), 1),
    ("btm,mhd->bthd", (2, 3, 4), (4, 5, 6), 1),
    ("bthd,hdm->btm", (2, 3, 4, 5), (4, 5, 6), 2),
]


def drawn(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("equation", "x", "W", "summed"), CASES)
def test_a_product_and_its_gradients_are_einsums(equation, x, W, summed):
    x, W = drawn(x, 0), drawn(W, 1)
    y, back = jax.vjp(lambda x, W: product(x, W, summed), x, W)
    dy = drawn(y.shape, 2)
    sides, out = equation.split("->")
    of_x, of_W = sides.split(",")
    close = dict(rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, np.einsum(equation, x, W), **close)
    dx, dW = back(dy)
    np.testing.assert_allclose(dx, np.einsum(f"{out},{of_W}->{of_x}", dy, W), **close)
    np.testing.assert_allclose(dW, np.einsum(f"{of_x},{out}->{of_W}", x, dy), **close)


def test_gradients_have_the_types_of_what_they_are_of():
    x, W = (jnp.asarray(drawn(shape, 0), jnp.bfloat16) for shape in CASES[0][1:3])
    y, back = jax.vjp(lambda x, W: product(x, W, wide=jnp.float32), x, W)
    assert y.dtype == jnp.float32
    assert [g.dtype for g in back(y)] == [jnp.bfloat16] * 2


def test_what_is_wide_is_not_transposed():
    x, W = drawn((2, 3, 4), 0), drawn((4, 50), 1)
    program = jax.make_jaxpr(jax.grad(lambda x, W: product(x, W).sum(), argnums=1))(x, W)
    (gradient,) = [e for e in program.eqns if e.outvars == program.jaxpr.outvars]
    assert gradient.primitive.name == "dot_general"
    assert gradient.invars[0].aval.shape == x.shape
