"""Metrics of finished runs that a table asks for, computed from the translations that runs keep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.data.cache import Split
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import METRICS, Metric
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


def measure(grid: Grid, entries: Sequence[Entry], sentences: Split | None) -> Scores:
    """Returns the metrics of a grid that results do not have for every run; only known ones.

    Args:
      sentences: the split that the study is scored on, if it is available.

    Raises:
      UsageError: translations and references differ in number, or a metric needs a package.
    """
    rows = [e for entry in entries for e in (entry, entry.untuned) if e and grid.split(e.c)]
    runs = {run.directory: run for row in rows for run in row.runs}
    scores: dict[str, dict[Path, Score]] = {}
    for name in grid.computed:
        found = {d: _score(grid, METRICS[name], run, sentences) for d, run in runs.items()}
        scores[name] = {directory: score for directory, score in found.items() if score}
    return scores


def _score(grid: Grid, metric: Metric, run: Run, sentences: Split | None) -> Score | None:
    """Returns a metric of a run: of its translations, or as its result has it."""
    split = grid.study.split
    translations = store.read_translations(run.directory, split, grid.data.target)
    if translations is None or sentences is None:
        stored = run.result["scores"][split].get(metric.key)
        return stored and Score(stored["score"])
    if len(translations) != len(sentences.references):
        raise UsageError(
            f"{title(run.directory)} has {len(translations)} translations of {split}, which has "
            f"{len(sentences.references)} sentences: remove the run to make it again."
        )
    return Score(*metric.of(translations, sentences.references, sentences.sources))
