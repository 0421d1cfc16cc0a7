"""Beam search equals brute force and a slow search written from its definition."""

import itertools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.inference import beam as beam_search
from t2t_jax.tokens import BOS, EOS, PAD, UNK

FULL = pytest.mark.full


def lp(length, alpha):
    return ((5 + length) / 6) ** alpha


def chain_step(memory, state, tokens, t):
    """Steps a Markov chain; `memory` [B, P, V, V] has its log-probabilities, with period P."""
    return memory[jnp.arange(len(tokens)), t % memory.shape[1], tokens], state


def histories_step(memory, state, tokens, t):
    """Steps a model whose state is the whole prefix; the next token depends on a hash of it."""
    del t
    weights, V = memory
    prefix = jnp.concatenate([state[:, 1:], tokens[:, None]], axis=1)
    return jax.vmap(partial(prefix_logits, V=V.shape[1]))(prefix, weights), prefix


def prefix_logits(prefix, weights, V):
    hashed = (prefix * weights).sum() % 1009
    return jnp.sin(hashed.astype(jnp.float32) * (1 + jnp.arange(V))) * 3


def random_chains(seed, B, V, temperature=1.5):
    """Returns log-probabilities with period 5, so that reordered transitions do not tie."""
    logits = np.random.default_rng(seed).normal(size=(B, 5, V, V)) * temperature
    return np.array(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32)))


def chain(log_p):
    """Returns one sentence's model as a function of the prefix, for the oracles."""
    return lambda prefix: log_p[(len(prefix) - 1) % len(log_p), prefix[-1]]


@partial(jax.jit, static_argnames=("step", "capacity", "beam"))
def run(step, memory, state, max_lengths, alpha, *, capacity, beam):
    options = {"capacity": capacity, "beam": beam}
    return beam_search.search(step, memory, state, max_lengths=max_lengths, alpha=alpha, **options)


def search_chains(log_p, max_lengths, beam, alpha, capacity=None):
    max_lengths = np.asarray(max_lengths, np.int32)
    capacity = capacity or int(max_lengths.max())
    tokens, scores = run(
        chain_step, log_p, (), max_lengths, np.float32(alpha), capacity=capacity, beam=beam
    )
    return [strip(row) for row in np.asarray(tokens)], np.asarray(scores)


def strip(row):
    """Returns the tokens of a padded row and checks that only padding follows them."""
    row = [int(x) for x in row]
    length = next((i for i, x in enumerate(row) if x == PAD), len(row))
    assert all(x == PAD for x in row[length:])
    assert EOS not in row[: length - 1]
    return row[:length]


def optimum(model, V, max_length, alpha):
    """Returns the best score of all sequences that end in EOS, and the sequence."""
    candidates = []
    for n in range(max_length):
        for words in itertools.product(range(UNK, V), repeat=n):
            sequence = [BOS, *words, EOS]
            total = sum(float(model(sequence[: i + 1])[x]) for i, x in enumerate(sequence[1:]))
            candidates.append((total / lp(n + 1, alpha), sequence[1:]))
    return max(candidates)


def slow_search(model, V, max_length, K, alpha, early=True):
    """Searches one sentence as `search`'s docstring defines it, with lists in float64."""
    living, finished = [(0.0, [BOS])], []
    for n in range(1, max_length + 1):
        ranked = sorted(
            (
                (total + float(log_p[x]), [*prefix, x])
                for total, prefix in living
                for log_p in [model(prefix)]
                for x in range(EOS, V)
            ),
            key=lambda candidate: -candidate[0],
        )
        finished += [(p / lp(n, alpha), s[1:]) for p, s in ranked[:K] if s[-1] == EOS]
        living = [(p, s) for p, s in ranked if s[-1] != EOS][:K]
        if len(finished) >= K and max(finished)[0] >= living[0][0] / lp(n, alpha):
            break
        if early and finished and living[0][0] / lp(max_length, alpha) <= max(finished)[0]:
            break
    if finished:
        return max(finished)
    return living[0][0] / lp(max_length, alpha), living[0][1][1:]


A, B, C, D = UNK, UNK + 1, UNK + 2, UNK + 3


def known_chain():
    """Returns a chain where greedy takes A EOS (0.6 x 0.3) but the best path is B D (0.4 x 0.9)."""
    P = np.full((7, 7), 1e-9)
    P[BOS, [A, B]] = 0.6, 0.4
    P[A, [A, B, C, D, EOS]] = 0.2, 0.15, 0.15, 0.2, 0.3
    P[B, [D, EOS]] = 0.9, 0.1
    P[C, EOS] = 1
    P[D, EOS] = 1
    return np.log(P / P.sum(axis=1, keepdims=True))[None, None].astype(np.float32)


@pytest.mark.parametrize(
    ("beam", "path", "probability"), [(1, [A, EOS], 0.18), (2, [B, D, EOS], 0.36)]
)
def test_the_best_path_of_a_known_chain_is_found(beam, path, probability):
    tokens, scores = search_chains(known_chain(), [5], beam, alpha=0.0)
    assert tokens == [path]
    np.testing.assert_allclose(np.exp(scores), [probability], rtol=1e-5)


@pytest.mark.parametrize(
    ("alpha", "path", "score"),
    [(0.0, [A, EOS], np.log(0.52)), (1.0, [B, C, D, EOS], np.log(0.48) / (9 / 6))],
)
def test_the_length_penalty_favours_longer_outputs(alpha, path, score):
    """A EOS has 0.52, B C D EOS 0.48; with alpha 1 they score -0.56 and -0.49."""
    P = np.zeros((7, 7))
    P[:, EOS] = 1
    P[BOS, [A, B, EOS]] = 0.52, 0.48, 0
    P[B, [C, EOS]] = P[C, [D, EOS]] = 1, 0
    with np.errstate(divide="ignore"):
        log_p = np.log(P)[None, None].astype(np.float32)
    tokens, scores = search_chains(log_p, [6], 2, alpha)
    assert tokens == [path]
    np.testing.assert_allclose(scores, [score], rtol=1e-5)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    temperature=st.sampled_from([0.2, 1.0, 4.0]),
)
def test_a_beam_as_wide_as_the_search_space_is_exact(seed, alpha, temperature):
    V, lengths = UNK + 3, [4, 2, 3]  # 1 + 3 + 9 + 27 sequences of at most 4 tokens
    log_p = random_chains(seed, len(lengths), V, temperature)
    tokens, scores = search_chains(log_p, lengths, 40, alpha)
    for row, score, chances, n in zip(tokens, scores, log_p, lengths, strict=True):
        best, path = optimum(chain(chances), V, n, alpha)
        assert row == path
        np.testing.assert_allclose(score, best, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
    K=st.sampled_from([1, 2, 3, 5]),  # one is greedy
    temperature=st.sampled_from([0.3, 1.5, 4.0]),
)
def test_search_equals_its_definition(seed, alpha, K, temperature):
    """The oracle does not stop at the bound on scores, because that changes no result."""
    V, lengths = 8, [9, 1, 6, 13]
    log_p = random_chains(seed, len(lengths), V, temperature)
    tokens, scores = search_chains(log_p, lengths, K, alpha)
    for row, score, chances, n in zip(tokens, scores, log_p, lengths, strict=True):
        best, path = slow_search(chain(chances), V, n, K, alpha, early=False)
        assert row == path
        np.testing.assert_allclose(score, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("K", [1, 3, pytest.param(4, marks=FULL)])
def test_the_state_follows_its_hypothesis(K):
    """Every next token depends on the whole prefix, which only the state holds."""
    batch, V, n = 5, 11, 9
    weights = np.random.default_rng(0).integers(1, 97, (batch, n)).astype(np.int32)
    memory = (weights, np.zeros((batch, V), np.int8))
    start = np.zeros((batch, n), np.int32)
    lengths = np.array([9, 3, 8, 9, 5], np.int32)
    alpha = np.float32(0.6)
    tokens, scores = run(histories_step, memory, start, lengths, alpha, capacity=n, beam=K)

    def model(weights, prefix):
        padded = jnp.asarray([0] * (n - len(prefix)) + list(prefix))
        return np.asarray(jax.nn.log_softmax(prefix_logits(padded, weights, V)))

    results = np.asarray(tokens), np.asarray(scores), weights, lengths
    for row, score, w, longest in zip(*results, strict=True):
        best, path = slow_search(partial(model, w), V, longest, K, 0.6, early=False)
        assert strip(row) == path
        np.testing.assert_allclose(score, best, rtol=1e-4)


def test_a_result_does_not_depend_on_the_rest_of_the_batch():
    lengths, V, K = [12, 3, 0, 7, 20], 13, 4
    log_p = random_chains(3, len(lengths), V, temperature=0.7)
    tokens, scores = search_chains(log_p, lengths, K, 0.6)
    assert tokens[2] == []
    for i in (0, 1, 3, 4):
        others = random_chains(100 + i, len(lengths), V, temperature=3.0)
        others[i] = log_p[i]
        among = [9, 17, 1, 13, 5]
        among[i] = lengths[i]
        again, score = search_chains(others, among, K, 0.6, capacity=20)
        assert again[i] == tokens[i]
        assert score[i] == scores[i]
        alone, score = search_chains(log_p[i : i + 1], lengths[i : i + 1], K, 0.6, capacity=31)
        assert alone == [tokens[i]]
        np.testing.assert_allclose(score, scores[i : i + 1], rtol=1e-6)


def count_steps(log_p, max_length, beam, alpha):
    """Returns how many steps the search takes."""
    seen = []

    def step(memory, state, tokens, t):
        jax.debug.callback(lambda t: seen.append(int(t)), t)
        return chain_step(memory, state, tokens, t)

    lengths = np.array([max_length], np.int32)
    out = run(step, log_p, (), lengths, np.float32(alpha), capacity=max_length, beam=beam)
    jax.block_until_ready(out)
    jax.effects_barrier()
    return max(seen) + 1


def test_search_stops_when_no_open_hypothesis_can_win():
    """A EOS has 0.9 after two steps; the open hypothesis has 0.1 and never ends, and alpha is 0."""
    P = np.zeros((6, 6))
    P[:, EOS] = 1
    P[BOS, [A, B, EOS]] = 0.9, 0.1, 0
    P[B, [B, EOS]] = 1, 0
    with np.errstate(divide="ignore"):
        log_p = np.log(P)[None, None].astype(np.float32)
    assert count_steps(log_p, 50, beam=2, alpha=0.0) == 2


def test_search_stops_when_K_hypotheses_have_finished():
    """After two steps A EOS and B EOS have 0.3 each; with alpha 1 others of 0.2 could still win."""
    P = np.full((6, 6), 1e-9)
    P[BOS, [A, B, C]] = 0.5, 0.5, 1e-6
    P[[A, B, C], EOS], P[[A, B, C], C] = 0.6, 0.4
    log_p = np.log(P / P.sum(axis=1, keepdims=True))[None, None].astype(np.float32)
    assert count_steps(log_p, 50, beam=2, alpha=1.0) == 2
    assert count_steps(log_p, 50, beam=3, alpha=1.0) > 2


@pytest.mark.parametrize("K", [1, 5, *(pytest.param(K, marks=FULL) for K in (2, 40))])
def test_every_sentence_has_its_own_max_length(K):
    """EOS is impossible, so every hypothesis reaches its limit."""
    lengths, V = [4, 9, 1], 8
    log_p = random_chains(1, len(lengths), V)
    log_p[..., EOS] = -np.inf
    log_p[..., [PAD, BOS]] = 5.0  # likely, but never allowed
    tokens, _ = search_chains(log_p, lengths, K, 0.6, capacity=10)
    assert [len(row) for row in tokens] == lengths
    assert all(x >= UNK for row in tokens for x in row)


def test_only_the_best_candidates_are_sorted():
    """On a CPU, XLA compiles `top_k` without a full sort only if all its outputs are used alike."""
    V, K = 1000, 4
    memory, lengths = np.zeros((2, 1, V, V), np.float32), np.array([3, 4], np.int32)
    lowered = run.lower(chain_step, memory, (), lengths, np.float32(0.6), capacity=4, beam=K)
    text = lowered.compile().as_text()
    shapes = re.findall(r"%sort\S* = \(?\w+\[([\d,]+)\]", text)
    assert {int(shape.split(",")[-1]) for shape in shapes} <= {K}
    assert "TopK" in text
