"""Grades of difficulty: the parameters from which the sentences of a corpus are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Grade:
    """How difficult the sentences of a corpus are.

    Attributes:
      vocabulary: the share of the words of every pool that is in use, the most frequent first.
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


NORMAL = Grade(
    vocabulary=1.0,
    flatness=3,
    max_words=22,
    limit=2,
    rich=1.0,
    nest=1.0,
    refer=1.0,
    cued=1.0,
    constructions={
        "statement": 0.34,
        "joined": 0.22,
        "report": 0.11,
        "purpose": 0.09,
        "coordination": 0.10,
        "feminine": 0.04,
        "question": 0.10,
    },
)
GRADES: Mapping[str, Grade] = {
    "easy": Grade(
        vocabulary=0.33,
        flatness=3,
        max_words=12,
        limit=1,
        rich=0.7,
        nest=0.5,
        refer=0.3,
        cued=0.3,
        constructions={
            "statement": 0.70,
            "joined": 0.10,
            "report": 0.06,
            "purpose": 0.04,
            "coordination": 0.04,
            "feminine": 0.01,
            "question": 0.05,
        },
    ),
    "normal": NORMAL,
    "hard": Grade(
        vocabulary=1.0,
        flatness=20,
        max_words=30,
        limit=3,
        rich=1.6,
        nest=4.0,
        refer=1.3,
        cued=1.0,
        constructions={
            "statement": 0.12,
            "joined": 0.28,
            "report": 0.13,
            "purpose": 0.08,
            "coordination": 0.15,
            "feminine": 0.10,
            "question": 0.14,
        },
    ),
}
