"""Sweeps: every row is tried at several values of some fields, and one of them is chosen for it.

Every trial of a row has the seed `TRIAL_SEED`, and every row has the same number of trials. The
trial with the lowest perplexity on one half of the sentences of dev is chosen, and its values run
under the seeds 0, 1, ... Results on dev are of the other half. So no row is scored with the seed or
on the sentences that chose its values: the best of several trials owes part of its lead to both.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import perplexity
from t2t_jax.runs import identity, results, store
from t2t_jax.runs.identity import Job, OpenData
from t2t_jax.runs.names import title
from t2t_jax.study.declaration import Row, Study
from t2t_jax.study.grid import Grid, Seeds

_OTHER_SUBWORDS = "vocabulary", "normalization", "pairs", "architecture"  # or a pseudo-perplexity
CHOOSING = slice(0, None, 2)  # sentences of dev by which a trial is chosen
SCORED = slice(1, None, 2)  # sentences of dev on which the chosen values are scored
TRIAL_SEED = 1_000_000  # no study has so many seeds; trials of older code have seed 0
Values = Mapping[str, Any]
Sweep = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Trial:
    """A row at one combination of the swept values."""

    values: Values
    PPL: float | None = None  # on `CHOOSING`; infinite if training failed; None if not finished
    directory: Path | None = None  # of its run, if there is one
    seed: int = TRIAL_SEED  # trials of older code have seed 0, which is scored, too
    unusual: str = ""  # what differs in code, data or hardware from the table's runs

    @property
    def setting(self) -> str:
        """The values as text: `lr_scale=0.5`."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True)
class Choice:
    """The trials of a row, of which `chosen` has the lowest finite perplexity so far."""

    trials: tuple[Trial, ...]

    @property
    def finished(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.PPL is not None]

    @property
    def chosen(self) -> Trial | None:
        """The first of the best trials; None if none is finished, or all failed."""
        found = [trial for trial in self.finished if trial.PPL and math.isfinite(trial.PPL)]
        return min(found, key=lambda trial: trial.PPL or 0.0, default=None)

    @property
    def missing(self) -> int:
        """The number of trials that are not finished."""
        return len(self.trials) - len(self.finished)

    @property
    def values(self) -> Values:
        """The chosen values; empty if none are."""
        return self.chosen.values if self.chosen else {}

    @property
    def directories(self) -> list[Path]:
        """The directories of the finished trials, including those that failed."""
        return [trial.directory for trial in self.finished if trial.directory]

    @property
    def at_edge(self) -> list[str]:
        """The numeric fields whose chosen value is the least or the greatest of several."""
        numeric = {n: x for n, x in self.values.items() if config.field_type(n) in (int, float)}
        tried = {name: {trial.values[name] for trial in self.trials} for name in numeric}
        several = {name: (min(x), max(x)) for name, x in tried.items() if len(x) > 1}
        return [name for name, ends in several.items() if numeric[name] in ends]


UNTUNED = Choice(())


def parse(texts: Sequence[str]) -> Sweep:
    """Returns the values of each swept field, from `NAME=V1,V2,...` or `NAME=LOW..HIGH:COUNT`.

    The second form gives COUNT values at equal ratios, with three significant digits. Values that
    contain commas are separated by semicolons. A UsageError is raised for another form, for a name
    that is no field or may not be swept, and for a value that is not of the field's type.
    """
    sweep: Sweep = {}
    for text in texts:
        name, _, values = text.partition("=")
        if not values:
            raise UsageError(f"--sweep {text!r}: write it as NAME=V1,V2,... or NAME=LOW..HIGH:N.")
        _check_name(name)
        kind = config.field_type(name)
        parsed = _values(name, values, kind)
        if name in sweep or len(set(parsed)) < len(parsed):
            raise UsageError(
                f"--sweep {text!r}: {name} or one of its values occurs twice: name it once."
            )
        sweep[name] = parsed
    return sweep


def declared(study: Study, texts: Sequence[str], changes: Mapping[str, Any]) -> Sweep:
    """Returns the values of each field that a study or a command line sweeps.

    Texts of a command line, as in `parse`, replace the study's sweep of the same field. Fields that
    it changes are left out.
    """
    sweep: Sweep = {}
    for name, values in study.sweep.items():
        _check_name(name)
        kind = config.field_type(name)
        listed = values if isinstance(values, list | tuple) else ()
        sweep[name] = tuple(float(x) if kind is float and type(x) is int else x for x in listed)
        if not listed or len(set(sweep[name])) < len(listed):
            raise UsageError(
                f"sweep of {study.name}: list different values of {name}, not {values!r}."
            )
    return {name: x for name, x in sweep.items() if name not in changes} | parse(texts)


def _check_name(name: str) -> None:
    if name in (*config.SENTENCES, *_OTHER_SUBWORDS, "seed"):
        raise UsageError(
            f"{name} cannot be swept, as trials are compared by their perplexity on the same "
            "subwords, with one seed: sweep another field, or make a row for each value."
        )


def _values(name: str, text: str, kind: Any) -> tuple[Any, ...]:
    words = text.split(";" if ";" in text else ",")
    if kind not in (int, float):
        return tuple(words if isinstance(kind, tuple) else map(kind, words))
    ends, _, count = text.partition(":")
    try:
        if ".." not in text:
            return tuple(map(kind, words))
        (low, high), n = map(float, ends.split("..")), int(count)
        if n < 2 or not 0 < low < high:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"--sweep {name}={text}: give values of type {kind.__name__}, or a range as "
            "LOW..HIGH:N with 0 < LOW < HIGH and N of at least 2 values."
        ) from None
    return tuple(kind(float(f"{x:.3g}")) for x in np.geomspace(low, high, n))


def seeds_of(grid: Grid, seeds: int, base: int | None = None) -> Seeds:
    """Returns a function that gives the seeds of a row: 0 to `seeds` - 1, and more of base.

    Every row is compared with base. So base's mean should be the surest: by default it has sqrt(k)
    times as many seeds as each of k other rows, which has the most power for the same number of
    runs (Dunnett 1955), unless that is one seed.
    """
    default = seeds * max(1, round(math.sqrt(len(grid.rows) - 1))) if seeds > 1 else 1
    first, counts = grid.rows[0].name, (default if base is None else base, seeds)
    return lambda row: range(counts[row.name != first])


def tasks(grid: Grid, seeds: Seeds) -> list[list[tuple[Row, int]]]:
    """Returns the tasks of each stage of `stages`: rows with the index of a trial, or a seed."""
    trials = [(row, i) for row in grid.rows for i in range(len(grid.trials))]
    runs = [(row, seed) for row in grid.rows for seed in seeds(row)]
    return [trials, runs] if grid.sweep else [runs]


def stages(grid: Grid, seeds: Seeds, open_data: OpenData) -> Iterator[list[Job]]:
    """Yields the jobs of a grid in stages, each of which depends on the results of the one before.

    Without a sweep there is one stage. With a sweep the first has the trials, which are not
    translated, and the second has every row under all seeds, untuned and with its chosen values.
    """
    untuned = dataclasses.replace(grid, sweep={}).plan(seeds, open_data)
    if not grid.sweep:
        yield untuned
        return
    trials = [
        job for trial in grid.trials for job in trial.plan(lambda row: [TRIAL_SEED], open_data)
    ]
    yield _distinct([dataclasses.replace(job, splits=()) for job in trials])
    jobs = list(untuned)
    for row, choice in zip(grid.rows, choices(grid), strict=True):
        if choice.chosen:
            jobs += grid.at(choice.chosen.values, row).plan(seeds, open_data)
    yield _distinct(jobs)


def _distinct(jobs: Sequence[Job]) -> list[Job]:
    """Returns the jobs without repetitions of a run; of equal runs, the first job is kept."""
    return list({job.directory: job for job in reversed(jobs)}.values())[::-1]


def choices(grid: Grid) -> list[Choice]:
    """Returns the trials of every row of a grid that sweeps, with their perplexities so far."""
    values = [{name: trial.changes[name] for name in grid.sweep} for trial in grid.trials]
    keys = [[identity.row_key(trial.config(row)) for trial in grid.trials] for row in grid.rows]
    wanted = {key for row in keys for key in row}
    newest: dict[int, dict[str, Path]] = {TRIAL_SEED: {}, 0: {}}
    for directory, c in results.stored(grid.home, lambda _: None):
        key, of_seed = identity.row_key(c), newest.get(c.training.seed)
        if of_seed is not None and key in wanted:
            of_seed[key] = max(of_seed.get(key, directory), directory, key=store.finished_at)
    seed = TRIAL_SEED if newest[TRIAL_SEED] else 0  # all rows alike, even if a few have both

    def trial(v: Values, key: str) -> Trial:
        directory = newest[seed].get(key)
        PPL = None if directory is None else _perplexity(directory)
        return Trial(v, PPL, directory, seed=seed)

    return [
        Choice(tuple(trial(v, key) for v, key in zip(values, row, strict=True))) for row in keys
    ]


def _perplexity(directory: Path) -> float | None:
    """Returns the perplexity by which a trial is chosen; None if it is not finished."""
    result = store.read_result(directory)
    if result is None:
        return None if store.read_failure(directory) is None else math.inf
    likelihood = store.read_statistics(directory, result, store.LIKELIHOOD)
    if likelihood is None:
        raise UsageError(
            f"{title(directory)} cannot be a trial of a sweep, as it was made by code that did not "
            "keep the likelihood of each sentence: remove it to train it again."
        )
    return float(perplexity(np.array(likelihood)[CHOOSING].sum(axis=0)))
