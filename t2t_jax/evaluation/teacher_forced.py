"""Metrics of words given the true words before them (`predictions.py`).

They are the accuracy of predicted words, and the likelihood of the tokens of documents.
"""

from typing import Any

import numpy as np

from t2t_jax.evaluation.metrics import Counts, Texts, bits, metric, perplexity
from t2t_jax.tokens import PROMPT

SIGNATURE = "words that are asked for, given the true words before"
EXACT = "sequences that equal their reference"
BY_DOCUMENT: Any = dict(lower_is_better=True, teacher_forced=True)


def exact_of_sums(sums: np.ndarray) -> np.ndarray:
    """Sequences that are right as a whole, in percent [...] of `sentence_statistics` [..., 4]."""
    return 100 * sums[..., 2] / sums[..., 3]


@metric("exact", EXACT, exact_of_sums)
@metric("accuracy", SIGNATURE, teacher_forced=True)
def sentence_statistics(predicted: Texts, references: Texts, _: Texts = ()) -> Counts:
    """For each sequence: right words, predicted words, 1 if the whole is right, and 1.

    Prompts are not counted. The whole includes the end mark if that is predicted, so the score of
    whole sequences equals the score of greedy decoding.
    """
    out = []
    for text, reference in zip(predicted, references, strict=True):
        pairs = zip(text.split(), reference.split(), strict=False)
        right = [x == y for x, y in pairs if not y.startswith(PROMPT)]
        out.append([sum(right), len(right), int(text == reference), 1])
    return out


def mean(sums: np.ndarray) -> np.ndarray:
    """Nats per token [...], from sums of both [..., 2]."""
    return sums[..., 0] / sums[..., 1]


def nats_of(line: str) -> np.ndarray:
    """The negative log-likelihood of each token of a document, from a line of `predict`."""
    return np.array(line.split(), float)


@metric("perplexity", "e^NLL", perplexity, **BY_DOCUMENT)
@metric("NLL", "nats per token, the end of a document included", mean, **BY_DOCUMENT)
def counts(lines: Texts, *_: Texts) -> list[tuple[float, int]]:
    """For each document its nats and its number of tokens."""
    return [(float(nats.sum()), len(nats)) for nats in map(nats_of, lines)]


@metric("bits per byte", "of the text in UTF-8", bits, **BY_DOCUMENT)
def _bits(lines: Texts, references: Texts, _: Texts) -> Counts:
    of_documents = zip(counts(lines), references, strict=True)
    return [(nats, len(text.encode())) for (nats, _), text in of_documents]
