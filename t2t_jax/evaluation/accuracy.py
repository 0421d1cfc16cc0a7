"""Accuracy of predicted words, each given the true words before it (`predictions.py`)."""

from collections.abc import Sequence

import numpy as np

from t2t_jax.data.tasks import PROMPT
from t2t_jax.evaluation.score import Score

SIGNATURE = "words that are asked for, given the true words before"


def sentence_statistics(predicted: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """For each sequence: right words, words with a loss, 1 if the whole is right, and 1.

    Prompt words are not counted. The whole includes the end mark if that has a loss.
    """
    out = []
    for text, reference in zip(predicted, references, strict=True):
        pairs = zip(text.split(), reference.split(), strict=False)
        right = [x == y for x, y in pairs if not y.startswith(PROMPT)]
        out.append([sum(right), len(right), int(text == reference), 1])
    return out


def of_sums(sums: np.ndarray) -> np.ndarray:
    """Accuracy in percent [...] of summed `sentence_statistics` [..., 4]."""
    return 100 * sums[..., 0] / sums[..., 1]


def exact_of_sums(sums: np.ndarray) -> np.ndarray:
    """Sequences that are right as a whole, in percent [...] of `sentence_statistics` [..., 4]."""
    return 100 * sums[..., 2] / sums[..., 3]


def scores(predicted: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """The accuracy of words, and that of whole sequences, which equals that of greedy decoding."""
    sums = np.sum(sentence_statistics(predicted, references), axis=0)
    return {
        "accuracy": Score("accuracy", float(of_sums(sums)), SIGNATURE),
        "exact": Score("exact", float(exact_of_sums(sums)), EXACT),
    }


EXACT = "sequences that equal their reference"
