"""Constrained outputs are trees with the words of their source, and the likeliest such trees."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.config import Config, Decoding
from t2t_jax.errors import UsageError
from t2t_jax.inference import beam
from t2t_jax.inference.translate import translate_tokens
from t2t_jax.inference.well_formed import Trees, constrain
from t2t_jax.tokens import BOS, EOS
from tests import small

LABELS = "S NP VP".split()
PIECES = ["<pad>", "<s>", "</s>", "<unk>", "▁XX", "(", "▁(", "▁)", "▁(X", "S"]
PIECES += [f"▁{side}{label}" for label in LABELS for side in "()"]
PIECES += ["▁the", "▁do", "g", "s", "▁runs", "▁"]
PIECES += ["x"] * (small.V - len(PIECES))
WORDS = [[16], [17, 18], [17, 18, 19], [20], [21, 3]]  # the subwords of each


def problem(tokens, words):
    """Says what is wrong with the pieces of an output, checked with a stack of labels."""
    stack, count = [], 0
    for n, token in enumerate(tokens):
        text = PIECES[token].removeprefix("▁")
        if n and not stack:
            return "it goes on behind the tree"
        if PIECES[token][0] != "▁":
            return f"{token} is no part of a tree"
        if text == "XX":
            if not stack:
                return "a word stands outside"
            count, stack[-1][1] = count + 1, True
        elif text[:1] == "(" and text[1:]:
            stack.append([text[1:], False])
        elif text[:1] == ")" and stack and stack[-1] == [text[1:], True]:
            stack.pop()
            if stack:
                stack[-1][1] = True
        else:
            return f"{text} closes nothing, or an empty bracket"
    return "brackets are open" if stack else "" if count == words else f"it has {count} words"


ARCHITECTURES = [
    dict(architecture="transformer"),
    dict(architecture="transformer", decoder_attention="linear", positions="learned"),
    dict(architecture="recurrent", attention_feeding="output", cross_attention="additive"),
    dict(architecture="recurrent", cell="gru"),
    dict(architecture="convolutional"),
]


@pytest.mark.parametrize(
    "changes",
    [*ARCHITECTURES[:1], *(pytest.param(x, marks=pytest.mark.full) for x in ARCHITECTURES[1:])],
)
def test_every_output_is_a_tree_with_the_words_of_its_source(changes):
    model, params = small.make(**changes | dict(N=1, max_length=40, batch_tokens=40))
    draw = np.random.default_rng(0)
    chosen = [[WORDS[i] for i in draw.integers(5, size=n)] for n in (1, 1, 2, 3, 5, 7)]
    sources = [[*itertools.chain(*words), EOS] for words in chosen]

    def problems(K, max_extra, rule):
        decoding = Decoding(beam=K, max_extra=max_extra)
        outputs = translate_tokens(model, params, sources, decoding, rule=rule, warn=str)
        assert not rule or not outputs.cut
        pairs = zip(outputs, sources, strict=True)
        assert all(len(output) < len(source) + max_extra for output, source in pairs)
        return {problem(x, len(words)) for x, words in zip(outputs, chosen, strict=True)}

    assert problems(1, 3, None) != {""}
    for K, max_extra in ((1, 3), (3, 17)):
        assert problems(K, max_extra, Trees.of(PIECES)) == {""}


def test_every_walk_along_allowed_tokens_is_a_tree_with_the_words_of_its_source():
    rule, draw, B, longest = Trees.of(PIECES), np.random.default_rng(0), 300, 24
    counts = draw.integers(1, 5, size=B)
    sources = [[x for _ in range(n) for x in WORDS[draw.integers(5)]] for n in counts]
    source = np.array([[*x, EOS] + [0] * (12 - len(x)) for x in sources])
    advance, allowed = jax.jit(jax.vmap(rule.advance)), jax.jit(jax.vmap(rule.allowed))
    state = jax.vmap(rule.start)(jnp.asarray(source), jnp.full(B, longest))
    tokens, walks = np.full(B, BOS), [[] for _ in range(B)]
    for _ in range(longest):
        state = advance(state, jnp.asarray(tokens))
        may = np.asarray(allowed(state))
        tokens = np.where(may.any(axis=1), (may * draw.random(may.shape)).argmax(axis=1), EOS)
        for walk, token in zip(walks, tokens, strict=True):
            if EOS not in walk:
                walk.append(int(token))
    assert len({len(walk) for walk in walks}) > 5
    for walk, words in zip(walks, counts, strict=True):
        assert walk[-1] == EOS
        assert problem(walk[:-1], words) == ""


def searched(step, capacity, K):
    """Returns the likeliest tree that is found for two words, with EOS, and its log-probability."""
    source, limits, rule = jnp.array([[16, 17, 18, EOS]]), jnp.array([capacity]), Trees.of(PIECES)
    state = jnp.zeros(1), jax.vmap(rule.start)(source, limits)
    step = constrain(step, rule, small.V)
    search = partial(beam.search, step, (), capacity=capacity, beam=K, alpha=0.0)
    tokens, score = jax.jit(search)(state=state, max_lengths=limits)
    return tokens[0, : tokens[0].tolist().index(EOS) + 1], score[0]


@pytest.mark.parametrize("seed", [0, *(pytest.param(x, marks=pytest.mark.full) for x in (1, 2))])
def test_a_wide_beam_finds_the_likeliest_tree(seed):
    """A Markov chain over pieces gives every tree of at most eight tokens its probability."""
    table = np.random.default_rng(seed).normal(0, 2, (small.V, small.V)).astype(np.float32)
    log_p = table - np.log(np.exp(table).sum(axis=1, keepdims=True))

    def step(memory, state, tokens, t):
        return jnp.asarray(table)[tokens], state

    likeliest, best = (), -math.inf
    pieces = [4, *range(10, 16)]
    for tree in itertools.chain(*(itertools.product(pieces, repeat=n) for n in (4, 6))):
        if problem(tree, 2) == "":
            path = [BOS, *tree, EOS]
            p = sum(log_p[a, b] for a, b in itertools.pairwise(path))
            likeliest, best = max((likeliest, best), (tree, p), key=lambda x: x[1])
    tokens, score = searched(step, 7, 200)
    assert tokens.tolist() == [*likeliest, EOS]
    np.testing.assert_allclose(score, best, rtol=1e-5)


def test_only_corpora_of_trees_have_the_rule():
    trees = config.replace(Config(), corpus="grammar_trees", target="tree", output_rule="trees")
    assert trees.decoding.output_rule == "trees"
    with pytest.raises(UsageError, match="not for outputs of corpus wmt14"):
        config.replace(Config(), output_rule="trees")
