"""Grades of difficulty: the parameters from which the sentences of a corpus are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


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


NORMAL = Grade(
    vocabulary=1.0,
    flatness=3,
    max_words=22,
    limit=2,
    rich=1.0,
    nest=1.0,
    refer=1.0,
    cued=1.0,
    constructions=_shares(0.34, 0.22, 0.11, 0.09, 0.10, 0.04, 0.10),
)
_EASY: dict[str, Any] = dict(
    vocabulary=0.33, max_words=12, limit=1, rich=0.7, nest=0.5, refer=0.3, cued=0.3
)
_HARD: dict[str, Any] = dict(flatness=20, max_words=30, limit=3, rich=1.6, nest=4.0, refer=1.3)
GRADES: Mapping[str, Grade] = {
    "easy": replace(NORMAL, **_EASY, constructions=_shares(0.7, 0.1, 0.06, 0.04, 0.04, 0.01, 0.05)),
    "normal": NORMAL,
    "hard": replace(
        NORMAL, **_HARD, constructions=_shares(0.12, 0.28, 0.13, 0.08, 0.15, 0.1, 0.14)
    ),
}
