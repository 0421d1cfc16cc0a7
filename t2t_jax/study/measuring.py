"""Metrics of finished runs that a table asks for, computed from the files of the runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import metrics
from t2t_jax.evaluation.metrics import BPC, CONTRASTIVE, METRICS, Metric, metric_of, of_split
from t2t_jax.runs import store
from t2t_jax.runs.names import title
from t2t_jax.runs.results import Run
from t2t_jax.runs.store import Report
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.grid import Grid


class RunScore(NamedTuple):
    """A metric of a run."""

    value: float
    statistics: Sequence[Sequence[float]] = ()  # of each sentence; empty if they are not known


Scores = Mapping[str, Mapping[Path, RunScore]]  # by metric and the directory of a run


def judged(grid: Grid, rows: Lines, cache: Path, report: Report) -> list[RowResult]:
    """Returns the rows; if the grid asks for it, their runs are judged on a contrastive set."""
    if CONTRASTIVE not in grid.metrics:
        return list(rows)
    from t2t_jax.runs import judging

    runs = _runs(grid, rows)
    if waiting := sum(judging.is_waiting(path, run.result) for path, run in runs.items()):
        report(
            f"judging {waiting} of {len(runs)} runs on minimal pairs, which takes minutes: if you "
            "stop it (Ctrl-C), those that have been judged stay so"
        )
    results = {path: judging.judged(path, run.result, cache, report) for path, run in runs.items()}

    def updated(row: RowResult) -> RowResult:
        runs = (replace(x, result=results.get(x.directory, x.result)) for x in row.runs)
        return replace(row, runs=tuple(runs), untuned=row.untuned and updated(row.untuned))

    return [updated(row) for row in rows]


def check(grid: Grid, splits: Mapping[str, Split], report: Report) -> None:
    """Tries the metrics of a grid and its corpus on the references, before anything is trained."""
    own = [x.name for x in metrics.metrics_of(grid.data.corpus)] if grid.study.split else []
    for metric, split in {of_split(name) for name in (*own, *grid.computed)}:
        sentences = splits.get(split or grid.study.split)
        if sentences and METRICS[metric].function:
            outputs = metrics.outputs_of(sentences, (), grid.data)
            metrics.check([METRICS[metric]], outputs, report)


def measure(
    grid: Grid, rows: Lines, splits: Mapping[str, Split], report: Report = lambda _: None
) -> Scores:
    """Returns the metrics of a grid that are computed on request, without those that are not known.

    `splits` are those that are available. A line is reported before a metric of translations is
    computed, which may take minutes.
    """
    runs, scores = _runs(grid, rows), dict[str, dict[Path, RunScore]]()
    for name in grid.computed:
        metric, split = of_split(name)
        split = split or grid.study.split
        found: Mapping[Path, RunScore | None]
        if name == CONTRASTIVE:
            found = _contrastive(runs.values())
        elif name == BPC:
            every = _runs(grid, rows, translated=False)
            found = {path: _bits(run, splits.get("dev")) for path, run in every.items()}
        elif metric == metric_of(grid.data.corpus).name:
            found = {path: _stored(METRICS[metric], run, split) for path, run in runs.items()}
        else:
            if splits and runs:
                report(f"computing {name} of the outputs of {len(runs)} runs")
            of = METRICS[metric], split, splits.get(split)
            found = {path: _of_translations(grid, *of, run) for path, run in runs.items()}
        scores[name] = {path: score for path, score in found.items() if score}
    return scores


def _runs(grid: Grid, rows: Lines, translated: bool = True) -> dict[Path, Run]:
    """Returns the runs of all rows, or of those that translate, by their directories."""
    every = [x for row in rows for x in (row, row.untuned) if x]
    every = [x for x in every if grid.split(x.c) or not translated]
    return {run.directory: run for row in every for run in row.runs}


def _contrastive(runs: Iterable[Run]) -> dict[Path, RunScore]:
    """Returns the accuracy of the runs that have been judged.

    A run that was judged on another set than the first run, base's, has no statistics here, because
    tests compare judgements of the same pairs.
    """
    from t2t_jax.runs import judging

    results = [run for run in runs if CONTRASTIVE in run.result]
    scores = {}
    for run in results:
        ours, first = (x.result[CONTRASTIVE] for x in (run, results[0]))
        same = ours["signature"] == first["signature"]
        judgements = judging.kept(run.directory, run.result) if same else ()
        scores[run.directory] = RunScore(ours["score"], [(x.right, 1) for x in judgements])
    return scores


def _bits(run: Run, dev: Split | None) -> RunScore | None:
    """Returns the bits per character of dev, if its sentences and their likelihoods are known."""
    if dev is None or len(run.likelihood) != len(dev.references):
        return None
    lengths = map(len, dev.references)
    counts = [(nats, n) for (nats, _), n in zip(run.likelihood, lengths, strict=True)]
    return RunScore(float(METRICS[BPC].of_sums(np.array(counts).sum(axis=0))), counts)


def _stored(metric: Metric, run: Run, split: str) -> RunScore | None:
    """Returns the metric of the corpus on a split, if the run is scored on it."""
    statistics = store.read_statistics(run.directory, run.result, split)
    if statistics is None:
        return None
    return RunScore(run.result["scores"][split][metric.key]["score"], statistics)


def _of_translations(
    grid: Grid, metric: Metric, split: str, sentences: Split | None, run: Run
) -> RunScore | None:
    """Returns a metric of a run's translations; without them, the one in its result, if any."""
    translations = store.read_translations(run.directory, split, grid.data.target)
    if translations is None or sentences is None:
        stored = run.result["scores"].get(split, {}).get(metric.key)
        return stored and RunScore(stored["score"])
    if len(translations) != len(sentences.references):
        raise UsageError(
            f"{title(run.directory)} has {len(translations)} translations of {split}, which has "
            f"{len(sentences.references)} sentences: remove the run, then train it again."
        )
    return RunScore(*metric.measure(metrics.outputs_of(sentences, translations, grid.data)))
