"""The metric against distance: by a sentence's longest dependency, and by its length.

The corpus must know the dependencies of its sentences, as grammar does. The curves show at which
distance attention with a window fails.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study.comparison import Line
from t2t_jax.study.entries import Entry

_PARTS = 7  # number of parts of the sentences, as equal as ties allow


class Curves(NamedTuple):
    """The metric of every row on each part of the sentences, the mean over seeds.

    Attributes:
      what: the quantity by which the sentences are divided.
      parts: for each part the range of that quantity, as text, and the number of sentences.
      rows: row name -> the metric on each part.
    """

    what: str
    parts: Sequence[tuple[str, int]]
    rows: Mapping[str, Sequence[float]]


def curves(lines: Sequence[Line], split: Split) -> list[Curves]:
    """Returns the curves by dependency and by length; an empty list without dependencies."""
    if not split.extras or "dependency" not in split.extras[0]:
        return []
    entries = [line.entry for line in lines if line.score]  # language models have none
    out = []
    for what, sizes in (
        ("longest dependency, in words", [x["dependency"] for x in split.extras]),
        ("words of the sentence", [len(r.split()) for r in split.references]),
    ):
        values = np.array(sizes)
        indices = parts(values)
        spans = [(span(values[part]), len(part)) for part in indices]
        out.append(Curves(what, spans, {e.row.name: curve(e, indices) for e in entries}))
    return out


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Returns the indices of values [sentences] in parts by size; equal values stay together."""
    edges = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS, method="nearest"))
    part_of = np.searchsorted(edges, values, side="left")
    return [np.flatnonzero(part_of == i) for i in np.unique(part_of)]


def curve(entry: Entry, indices: Sequence[np.ndarray]) -> list[float]:
    """Returns the metric on each part of the sentences, the mean over seeds."""
    of_sums = metric_of(entry.c.data.corpus).of_sums
    statistics = [np.array(run.statistics) for run in entry.runs]
    return [float(np.mean([of_sums(s[i].sum(axis=0)) for s in statistics])) for i in indices]


def span(values: np.ndarray) -> str:
    """Returns the range of values, as text."""
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"
