"""Translation from text to text, with models whose translations are known."""

import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Decoding
from t2t_jax.data.cache import ragged
from t2t_jax.inference import translate as translating
from t2t_jax.inference.translate import translate, translate_tokens
from t2t_jax.tokens import EOS, PAD, UNK
from t2t_jax.training import sharding

LETTERS = "abcdefghijklmnopqrst"
PARAMS = {"scale": np.float32(9.0)}


class Letters:
    """A vocabulary of single letters, without spaces."""

    size = UNK + 1 + len(LETTERS)

    def encode(self, sentences):
        return [[UNK + 1 + LETTERS.index(c) for c in s if c != " "] for s in sentences]

    def decode(self, rows):
        return ["".join(LETTERS[i - UNK - 1] for i in row) for row in rows]


class Reverse:
    """A model that reverses the source. Its state has the size of a cache."""

    def __init__(self, limit=None):
        self.limit = limit

    def apply(self, variables, *args, method):
        return getattr(self, method)(variables["params"]["scale"], *args)

    def encode(self, scale, source):
        return source

    def start(self, scale, source, capacity):
        memory = {"source": source, "length": (source != PAD).sum(axis=1)}
        return memory, jnp.zeros((len(source), capacity, 3))

    def step(self, scale, memory, state, tokens, t):
        i = memory["length"] - 2 - t
        token = jnp.take_along_axis(memory["source"], jnp.maximum(i, 0)[:, None], axis=1)[:, 0]
        logits = scale * jax.nn.one_hot(jnp.where(i >= 0, token, EOS), Letters.size)
        return logits, state.at[:, t].add(1)


class Endless(Reverse):
    """A model that reverses the source and never ends."""

    def step(self, *args):
        logits, state = super().step(*args)
        return logits.at[:, EOS].set(-1e4), state


def sentences(count, longest, seed=0):
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, longest))) for _ in range(count)]


@pytest.mark.parametrize(
    ("K", "many"),
    [(1, 2048), (3, 128)],
)
def test_results_are_in_the_order_of_the_input(K, many, monkeypatch):
    monkeypatch.setattr(translating, "_MANY", many)
    inputs = sentences(150, 40)
    inputs[0] = inputs[70] = ""
    inputs[31] = "   "
    outputs = translate(Reverse(), PARAMS, inputs, Letters(), Decoding(beam=K))
    assert outputs == [s.strip()[::-1] for s in inputs]


def test_empty_inputs_have_empty_outputs():
    assert translate(Reverse(), PARAMS, [], Letters(), Decoding()) == []
    assert translate(Reverse(), PARAMS, ["", " \t"], Letters(), Decoding()) == ["", ""]
    assert not list(translating._batches(ragged([[], [EOS]]), 10**6))


@pytest.mark.parametrize(("K", "extra"), [(1, 50), (4, 50), (2, 0)])
def test_an_output_is_at_most_max_extra_longer_than_its_input(K, extra):
    inputs = ["abc", "c", LETTERS[:15], "ab"]  # the longest fills its batch's 16 positions
    decoding = Decoding(beam=K, max_extra=extra)
    said = []
    outputs = translate(Endless(), PARAMS, inputs, Letters(), decoding, warn=said.append)
    assert outputs.cut == [0, 1, 2, 3]
    assert f"4 lines (1, 2, 3, 4) of 4: translations are cut at {extra} " in said[0]
    assert [len(o) - len(i) for i, o in zip(inputs, outputs, strict=True)] == [extra] * 4
    assert all(o.startswith(i[::-1]) for i, o in zip(inputs, outputs, strict=True))


def test_tokens_may_be_lists_or_arrays():
    ids = [[*row, EOS] for row in Letters().encode(sentences(9, 30))]
    expected = [row[-2::-1] for row in ids]
    arrays = [np.array(row, np.uint16) for row in ids]
    for rows in (ids, arrays):
        assert translate_tokens(Reverse(), PARAMS, rows, Decoding(beam=2)) == expected


def test_few_shapes_are_each_compiled_once():
    model, inputs = Reverse(), sentences(400, 120)
    before = translating.decode._cache_size()
    outputs = translate(model, PARAMS, inputs, Letters(), Decoding(beam=2))
    assert outputs == [s[::-1] for s in inputs]
    compiled = translating.decode._cache_size() - before
    assert compiled == 2  # of 128 and of 32
    changed = {"scale": np.float32(5.0)}
    decoding = Decoding(beam=2, alpha=0.1)
    translate(model, changed, sentences(400, 120, seed=1), Letters(), decoding)
    assert translating.decode._cache_size() - before == compiled


def test_every_sentence_is_in_exactly_one_batch_and_padded():
    ids = [[*row, EOS] for row in Letters().encode(sentences(300, 200))]
    seen = []
    for rows, source in translating._batches(ragged(ids), 10**6):
        assert source.shape[0] >= len(rows)
        assert not source[len(rows) :].any()
        for i, row in zip(rows, source, strict=False):
            assert row.tolist() == ids[i] + [PAD] * (source.shape[1] - len(ids[i]))
        seen += rows
    assert sorted(seen) == list(range(300))
    [(_, source)] = translating._batches(ragged([[5, 6, EOS]]), 10**6)
    assert source.shape == (1, 16)


@pytest.mark.parametrize(
    ("lines", "longest", "expected"),
    [
        ("abcdefg abcdefgh ab", None, ["line 2 has 9 subwords .* at most 8"]),  # EOS counted
        ("abcdefgh ab abcdefghij abcdefgh", None, [r"3 lines \(1, 3, 4\) have up to 11 subwords"]),
        (
            "abcdefgh " * 12,
            None,
            [r"12 lines \(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, \.\.\.\) have up"],
        ),
        ("ab abcdefghijk", 10, ["line 2 has 12 subwords .* 10 positions"]),
        (
            "abcdefghij abcdefghijk abcdefgh",
            10,
            [r"2 lines \(1, 2\) have up to 12 subwords .* 10 positions", "line 3 has 9 subwords"],
        ),
    ],
)
def test_long_lines_are_named_and_cut_to_the_positions(lines, longest, expected):
    """The model was trained on at most 8 subwords."""
    warnings, inputs = [], lines.split()
    limits = dict(max_length=8, warn=warnings.append)
    outputs = translate(Reverse(longest), PARAMS, inputs, Letters(), Decoding(), **limits)
    assert outputs == [s[: longest and longest - 1][::-1] for s in inputs]
    assert len(warnings) == len(expected)
    for warning, words in zip(warnings, expected, strict=True):
        assert re.search(words, warning), warning


class HalfEndless(Reverse):
    """A model that does not end translations of sentences that begin with the first letter."""

    def step(self, scale, memory, state, tokens, t):
        logits, state = super().step(scale, memory, state, tokens, t)
        endless = memory["source"][:, 0] == UNK + 1
        return logits.at[:, EOS].set(jnp.where(endless, -1e4, logits[:, EOS])), state


@pytest.mark.parametrize(("longest", "length"), [(None, 5), (4, 4)])
def test_translations_without_an_end_are_counted_and_named(longest, length):
    said, inputs = [], ["bc", "ab", "", "ba", "ac"]
    limits = dict(warn=said.append, first=7)
    outputs = translate(
        HalfEndless(longest), PARAMS, inputs, Letters(), Decoding(max_extra=3), **limits
    )
    assert outputs.cut == [1, 4]
    assert [len(x) for x in outputs] == [2, length, 0, 2, length]
    assert "2 lines (8, 11) of 5: " in said[0]
    assert ("the model's 4 positions" in said[0]) == (longest == 4)


@pytest.mark.parametrize(
    ("max_extra", "extra", "limit"),
    [
        (50, [80] * 3, 81),
        (50, [1] * 98 + [51, 200], 201),
        (50, [1] * 99 + [200], 50),
        (49, [80] * 3, 49),
        (100, [200] * 3, 100),
        (50, [-9, 50], 50),
    ],
)
def test_the_default_limit_is_raised_for_training_data_that_need_more(max_extra, extra, limit):
    source = np.arange(len(extra)) + 2
    decoding = Decoding(max_extra=max_extra)
    assert translating.output_limit(decoding, source, source + extra) == limit


def test_lines_within_all_limits_have_no_warning():
    warnings = []
    decoding = Decoding(max_extra=3)
    inputs, said = ["ab", "abcdefg"], warnings.append
    translate(Reverse(11), PARAMS, inputs, Letters(), decoding, warn=said)
    assert not warnings


def test_parameters_may_be_placed_on_a_mesh():
    params = sharding.replicate(PARAMS, sharding.make_mesh())
    assert translate(Reverse(), params, ["abc"], Letters(), Decoding()) == ["cba"]
