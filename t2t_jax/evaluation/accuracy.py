"""Accuracy of predicted words, each given the true words before it (`predictions.py`)."""

from collections.abc import Sequence

import numpy as np

from t2t_jax.evaluation.metrics import metric
from t2t_jax.tokens import PROMPT

SIGNATURE = "words that are asked for, given the true words before"
EXACT = "sequences that equal their reference"


def exact_of_sums(sums: np.ndarray) -> np.ndarray:
    """Sequences that are right as a whole, in percent [...] of `sentence_statistics` [..., 4]."""
    return 100 * sums[..., 2] / sums[..., 3]


@metric("accuracy", SIGNATURE, teacher_forced=True)
def sentence_statistics(
    predicted: Sequence[str], references: Sequence[str], _: Sequence[str] = ()
) -> list[list[int]]:
    """For each sequence: right words, predicted words, 1 if the whole is right, and 1.

    Prompts are not counted. The whole includes the end mark if that is predicted.
    """
    out = []
    for text, reference in zip(predicted, references, strict=True):
        pairs = zip(text.split(), reference.split(), strict=False)
        right = [x == y for x, y in pairs if not y.startswith(PROMPT)]
        out.append([sum(right), len(right), int(text == reference), 1])
    return out


@metric("exact", EXACT)
def _exact(
    predicted: Sequence[str], references: Sequence[str], _: Sequence[str]
) -> list[tuple[int, int]]:
    """The score of predictions equals the score of greedy decoding."""
    return [(int(x == y), 1) for x, y in zip(predicted, references, strict=True)]
