"""A study at a preset's scale, under seeds: which runs that makes, and where they are kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import SENTENCES, Config, Data
from t2t_jax.data.cache import Dataset
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.models.flops import run_flops
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.runs import identity
from t2t_jax.runs.job import Job
from t2t_jax.study.presets import PRESETS, SCALED, Preset, shrink
from t2t_jax.study.registry import Row, Study


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of a study at a preset's scale.

    Attributes:
      changes: config fields that a command line changes: of a scaled quantity it gives base's
        value, to which the rows keep their proportion; others are alike in every row.
      home: the store, a directory of runs.
    """

    study: Study
    preset: Preset
    rows: tuple[Row, ...]
    changes: Mapping[str, Any]
    home: Path

    def config(self, row: Row) -> Config:
        """A row at the grid's scale, under seed 0."""
        c = shrink(self.study.config(), row.changes, self.preset, self.changes)
        base = self.study.rows[0]
        if not self.study.equal_flops or row is base:
            return c
        share = _flops(self.config(base)) / _flops(c)
        return config.replace(c, steps=max(1, round(c.training.steps * share)))

    def split(self, c: Config) -> str:
        """The split that a row is scored on; empty if perplexity is all there is."""
        return self.study.split if ARCHITECTURES[c.model.architecture].translates else ""

    @property
    def data(self) -> Data:
        """Base's data; the sentences are those of every row."""
        return self.config(self.rows[0]).data

    @property
    def name(self) -> str:
        return f"{self.study.name}-{self.preset.name}"

    @property
    def title(self) -> str:
        return f"{self.study.title}, preset {self.preset.name}"

    @property
    def flags(self) -> str:
        """What a command line changed, where files lie apart: `N 1, steps 200`."""
        return ", ".join(f"{name} {value}" for name, value in self._changed())

    def run_name(self, row: Row, seed: int) -> str:
        """`table3-demo/base/0`, or `table3-demo:N=1,steps=200/base/0` where fields are changed."""
        changes = ",".join(f"{name}={value}" for name, value in self._changed())
        return f"{self.name}{f':{changes}' * bool(changes)}/{row.name}/{seed}"

    def _changed(self) -> list[tuple[str, Any]]:
        return [(n, value) for n, value in self.changes.items() if n not in config.PATHS]

    def check(self) -> None:
        """Refuses what can be no grid.

        Raises:
          UsageError: a row does not fit the preset, rows read different sentences or are one run,
            or a change names the seed or what a row is about.
        """
        if "seed" in self.changes:
            raise UsageError(
                "a study runs under seeds 0 to K - 1: give --seeds K in place of --seed."
            )
        base = self.study.config(self.study.rows[0]).data.corpus
        if metric_of(base).name != metric_of(self.data.corpus).name:
            fitting = (p.name for p in PRESETS.values() if _fits(p, base))
            raise UsageError(
                f"{self.study.name} reads {base}, and preset {self.preset.name} has "
                f"{self.data.corpus} in its place: choose --preset {' or '.join(fitting)}."
            )
        self._check_rows()

    def _check_rows(self) -> None:
        rows: dict[Config, Row] = {}
        for row in self.rows:
            proportional = {*SCALED} if row is not self.study.rows[0] else set()
            if twice := (self.changes.keys() & row.changes.keys()) - proportional:
                raise UsageError(
                    f"{min(twice)} is what row {row.name} of {self.study.name} is about: leave it "
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
                    f"with preset {self.preset.name}: name in both what tells them apart, or "
                    "choose another preset or other --rows."
                )
            rows[c] = row

    def plan(self, seeds: int, open_data: Callable[[Data], Dataset]) -> list[Job]:
        """Every row under seeds 0, 1, ..., in the rows' order; `open_data` opens its corpus."""
        jobs = []
        for row in self.rows:
            c = self.config(row)
            facts = identity.about(open_data(c.data))
            for seed in range(seeds):
                seeded = config.replace(c, seed=seed)
                home = self.home / identity.key(seeded, facts)
                name = self.run_name(row, seed)
                jobs.append(Job(name, row.name, seeded, home, self.split(c)))
        return jobs


def _flops(c: Config) -> float:
    return run_flops(c, c.data.vocabulary)


def _fits(preset: Preset, corpus: str) -> bool:
    """Whether what a preset reads is scored as a corpus is."""
    return metric_of(preset.changes.get("corpus", corpus)).name == metric_of(corpus).name
