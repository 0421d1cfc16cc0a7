"""A score with the signature that says how it was computed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One metric of a set of outputs; `score` is in percent."""

    name: str
    score: float
    signature: str
