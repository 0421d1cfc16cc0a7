"""Metrics of documents from the likelihood of each of their tokens (`predictions.py`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_jax.evaluation.metrics import bits, metric, perplexity

BY_DOCUMENT: Any = dict(lower_is_better=True, teacher_forced=True)


def mean(sums: np.ndarray) -> np.ndarray:
    """Nats per token [...], from sums of both [..., 2]."""
    return sums[..., 0] / sums[..., 1]


def nats_of(line: str) -> np.ndarray:
    """The negative log-likelihood of each token of a document, from a line of `predict`."""
    return np.array(line.split(), float)


@metric("NLL", "nats per token, the end of a document included", mean, **BY_DOCUMENT)
def counts(lines: Sequence[str], *_: Sequence[str]) -> list[tuple[float, int]]:
    """For each document its nats and its number of tokens."""
    return [(float(nats.sum()), len(nats)) for nats in map(nats_of, lines)]


metric("perplexity", "e^NLL", perplexity, **BY_DOCUMENT)(counts)


@metric("bits per byte", "of the text in UTF-8", bits, **BY_DOCUMENT)
def _bits(
    lines: Sequence[str], references: Sequence[str], _: Sequence[str]
) -> list[tuple[float, int]]:
    of_documents = zip(counts(lines), references, strict=True)
    return [(nats, len(text.encode())) for (nats, _), text in of_documents]
