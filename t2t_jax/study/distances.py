"""Quality against distance: the metric by the longest dependency and by the sentence's length.

Needs a corpus that knows its sentences' dependencies, as grammar does: it shows where windows end.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study.entries import Entry
from t2t_jax.study.tables import Line

_PARTS = 7  # into which the sentences are divided, as equal as ties allow


class Curves(NamedTuple):
    """The metric of every row, the mean over seeds, on each part of the sentences.

    Attributes:
      what: the sentences are divided by.
      parts: for each what its sentences have, as text, and how many they are.
      rows: by name.
    """

    what: str
    parts: Sequence[tuple[str, int]]
    rows: Mapping[str, Sequence[float]]


def curves(found: Sequence[Line], split: Split) -> list[Curves]:
    """By dependency and by length; nothing where the corpus knows no dependencies."""
    if not split.extras or "dependency" not in split.extras[0]:
        return []
    rows = [line.entry for line in found if line.entry.runs]
    out = []
    for what, values in (
        ("longest dependency, in words", [x["dependency"] for x in split.extras]),
        ("words of the sentence", [len(r.split()) for r in split.references]),
    ):
        divided = parts(np.array(values))
        spans = [(_span(np.array(values)[part]), len(part)) for part in divided]
        out.append(Curves(what, spans, {e.row.name: curve(e, divided) for e in rows}))
    return out


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Indices of the values [sentences], divided by size; equal values stay together."""
    edges = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS, method="nearest"))
    where = np.searchsorted(edges, values, side="left")
    return [np.flatnonzero(where == i) for i in np.unique(where)]


def curve(entry: Entry, divided: Sequence[np.ndarray]) -> list[float]:
    """The metric on each part, the mean over seeds."""
    of_sums = metric_of(entry.c.data.corpus).of_sums
    each = [np.array(run.statistics) for run in entry.runs]
    return [float(np.mean([of_sums(s[part].sum(axis=0)) for s in each])) for part in divided]


def _span(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"
