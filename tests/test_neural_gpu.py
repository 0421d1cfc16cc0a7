"""The model of experiments/neural_gpu.py equals its definition, and its sums are right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Config, replace
from t2t_jax.runs import study_file
from t2t_jax.study.declaration import EXPERIMENTS
from tests.reference import neural_gpu
from tests.small import SENTENCES, SOURCE, TARGET, check_decoding, full_logits, make
from tests.test_flops import check_products
from tests.test_own_parts import stepped

FILE = EXPERIMENTS / "neural_gpu.py"


@pytest.fixture(scope="module", autouse=True)
def file():
    return study_file.load(FILE)


def test_the_model_equals_its_definition():
    """The targets are shorter and longer than the sources, and padding is on both sides."""
    model, params = make(architecture="neural_gpu")
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    for row, (source, target) in zip(full_logits(model, params), SENTENCES, strict=True):
        expected = neural_gpu.logits(p, source, [1, *target[:-1]], N=2, w=2)
        np.testing.assert_allclose(row[: len(target)], expected, rtol=1e-4, atol=1e-4)


def test_decoding_equals_teacher_forcing():
    check_decoding(*make(architecture="neural_gpu"))


@pytest.mark.full
def test_a_step_trains_every_parameter():
    c = replace(
        Config(), architecture="neural_gpu", N=2, d_model=12, max_length=13, batch_tokens=99
    )
    state, _ = stepped(c, {"source": SOURCE, "target": TARGET})
    for path, moment in jax.tree_util.tree_leaves_with_path(state.optimizer.mu):
        assert jnp.any(moment != 0), path


def test_the_model_costs_what_it_declares():
    check_products(architecture="neural_gpu", N=3)


def test_numbers_add_up(file):
    def number(digits):
        return sum(int(digit) * 4**i for i, digit in enumerate(digits))

    for split, least, most in (("train", 1, 4), ("test", 3, 4), ("test2x", 5, 8)):
        lengths = set()
        for source, target in file.addition(split, length=8):
            x, y = (text.split() for text in source.split(" + "))
            assert number(x) + number(y) == number(target.split())
            lengths |= {len(x), len(y), len(target.split()) - 1}
        assert lengths == {*range(least, most + 1)}
    train, test = ({*file.addition(split, length=8)} for split in ("train", "test"))
    assert not train & test
