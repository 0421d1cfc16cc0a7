"""Translation end to end, with models whose translations are known."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Decoding
from t2t_jax.inference import translate as room
from t2t_jax.inference.translate import translate, translate_tokens
from t2t_jax.tokens import EOS, PAD, UNK
from t2t_jax.training import sharding

LETTERS = "abcdefghijklmnopqrst"
PARAMS = {"scale": np.float32(9.0)}


class Letters:
    """A vocabulary of single letters; spaces are not encoded."""

    size = UNK + 1 + len(LETTERS)

    def encode(self, sentences):
        return [[UNK + 1 + LETTERS.index(c) for c in s if c != " "] for s in sentences]

    def decode(self, rows):
        return ["".join(LETTERS[i - UNK - 1] for i in row) for row in rows]


class Reverse:
    """Says the source backwards. Its state is of the size of a cache."""

    def apply(self, variables, *args, method):
        return getattr(self, method)(variables["params"]["scale"], *args)

    def encode(self, scale, source):
        return source

    def start(self, scale, source, capacity):
        memory = {"source": source, "length": (source != PAD).sum(axis=1)}
        return memory, jnp.zeros((len(source), capacity, 3))

    def step(self, scale, memory, state, tokens, t):
        at = memory["length"] - 2 - t
        said = jnp.take_along_axis(memory["source"], jnp.maximum(at, 0)[:, None], axis=1)[:, 0]
        logits = scale * jax.nn.one_hot(jnp.where(at >= 0, said, EOS), Letters.size)
        return logits, state.at[:, t].add(1)


class Endless(Reverse):
    """The same, and then anything but EOS."""

    def step(self, *args):
        logits, state = super().step(*args)
        return logits.at[:, EOS].set(-1e4), state


def sentences(count, longest, seed=0):
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=rng.randint(1, longest))) for _ in range(count)]


@pytest.mark.parametrize(("K", "many"), [(1, 32), (3, 32), (1, 2), (3, 2)])
def test_results_are_in_the_order_of_the_input(K, many, monkeypatch):
    monkeypatch.setattr(room, "_MANY", many)
    inputs = sentences(150, 40)
    inputs[0] = inputs[70] = ""
    inputs[31] = "   "
    outputs = translate(Reverse(), PARAMS, inputs, Letters(), Decoding(beam=K))
    assert outputs == [s.strip()[::-1] for s in inputs]


def test_nothing_in_nothing_out():
    assert translate(Reverse(), PARAMS, [], Letters(), Decoding()) == []
    assert translate(Reverse(), PARAMS, ["", " \t"], Letters(), Decoding()) == ["", ""]
    assert not list(room._batches([[], [EOS]], 10**6))


@pytest.mark.parametrize(("K", "extra"), [(1, 50), (4, 50), (2, 0)])
def test_output_is_at_most_its_input_and_max_extra(K, extra):
    inputs = ["abc", "c", LETTERS[:15], "ab"]  # the longest fills its batch's 16 positions
    decoding = Decoding(beam=K, max_extra=extra)
    outputs = translate(Endless(), PARAMS, inputs, Letters(), decoding)
    assert [len(o) - len(i) for i, o in zip(inputs, outputs, strict=True)] == [extra] * 4
    assert all(o.startswith(i[::-1]) for i, o in zip(inputs, outputs, strict=True))


def test_tokens_as_lists_or_arrays():
    ids = [[*row, EOS] for row in Letters().encode(sentences(9, 30))]
    expected = [row[-2::-1] for row in ids]
    arrays = [np.array(row, np.uint16) for row in ids]
    for rows in (ids, arrays):
        assert translate_tokens(Reverse(), PARAMS, rows, Decoding(beam=2)) == expected


def test_few_shapes_each_compiled_once():
    model, inputs = Reverse(), sentences(400, 120)
    before = room.decode._cache_size()
    outputs = translate(model, PARAMS, inputs, Letters(), Decoding(beam=2))
    assert outputs == [s[::-1] for s in inputs]
    compiled = room.decode._cache_size() - before
    assert compiled == 2  # of 128 and of 32
    changed = {"scale": np.float32(5.0)}
    decoding = Decoding(beam=2, alpha=0.1)
    translate(model, changed, sentences(400, 120, seed=1), Letters(), decoding)
    assert room.decode._cache_size() - before == compiled


def test_every_sentence_is_in_one_batch_without_its_padding_in_the_way():
    ids = [[*row, EOS] for row in Letters().encode(sentences(300, 200))]
    seen = []
    for rows, source in room._batches(ids, 10**6):
        assert source.shape[0] >= len(rows)
        assert not source[len(rows) :].any()
        for i, row in zip(rows, source, strict=False):
            assert row.tolist() == ids[i] + [PAD] * (source.shape[1] - len(ids[i]))
        seen += rows
    assert sorted(seen) == list(range(300))


def test_one_line_is_not_decoded_as_many():
    [(_, source)] = room._batches([[5, 6, EOS]], 10**6)
    assert source.shape == (1, 16)


def test_what_a_model_has_no_positions_for_is_cut_and_told():
    told = []
    inputs = ["ab", "", "abcdefghijklmnopqr", "abcdefghij"]
    outputs = translate(
        Reverse(), PARAMS, inputs, Letters(), Decoding(beam=2), longest=11, warn=told.append
    )
    assert outputs == ["ba", "", "jihgfedcba", "jihgfedcba"]
    assert len(told) == 1
    assert "line 3" in told[0]
    assert "19 subwords" in told[0]
    assert "11 positions" in told[0]


def warnings_of(inputs, **limits):
    """The warnings of translating these lines with a model trained on at most 8 subwords."""
    said = []
    limits = {"max_length": 8, "warn": said.append} | limits
    outputs = translate(Reverse(), PARAMS, inputs, Letters(), Decoding(), **limits)
    if "longest" not in limits:
        assert outputs == [s[::-1] for s in inputs]
    return said


def test_a_line_longer_than_any_in_training_is_named_with_its_length():
    (warning,) = warnings_of(["abcdefg", "abcdefgh", "", "ab"])  # of 8 and 9, EOS counted
    assert "line 2 has 9 subwords" in warning
    assert "at most 8" in warning


def test_many_lines_longer_than_any_in_training_are_named_together():
    (warning,) = warnings_of(["abcdefgh", "ab", "abcdefghij", "abcdefgh"])
    assert "3 lines (1, 3, 4) have up to 11 subwords" in warning
    (warning,) = warnings_of(["abcdefgh"] * 12)
    assert "12 lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...) have up to 9 subwords" in warning


def test_lines_that_are_cut_are_named_together_and_not_again_as_long():
    cut, long = warnings_of(["abcdefghij", "abcdefghijk", "abcdefgh"], longest=10)
    assert "2 lines (1, 2) have up to 12 subwords" in cut
    assert "10 positions" in cut
    assert "line 3 has 9 subwords" in long


def test_an_output_that_a_model_has_no_positions_for_is_told():
    told = []
    outputs = translate(
        Endless(), PARAMS, ["ab", "abc"], Letters(), Decoding(), longest=20, warn=told.append
    )
    assert [len(o) for o in outputs] == [20, 20]
    assert [t.split(":")[0] for t in told] == ["line 2", "line 1"]


def test_nothing_is_told_without_need():
    told = []
    for model in (Reverse(), Endless()):
        decoding = Decoding(max_extra=3)
        translate(
            model, PARAMS, ["ab", "abcdefg"], Letters(), decoding, longest=11, warn=told.append
        )
    assert not told


def test_parameters_laid_out_over_a_mesh():
    params = sharding.replicate(PARAMS, sharding.make_mesh())
    assert translate(Reverse(), params, ["abc"], Letters(), Decoding()) == ["cba"]
