"""Matches the stored runs of a study to its rows by config; marks runs of other code or data."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.raw import request
from t2t_jax.evaluation.metrics import PPL, metric_of
from t2t_jax.runs import identity, results, store
from t2t_jax.runs.results import Run
from t2t_jax.runs.store import Report
from t2t_jax.study.declaration import Row
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import Measure
from t2t_jax.study.sweep import TRIAL_SEED, UNTUNED, Choice, choices


@dataclass(frozen=True)
class RowResult:
    """A row at the scale of a preset, with its runs and what they measure: a line of a table."""

    row: Row
    c: Config
    runs: tuple[Run, ...]  # the finished ones, by seed
    status: str  # of the unfinished runs
    choice: Choice = UNTUNED  # the trials of a row that was tuned, from which `c` was chosen
    untuned: "RowResult | None" = None  # the same row without tuning, if it was tuned
    # By the name of their column; None if a metric is not known for all runs.
    # `comparison.compare_with_base` fills them in.
    measures: Mapping[str, Measure | None] = field(default_factory=dict)

    def measure(self, name: str) -> Measure | None:
        return self.measures.get(name)

    @property
    def PPL(self) -> Measure | None:
        """Perplexity on dev."""
        return self.measure(PPL)

    @property
    def score(self) -> Measure | None:
        """The metric of the corpus."""
        return self.measure(metric_of(self.c.data.corpus).name)

    @property
    def unusual(self) -> bool:
        """Whether a run of this row is of other code, data or hardware than most of the table."""
        return any(run.unusual for run in self.runs)

    def run_name(self, grid: Grid, seed: int) -> str:
        """Returns the name of a run of this row at the values that were chosen for it."""
        return grid.at(self.choice.values).run_name(self.row, seed)


Lines = Sequence[RowResult]  # of a table


def collect(grid: Grid, report: Report = lambda _: None) -> list[RowResult]:
    """Returns the rows of a grid with their stored runs of every seed.

    Runs of other origins than most are marked. With a sweep, a row has its chosen config, and no
    runs until one of its trials is finished. Raises a UsageError if there is no store.
    """
    untuned = [(row, grid.config(row)) for row in grid.rows]
    if not grid.sweep:
        return _collect(grid, untuned, [], report)[0]
    chosen = choices(grid)
    both = zip(grid.rows, chosen, strict=True)
    tuned = [(row, grid.at(choice.values).config(row)) for row, choice in both]
    trials = _trials(chosen, untuned[0][1], report)
    found, unusual = _collect(grid, [*untuned, *tuned], trials, report)
    n, out = len(grid.rows), []
    for at_rule, row, choice in zip(found[:n], found[n:], chosen, strict=True):
        marked = (replace(x, unusual=unusual.get(x.directory, "")) for x in choice.trials)
        row = replace(row, choice=Choice(tuple(marked)), untuned=at_rule)
        if not choice.chosen:
            waiting = "every trial failed" if choice.finished else "no trial is finished"
            row = replace(row, runs=(), status=waiting)
        out.append(row)
    return out


def _trials(chosen: Sequence[Choice], base: Config, report: Report) -> list[Run]:
    """Returns the finished trials, which are compared by perplexity and need no other metric."""
    trials = []
    for directory in itertools.chain.from_iterable(choice.directories for choice in chosen):
        c = store.read_config(directory)
        run = results.read_run(directory, c, "", preparation(c, base), report)
        if isinstance(run, Run):
            origins = {name: x for name, x in run.origins.items() if name != "metric"}
            trials.append(replace(run, origins=origins))
    return trials


def _collect(
    grid: Grid, rows: Sequence[tuple[Row, Config]], trials: Sequence[Run], report: Report
) -> tuple[list[RowResult], dict[Path | None, str]]:
    """Returns rows with these configs and their runs; and what is unusual of trials, as text."""
    read = list(_read(grid, [c for _, c in rows], report))
    # Each trial alone: trials have different configs, and so different programs.
    alone = [[run] for run in trials]
    every = results.marked([*alone, *(runs for runs, _ in read)], report)
    tried, finished = every[: len(trials)], every[len(trials) :]
    collected = [
        RowResult(row, c, tuple(runs), status)
        for (row, c), runs, (_, status) in zip(rows, finished, read, strict=True)
    ]
    return collected, {run.directory: run.unusual for (run,) in tried}


def _read(grid: Grid, configs: Sequence[Config], report: Report) -> Iterator[tuple[list[Run], str]]:
    """Yields for each row its newest finished runs by seed, and the status of other seeds."""
    keys = [identity.row_key(c) for c in configs]
    read: dict[str, list[tuple[int, Run | str]]] = {key: [] for key in keys}
    for directory, c in results.stored(grid.home, report):
        # A trial has chosen values, and so must not score them.
        if c.training.seed != TRIAL_SEED and (key := identity.row_key(c)) in read:
            fields = preparation(c, configs[0])
            run = results.read_run(directory, c, grid.split(c), fields, report)
            read[key].append((c.training.seed, run))
    for key in keys:
        finished = [run for _, run in read[key] if isinstance(run, Run)]
        ordered = sorted(finished, key=lambda run: store.finished_at(run.directory))
        newest = {run.seed: run for run in ordered}
        others = (x for seed, x in read[key] if isinstance(x, str) and seed not in newest)
        yield [newest[seed] for seed in sorted(newest)], "; ".join(others)


def preparation(c: Config, base: Config) -> str:
    """Returns the fields of data preparation in which a row differs from base, as text."""
    ours, bases = ({**request(x.data), "pairs": x.data.pairs} for x in (c, base))
    fields = [n for n in config.SECTION_OF if ours.get(n) != bases.get(n) and n not in config.PATHS]
    return "".join(f" of {n} {getattr(c.data, n)}" for n in fields)
