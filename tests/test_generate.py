"""Continuation of a text by a language model: what is drawn, and from which distribution."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from t2t_jax.inference.sample import Choice, choose, generate, positions
from t2t_jax.tokens import BOS, EOS
from tests.small import V, make

GREEDY = Choice(0.0, V, 1.0)


def allowed(logits, choice):
    """Returns the distribution of a token in plain numpy, by sorting and summing."""
    z = np.where(np.arange(len(logits)) < 2, -np.inf, logits / choice.temperature)
    p = np.exp(z - np.logaddexp.reduce(z))
    order, total, kept = np.argsort(-p), 0.0, []
    for i in order[: choice.top_k]:
        if total < choice.top_p:
            kept.append(i)
        total += p[i]
    q = np.where(np.isin(np.arange(len(p)), kept), p, 0)
    return q / q.sum()


@pytest.mark.parametrize(
    "choice", [Choice(1.0, V, 1.0), Choice(0.7, 4, 1.0), Choice(1.5, V, 0.6), Choice(1.0, 5, 0.8)]
)
def test_tokens_are_drawn_from_the_distribution_that_is_left(choice):
    logits, n = np.random.default_rng(0).normal(size=11), 20_000
    drawn = jax.jit(choose)(jnp.tile(logits, (n, 1)), jax.random.key(1), choice)
    counts, p = np.bincount(np.asarray(drawn), minlength=11), allowed(logits, choice)
    assert not counts[p == 0].any()
    assert stats.chisquare(counts[p > 0], n * p[p > 0]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("mechanism", "positions"),
    [
        ("linear", "sinusoid"),
        pytest.param("scaled_dot_product", "alibi", marks=pytest.mark.full),
        pytest.param("local:w=2,gated_delta", "learned", marks=pytest.mark.full),
    ],
)
def test_decoding_step_by_step_gives_the_logits_of_teacher_forcing(mechanism, positions):
    changes = dict(decoder_attention=mechanism, positions=positions)
    model, params = make(architecture="decoder", **changes)
    inputs = np.array([[BOS, 5, 9, 2, 23, 11]])
    whole = model.apply({"params": params}, None, inputs, method="decode")
    _, state = model.apply({"params": params}, inputs[:, :1], 6, method="start")
    step = jax.jit(partial(model.apply, method="step"))
    for t, token in enumerate(inputs.T):
        logits, state = step({"params": params}, None, state, token, jnp.int32(t))
        np.testing.assert_allclose(logits, whole[:, t], atol=1e-5)


@pytest.mark.full
def test_greedy_generation_takes_the_largest_logit_of_the_whole_text():
    model, params = make(architecture="decoder", max_length=64)
    tokens = prompt = [BOS, EOS, 7, 28]
    for _ in range(40):
        padded = np.array([tokens + [5] * (64 - len(tokens))])
        z = np.array(model.apply({"params": params}, None, padded, method="decode"))
        tokens = [*tokens, int(z[0, len(tokens) - 1, 2:].argmax()) + 2]
    drawn = [x for part in generate(model, params, prompt, 40, 0, GREEDY) for x in part]
    expected = tokens[len(prompt) :]
    assert drawn == (expected[: expected.index(EOS)] if EOS in expected else expected)
    alike = Choice(1.0, 1, 1.0)
    assert [x for part in generate(model, params, prompt, 40, 3, alike) for x in part] == drawn


def test_a_seed_draws_the_same_text_again():
    model, params = make(architecture="decoder")
    params = jax.tree.map(lambda x: x * 0.1, params)  # a flat distribution

    def draw(seed, length):
        parts = generate(model, params, [BOS, 7], length, seed, Choice(1.0, V, 1.0))
        return [x for part in parts for x in part]

    assert draw(5, 40) == draw(5, 40) != draw(6, 40)
    assert draw(5, 40)[:7] == draw(5, 7)
    assert len(draw(5, 7)) <= 7


def test_a_text_has_all_positions_of_a_mechanism():
    model, params = make(architecture="decoder", decoder_attention="local:w=3,cosformer:M=70")
    assert positions(model) == 70
    length = len([x for part in generate(model, params, [BOS, 7], 68, 0, GREEDY) for x in part])
    assert 0 < length <= 68
