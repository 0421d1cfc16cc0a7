"""Subwords have fixed reserved ids, round-trip text and are a function of the lines."""

import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.data.vocabulary import Vocabulary, train
from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS, EOS, PAD, UNK
from tests.process import python

WORDS = "der die das Hund Katze Straße grün läuft schläft the dog cat street green runs".split()


def corpus(n=400, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(n)]


@pytest.fixture(scope="module")
def model():
    return train(corpus(), 71)


def test_reserved_tokens_have_the_first_ids(model):
    vocabulary = Vocabulary(model)
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert vocabulary.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert vocabulary.size == 71


def test_text_round_trips_without_reserved_ids(model):
    vocabulary = Vocabulary(model)
    rows = vocabulary.encode(corpus(seed=2))
    assert vocabulary.decode(rows) == corpus(seed=2)
    assert min(map(min, rows)) > UNK
    assert max(map(max, rows)) < 71
    [ids] = vocabulary.encode(["der grün Hund"])
    assert "".join(vocabulary.pieces(ids)) == "▁der▁grün▁Hund"
    assert UNK in vocabulary.encode(["the 犬"])[0]


def test_decode_stops_at_the_first_eos_and_drops_pad_and_bos(model):
    vocabulary = Vocabulary(model)
    [ids] = vocabulary.encode(["the dog runs"])
    row = [BOS, *ids[:2], PAD, *ids[2:], EOS, *ids, PAD, PAD]
    assert vocabulary.decode([row, [EOS, *ids], []]) == ["the dog runs", "", ""]


def test_the_same_lines_give_the_same_bytes_in_another_process(model):
    code = (
        "from tests.test_vocabulary import *; import hashlib; "
        "print(hashlib.sha256(train(iter(corpus()), 71)).hexdigest())"
    )
    assert python(code).strip() == Vocabulary(model).fingerprint
    assert train(corpus(seed=3), 71) != model


def test_a_vocabulary_too_large_is_refused_with_the_largest_size():
    with pytest.raises(UsageError, match=r"set vocabulary to at most \d+\.$") as caught:
        train(corpus(), 5000)
    largest = int(str(caught.value).split()[-1].rstrip("."))
    assert Vocabulary(train(corpus(), largest)).size == largest


def test_a_vocabulary_too_small_is_refused():
    with pytest.raises(UsageError, match="a vocabulary of 9: set vocabulary well above 27"):
        train(corpus(), 9)


def test_a_nul_in_the_text_is_a_space(model):
    nul = [line.replace(" ", "\0") for line in corpus()]
    assert train(nul, 71) == model
    assert Vocabulary(model).encode(nul) == Vocabulary(model).encode(corpus())


ODD = "<unk> </s> <s> <pad> ▁ x▁y ⁇ &amp; … ½ ﬁn ² № ｆｕｌｌ Å Å".split()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ODD + WORDS), min_size=1, max_size=9))
def test_text_stays_text_whatever_it_is_called(words):
    vocabulary, line = _odd(), " ".join(words)
    [ids] = vocabulary.encode([line])
    assert vocabulary.decode([ids]) == [line]
    assert min(ids) > UNK


@functools.cache
def _odd():
    return Vocabulary(train([*corpus(), *(" ".join(ODD) for _ in range(9))], 120))


@pytest.mark.parametrize("n", [1, 30])
def test_long_lines_are_trained_on(n):
    long = "lange Zeile ñ " * 900
    assert len(long.encode()) > 4192
    vocabulary = Vocabulary(train([long] * n, 20))
    assert UNK not in vocabulary.encode(["lange ñ"])[0]
