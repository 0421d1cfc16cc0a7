"""One stack of Figure 1 as a language model: its training targets and its perplexity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Config, replace
from t2t_jax.evaluation.metrics import perplexity
from t2t_jax.evaluation.predictions import sentence_likelihoods
from t2t_jax.models import build
from t2t_jax.training.sharding import make_mesh, use_mesh
from t2t_jax.training.step import MASK, MASKED, hyper, initialise, make_step, mask
from tests.reference.transformer import language_model
from tests.small import SENTENCES, SOURCE, TARGET, TRANSFORMER, V, make


def test_a_masked_model_predicts_every_token_from_all_others():
    """In plain numpy, the predicted token is masked and all other tokens are visible."""
    model, params = make(architecture="encoder")
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    total = 0.0
    for _, target in SENTENCES:
        for i, word in enumerate(target):
            masked = [MASK if j == i else x for j, x in enumerate(target)]
            z = language_model(exact, None, masked, causal=False)[i]
            total += np.logaddexp.reduce(z) - z[word]
    tokens = sum(len(target) for _, target in SENTENCES)
    batch = {"source": np.asarray(SOURCE), "target": np.asarray(TARGET)}
    numbered = [(np.arange(len(SENTENCES)), batch)]
    actual = perplexity(sentence_likelihoods(model, params, numbered).sum(axis=0))
    np.testing.assert_allclose(actual, np.exp(total / tokens), 1e-5)


@pytest.mark.full
def test_a_masked_model_learns_from_masked_tokens_alone():
    target = jnp.array([[5, 6, 7, 2, 0], [8, 2, 0, 0, 0]])
    chosen = jnp.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0]], bool)
    masked, labels = mask(target, chosen)
    np.testing.assert_array_equal(masked, [[MASK, 6, MASK, 2, 0], [8, MASK, 0, 0, 0]])
    np.testing.assert_array_equal(labels, [[5, 0, 7, 0, 0], [0, 2, 0, 0, 0]])
    c = replace(Config(), architecture="encoder", **TRANSFORMER | dict(N=1), max_length=64)
    model = build(c, V)
    step, mesh = jax.jit(make_step(model, c)), make_mesh()
    rows = jnp.tile(jnp.arange(4, 20)[None], (64, 1))
    batch = {"source": rows, "target": rows}
    with use_mesh(mesh):
        _, metrics = step(initialise(model, c, mesh), batch, hyper(c))
    assert metrics.target_tokens / rows.size == pytest.approx(MASKED, abs=0.05)
