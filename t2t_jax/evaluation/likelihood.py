"""Metrics of documents from the likelihood of each (`perplexity.document_likelihoods`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_jax.evaluation.metrics import bits, metric, perplexity

BY_DOCUMENT: Any = dict(lower_is_better=True, teacher_forced=True)


def mean(sums: np.ndarray) -> np.ndarray:
    """Nats per token [...], from sums of both [..., 2]."""
    return sums[..., 0] / sums[..., 1]


def lines(rows: np.ndarray) -> list[str]:
    """The likelihoods of documents [documents, 2] as the outputs of a model are kept."""
    return [f"{nats:.4f} {tokens:.0f}" for nats, tokens in rows]


@metric("NLL", "nats per token, the end of a document included", mean, **BY_DOCUMENT)
def counts(lines: Sequence[str], *_: Sequence[str]) -> list[tuple[float, int]]:
    """For each document its nats and its number of tokens."""
    return [(float(nats), int(tokens)) for nats, tokens in map(str.split, lines)]


metric("perplexity", "e^NLL", perplexity, **BY_DOCUMENT)(counts)


@metric("bits per byte", "of the text in UTF-8", bits, **BY_DOCUMENT)
def _bits(
    lines: Sequence[str], references: Sequence[str], _: Sequence[str]
) -> list[tuple[float, int]]:
    of_documents = zip(counts(lines), references, strict=True)
    return [(nats, len(text.encode())) for (nats, _), text in of_documents]
