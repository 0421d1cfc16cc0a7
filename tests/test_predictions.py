"""Perplexity equals its definition in numpy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import perplexity
from t2t_jax.evaluation.predictions import negative_log_likelihood, sentence_likelihoods
from t2t_jax.tokens import BOS, EOS, PAD

V, WIDTH = 11, 5


class Bag:
    """A model that predicts the next token from the last one and the mean of the source."""

    masked = False

    def apply(self, variables, *args, method):
        return getattr(self, method)(variables["params"], *args)

    def encode(self, params, source):
        real = (source != PAD)[:, :, None]
        count = jnp.maximum(real.sum(axis=1), 1)
        return jnp.where(real, params["E"][source], 0).sum(axis=1) / count

    def decode(self, params, encoded, target_in):
        x = params["E"][target_in] + encoded[:, None]
        return jnp.einsum("btd,vd->btv", x, params["W"])


def make(seed=0, pairs=7):
    rng = np.random.default_rng(seed)
    params = {"E": rng.normal(size=(V, WIDTH)), "W": 2 * rng.normal(size=(V, WIDTH))}
    params = {name: x.astype(np.float32) for name, x in params.items()}

    def sentence():
        return [*rng.integers(3, V, rng.integers(1, 9)), EOS]

    return params, [(sentence(), sentence()) for _ in range(pairs)]


def expected(params, pairs):
    E, W = (params[name].astype(np.float64) for name in "EW")
    nll, tokens = 0.0, 0
    for source, target in pairs:
        context = E[source].mean(axis=0)
        for before, token in zip([BOS, *target], target, strict=False):
            logits = W @ (E[before] + context)
            nll += np.log(np.exp(logits).sum()) - logits[token]
            tokens += 1
    return nll, tokens


def batch(pairs, S, T, rows=None):
    source = np.full((rows or len(pairs), S), PAD, np.int32)
    target = np.full((rows or len(pairs), T), PAD, np.int32)
    for i, (s, t) in enumerate(pairs):
        source[i, : len(s)], target[i, : len(t)] = s, t
    return {"source": source, "target": target}


def perplexity_of(params, batches):
    """Perplexity of batches whose every row is a sentence, in order."""
    first, numbered = 0, []
    for each in batches:
        numbered.append((np.arange(first, first := first + len(each["target"])), each))
    return perplexity(sentence_likelihoods(Bag(), params, numbered).sum(axis=0))


def test_likelihoods_are_in_the_order_of_the_sentences():
    params, pairs = make(3)
    parts = [4, 0, 6], [5], [2, 1, 3]
    batches = [(np.array(p), batch([pairs[i] for i in p], 9 + p[0], 10, rows=5)) for p in parts]
    each = [expected(params, [pair]) for pair in pairs]
    np.testing.assert_allclose(sentence_likelihoods(Bag(), params, batches), each, rtol=1e-6)


def test_perplexity_averages_over_tokens_and_not_over_batches():
    params, pairs = make(1)
    nll, tokens = expected(params, pairs)
    batches = [batch(pairs[:1], 9, 9, 3), batch(pairs[1:3], 10, 11), batch(pairs[3:], 9, 20, 5)]
    actual = perplexity_of(params, iter(batches))
    assert actual == pytest.approx(np.exp(nll / tokens), rel=1e-6)


def test_many_small_batches_lose_no_precision():
    """301 equal batches have exactly the perplexity of one; float32 sums would round."""
    params, pairs = make(2, pairs=1)
    nll, tokens = (float(x[0]) for x in negative_log_likelihood(Bag(), params, batch(pairs, 9, 9)))
    actual = perplexity_of(params, [batch(pairs, 9, 9)] * 301)
    assert actual == np.exp(nll / tokens)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary():
    params, pairs = make()
    params["W"] = np.zeros_like(params["W"])
    assert perplexity_of(params, [batch(pairs, 9, 9)]) == pytest.approx(V, rel=1e-6)


def test_a_diverged_model_has_infinite_or_nan_perplexity():
    params, pairs = make()
    wild = jax.tree.map(lambda x: x * 1e4, params)
    assert perplexity_of(wild, [batch(pairs, 9, 9)]) == np.inf
    broken = jax.tree.map(lambda x: x * np.nan, params)
    assert np.isnan(perplexity_of(broken, [batch(pairs, 9, 9)]))


@pytest.mark.parametrize("batches", [[], [batch([], 4, 4, rows=2)]])
def test_no_sentence_pair_is_refused(batches):
    with pytest.raises(UsageError, match="at least one sentence pair"):
        perplexity_of(make()[0], batches)
