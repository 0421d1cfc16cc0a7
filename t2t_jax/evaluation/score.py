"""A score with what it must not be without."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One metric of one set of outputs; `score` is out of 100."""

    name: str
    score: float
    signature: str
