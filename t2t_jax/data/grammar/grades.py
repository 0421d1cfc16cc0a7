"""Grades of difficulty: the parameters from which the sentences of a corpus are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Grade:
    """How difficult the sentences of a corpus are.

    Attributes:
      vocabulary: the share of the words of every list that is in use, the most frequent first.
      flatness: the word of rank r has the Zipf weight 1 / (r + flatness).
      max_words: of a training sentence, on either side.
      limit: the largest depth of clauses in a training sentence, at least 1.
      rich: factor on the probability of optional adjectives and adverbials.
      nest: factor on the probability of relative clauses.
      refer: factor on the probability that a clause has a pronoun for a noun of an earlier clause.
      cued: the share of the sentences with an ambiguous word that are kept.
      constructions: the share of every construction of `sentences.CONSTRUCTIONS`.
    """

    vocabulary: float
    flatness: float
    max_words: int
    limit: int
    rich: float
    nest: float
    refer: float
    cued: float
    constructions: Mapping[str, float]


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
