"""Metrics of finished runs that a table asks for: of the translations that runs keep, or of the
statistics of other splits than the study's."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.evaluation.metrics import METRICS, Metric, of_split
from t2t_jax.runs import store
from t2t_jax.runs.names import title
from t2t_jax.runs.results import Run
from t2t_jax.study.entries import Entry
from t2t_jax.study.grid import Grid


class Score(NamedTuple):
    """A metric of a run.

    Attributes:
      statistics: the counts of each sentence; empty if only the score is known.
    """

    value: float
    statistics: Sequence[Sequence[float]] = ()


Scores = Mapping[str, Mapping[Path, Score]]  # by metric and the directory of a run


def measure(grid: Grid, entries: Sequence[Entry], splits: Mapping[str, Split]) -> Scores:
    """Returns the metrics of a grid beside those on its own split, of the runs that have them.

    Args:
      splits: the sentences of each split; none if they are not available.

    Raises:
      UsageError: translations and references differ in number, or a metric needs a package.
    """
    rows = [e for entry in entries for e in (entry, entry.untuned) if e and grid.split(e.c)]
    runs = {run.directory: run for row in rows for run in row.runs}
    scores: dict[str, dict[Path, Score]] = {}
    for name in grid.computed:
        found = {directory: _score(grid, name, run, splits) for directory, run in runs.items()}
        scores[name] = {directory: score for directory, score in found.items() if score}
    return scores


def of_sums(grid: Grid, name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function that gives a metric [...] of summed counts [..., counts]."""
    metric, own = of_split(name)[0], metric_of(grid.data.corpus)
    return own.of_sums if metric == own.name else METRICS[metric].of_sums


def _score(grid: Grid, name: str, run: Run, splits: Mapping[str, Split]) -> Score | None:
    metric, split = of_split(name)
    split = split or grid.study.split
    if metric == metric_of(grid.data.corpus).name:
        return _stored(grid, run, split)
    return _of_translations(grid, METRICS[metric], run, split, splits.get(split))


def _stored(grid: Grid, run: Run, split: str) -> Score | None:
    """Returns the metric of the corpus on a split, if the run is scored on it."""
    statistics = store.read_statistics(run.directory, run.result, split)
    if statistics is None:
        return None
    return Score(run.result["scores"][split][metric_of(grid.data.corpus).key]["score"], statistics)


def _of_translations(
    grid: Grid, metric: Metric, run: Run, split: str, sentences: Split | None
) -> Score | None:
    """Returns a metric of a run's translations, or as its result has it."""
    translations = store.read_translations(run.directory, split, grid.data.target)
    if translations is None or sentences is None:
        stored = run.result["scores"].get(split, {}).get(metric.key)
        return stored and Score(stored["score"])
    if len(translations) != len(sentences.references):
        raise UsageError(
            f"{title(run.directory)} has {len(translations)} translations of {split}, which has "
            f"{len(sentences.references)} sentences: remove the run to make it again."
        )
    return Score(*metric.of(translations, sentences.references, sentences.sources))
