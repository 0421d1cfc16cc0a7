"""A grid: the rows of a study at a preset's scale, and the store of their runs."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import SENTENCES, Config, Data
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import request
from t2t_jax.errors import UsageError, near
from t2t_jax.evaluation.metrics import BPC, CONTRASTIVE, PPL, is_scored, metric_of, of_split
from t2t_jax.models.flops import step_flops
from t2t_jax.runs import identity
from t2t_jax.runs.identity import Job, OpenData
from t2t_jax.study.declaration import Row, Study
from t2t_jax.study.presets import PRESETS, SCALED, Preset, shrink, space_checkpoints

Seeds = Callable[[Row], Sequence[int]]


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of a study at a preset's scale.

    Of the fields that a command line changes, a scaled one gets this value in base, and rows that
    name it keep their proportion to base; any other field gets it in every row.
    """

    study: Study
    preset: Preset
    rows: tuple[Row, ...]
    changes: Mapping[str, Any]  # of a command line
    home: Path  # the store, a directory of runs
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # as in `Study`
    metrics: tuple[str, ...] = ()  # the columns of scores; empty for PPL and the corpus's metric

    @property
    def trials(self) -> list["Grid"]:
        """The grid at each combination of the swept values; an empty list without a sweep."""
        combinations = itertools.product(*self.sweep.values())
        values = [dict(zip(self.sweep, x, strict=True)) for x in combinations]
        return [self.at(x) for x in values] if self.sweep else []

    def at(self, values: Mapping[str, Any], *rows: Row) -> "Grid":
        """Returns the grid, or some of its rows, with values for the swept fields."""
        changes = {**self.changes, **values}
        return dataclasses.replace(self, rows=rows or self.rows, changes=changes, sweep={})

    def config(self, row: Row) -> Config:
        """Returns a row's config at the grid's scale, with seed 0."""
        c = shrink(self.study.config(), row.changes, self.preset, self.changes)
        if not self.study.equal_flops or row is self.study.rows[0]:
            return c
        base, L = self.config(self.study.rows[0]), self.preset.length
        of_base, ours = (step_flops(x.model, x.data.vocabulary, 1, L, L) for x in (base, c))
        c = config.replace(c, steps=max(1, round(base.training.steps * of_base / ours)))
        return space_checkpoints(c, self.preset, {*row.changes, *self.changes})

    def split(self, c: Config) -> str:
        """Returns the split that a row is scored on; empty if only perplexity is measured."""
        return self.study.split if is_scored(c) else ""

    def splits(self, c: Config) -> tuple[str, ...]:
        """Returns the splits that a row is scored on: the study's, and those that metrics name."""
        named = (of_split(name)[1] for name in self.metrics)
        return tuple(dict.fromkeys(filter(None, (self.study.split, *named)))) * is_scored(c)

    @cached_property
    def data(self) -> Data:
        """Base's data; every row has the same sentences."""
        return self.config(self.rows[0]).data

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """The metrics that have a column; bits per character, if PPL is per different subwords."""
        names = [*self.metrics] or [PPL, metric_of(self.data.corpus).name]
        prepared = (request(self.config(row).data) for row in self.rows)
        if PPL in names and BPC not in names and any(x != request(self.data) for x in prepared):
            names.insert(names.index(PPL) + 1, BPC)
        return tuple(names)

    @property
    def computed(self) -> tuple[str, ...]:
        """The metrics that are computed for a table."""
        kept = PPL, metric_of(self.data.corpus).name
        return tuple(name for name in self.scores if name not in kept)

    @property
    def name(self) -> str:
        return f"{self.study.name}-{self.preset.name}"

    @property
    def title(self) -> str:
        return f"{self.study.title}, preset {self.preset.name}"

    @property
    def flags(self) -> str:
        """The fields that a command line changed, without paths: `N 1, steps 200`."""
        return ", ".join(f"{name} {value}" for name, value in self._changed())

    def run_name(self, row: Row, seed: int) -> str:
        """Returns `table3-demo/base/0`, or `table3-demo:N=1/base/0` if a field is changed."""
        changes = ",".join(f"{name}={value}" for name, value in self._changed())
        return f"{self.name}{f':{changes}' * bool(changes)}/{row.name}/{seed}"

    def _changed(self) -> list[tuple[str, Any]]:
        return [(n, value) for n, value in self.changes.items() if n not in config.PATHS]

    def check(self) -> None:
        """Raises an error if the rows are no valid grid.

        Then a row does not fit the preset, rows read different sentences or are the same run, a
        change names the seed or a field that a row changes, or a metric does not fit the corpus.
        """
        if "seed" in self.changes:
            raise UsageError(
                "a study runs under seeds 0 to K - 1: give --seeds K in place of --seed."
            )
        if both := self.sweep.keys() & self.changes.keys():
            name = min(both)
            raise UsageError(f"--sweep varies {name}: leave out --{name}, or the sweep of it.")
        if self.metrics and not self.study.split and not {*self.metrics} <= {PPL, BPC}:
            raise UsageError(
                f"{self.study.name} measures perplexity alone, and translates nothing: leave out "
                "--metrics, or give its study a split."
            )
        if unknown := [name for name in self.study.metrics if name not in CORPORA]:
            said = f"{self.study.name} names metrics of corpus {unknown[0]!r}"
            raise UsageError(f"{said}: {near(unknown[0], CORPORA)}")
        if CONTRASTIVE in self.metrics and not CORPORA[self.data.corpus].minimal_pairs:
            known = " or ".join(name for name, x in CORPORA.items() if x.minimal_pairs)
            raise UsageError(
                f"{CONTRASTIVE} is accuracy on minimal pairs of {known}, but {self.study.name} "
                f"reads {self.data.corpus}: leave it out of --metrics, or set --corpus {known}."
            )
        for trial in self.trials:
            trial.check()
        base = self.study.config(self.study.rows[0]).data.corpus
        if metric_of(base).name != metric_of(self.data.corpus).name:
            corpora = {p.name: p.changes.get("corpus", base) for p in PRESETS.values()}
            fitting = (n for n, x in corpora.items() if metric_of(x).name == metric_of(base).name)
            raise UsageError(
                f"{self.study.name} reads {base}, but preset {self.preset.name} replaces it by "
                f"{self.data.corpus}, which has another metric: choose --preset "
                f"{' or '.join(fitting)}."
            )
        self._check_rows()

    def _check_rows(self) -> None:
        rows: dict[Config, Row] = {}
        for row in self.rows:
            proportional = {*SCALED} if row is not self.study.rows[0] else set()
            if overridden := (self.changes.keys() & row.changes.keys()) - proportional:
                raise UsageError(
                    f"row {row.name} of {self.study.name} sets {min(overridden)} itself: leave it "
                    "out, or choose other rows with --rows."
                )
            c = self.config(row)
            for name in SENTENCES:
                ours, base = getattr(c.data, name), getattr(self.data, name)
                if ours != base:
                    raise UsageError(
                        f"row {row.name} of {self.study.name} reads {name} {ours!r} and base "
                        f"{base!r}: rows of a table are scored on the same sentences."
                    )
            if c in rows:
                raise UsageError(
                    f"rows {rows[c].name} and {row.name} of {self.study.name} are the same run "
                    f"with preset {self.preset.name}, which sets fields that a row does not name: "
                    "change one of them, or choose another preset or other --rows."
                )
            rows[c] = row

    def plan(self, seeds: Seeds, open_data: OpenData) -> list[Job]:
        """Returns a job for each row and each of its seeds, in the order of the rows."""
        jobs = []
        for row in self.rows:
            c = self.config(row)
            dataset, splits = open_data(c.data), self.splits(c)
            if missing := [split for split in splits if split not in dataset.splits]:
                raise UsageError(
                    f"{self.study.name} is to be scored on {missing[0]!r}, but corpus "
                    f"{c.data.corpus} has no such split: {near(missing[0], dataset.splits)}"
                )
            facts = identity.data_facts(dataset)
            for seed in seeds(row):
                seeded = config.replace(c, seed=seed)
                directory = self.home / identity.key(seeded, facts)
                jobs.append(Job(self.run_name(row, seed), seeded, directory, splits))
        return jobs
