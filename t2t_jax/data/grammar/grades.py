"""Grades of difficulty: the parameters from which the sentences of a corpus are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Grade:
    vocabulary: float  # the share of every list of words that is in use, the most frequent first
    flatness: float  # the word of rank r has the Zipf weight 1 / (r + flatness)
    max_words: int  # of a training sentence, on either side
    limit: int  # the largest depth of clauses in a training sentence, at least 1
    rich: float  # factor on the probability of optional adjectives and adverbials
    nest: float  # factor on the probability of relative clauses
    refer: float  # factor on the probability that a clause has a pronoun for a noun before it
    cued: float  # the share of the sentences with an ambiguous word that are kept
    constructions: Mapping[str, float]  # the share of every construction of `sentences`


def _shares(*shares: float) -> Mapping[str, float]:
    """The shares of all constructions, in this order."""
    names = "statement joined report purpose coordination feminine question".split()
    return dict(zip(names, shares, strict=True))


_EASY = _shares(0.7, 0.1, 0.06, 0.04, 0.04, 0.01, 0.05)
_NORMAL = _shares(0.34, 0.22, 0.11, 0.09, 0.10, 0.04, 0.10)
_HARD = _shares(0.12, 0.28, 0.13, 0.08, 0.15, 0.1, 0.14)
GRADES: Mapping[str, Grade] = {
    # vocabulary, flatness, max_words, limit, rich, nest, refer, cued, constructions
    "easy": Grade(0.33, 3, 12, 1, 0.7, 0.5, 0.3, 0.3, _EASY),
    "normal": Grade(1.0, 3, 22, 2, 1.0, 1.0, 1.0, 1.0, _NORMAL),
    "hard": Grade(1.0, 20, 30, 3, 1.6, 4.0, 1.3, 1.0, _HARD),
}
NORMAL = GRADES["normal"]
