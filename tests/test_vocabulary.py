"""Subwords: explicit ids, round trips, and the same bytes from the same lines."""

import random
import subprocess
import sys

import pytest

from t2t_jax.data.vocabulary import Vocabulary, train
from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS, EOS, PAD, UNK

WORDS = "der die das Hund Katze Straße grün läuft schläft the dog cat street green runs".split()


def corpus(n=400, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(n)]


@pytest.fixture(scope="module")
def model():
    return train(corpus(), 71)


def test_reserved_ids(model):
    vocabulary = Vocabulary(model)
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert vocabulary.pieces([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert vocabulary.size == 71


def test_round_trip_has_no_reserved_ids(model):
    vocabulary = Vocabulary(model)
    rows = vocabulary.encode(corpus(seed=2))
    assert vocabulary.decode(rows) == corpus(seed=2)
    assert min(map(min, rows)) > UNK
    assert max(map(max, rows)) < 71


def test_pieces_spell_the_sentence(model):
    vocabulary = Vocabulary(model)
    [ids] = vocabulary.encode(["der grün Hund"])
    assert "".join(vocabulary.pieces(ids)) == "▁der▁grün▁Hund"


def test_an_unseen_character_is_unk(model):
    assert UNK in Vocabulary(model).encode(["the 犬"])[0]


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
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == Vocabulary(model).fingerprint
    assert train(corpus(seed=3), 71) != model


def test_too_large_names_the_largest_that_works():
    with pytest.raises(UsageError, match=r"set vocabulary to at most \d+\.$") as caught:
        train(corpus(), 5000)
    largest = int(str(caught.value).split()[-1].rstrip("."))
    assert Vocabulary(train(corpus(), largest)).size == largest


def test_too_small_says_so():
    with pytest.raises(UsageError, match="a vocabulary of 9: set vocabulary well above 27"):
        train(corpus(), 9)


def test_a_nul_in_the_text_is_no_end_of_line(model):
    assert train((line.replace(" ", "\0") for line in corpus()), 71) == model
