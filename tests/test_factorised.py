"""Cells of experiments/factorised.py equal their definitions, decode as they train, and cost."""

import jax
import numpy as np
import pytest

from t2t_jax.config import Config, replace
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.runs import study_file
from t2t_jax.study.declaration import EXPERIMENTS
from tests.reference import recurrent
from tests.small import SENTENCES, check_decoding, full_logits, make
from tests.test_flops import check_products

FILE = EXPERIMENTS / "factorised.py"
CELLS = "f_lstm", "g2_lstm", "g4_lstm"
DOT = dict(attention_feeding="output", cross_attention="dot_product", encoder_direction="both")


@pytest.fixture(scope="module", autouse=True)
def file():
    study_file.load(FILE)


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_equals_its_definition(cell):
    model, params = make(architecture="recurrent", cell=cell, d_model=16, **DOT)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    for row, (source, target) in zip(full_logits(model, params), SENTENCES, strict=True):
        options = dict(cell=cell, feed="output", both=True, scores="dot")
        expected = recurrent.logits(p, source, [1, *target[:-1]], **options)
        np.testing.assert_allclose(row[: len(target)], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_decoding_equals_teacher_forcing(cell):
    check_decoding(*make(architecture="recurrent", cell=cell, attention_feeding="input"))


@pytest.mark.parametrize("changes", [{}, DOT], ids=["plain", "dot"])
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_costs_what_it_declares(cell, changes):
    check_products(architecture="recurrent", cell=cell, N=3, d_model=16, **changes)


def test_groups_divide_the_width():
    model = build(replace(Config(), architecture="recurrent", cell="g4_lstm", N=1, d_model=10), 9)
    with pytest.raises(UsageError, match="4 groups do not divide a width of 10"):
        jax.eval_shape(model.init, jax.random.key(0), np.ones((1, 2), int), np.ones((1, 3), int))
