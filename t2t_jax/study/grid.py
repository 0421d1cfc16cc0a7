"""A study at a preset's scale, under seeds: which runs that makes, and where they are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config, Data
from t2t_jax.data.cache import Dataset
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study import store
from t2t_jax.study.presets import PRESETS, Preset, shrink
from t2t_jax.study.registry import Row, Study
from t2t_jax.training.flops import run_flops


@dataclass(frozen=True, eq=False)
class Cell:
    """A run of a grid: a row under a seed, and where it is kept."""

    row: Row
    seed: int
    c: Config
    directory: Path

    @property
    def name(self) -> str:
        return f"{self.row.name} seed {self.seed}"


def alike(c: Config) -> Config:
    """What runs must share to be trained in one program; early stopping stands alone."""
    traced = dict(P_drop=0.0, eps_ls=0.0, peak_lr=0.0, lr_scale=1.0, warmup=1, seed=0)
    return c if c.training.patience else config.replace(c, **traced)


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of a study at a preset's scale.

    Attributes:
      changes: config fields that differ from the preset, alike in every row.
      home: the store, a directory of runs.
    """

    study: Study
    preset: Preset
    rows: tuple[Row, ...]
    changes: Mapping[str, Any]
    home: Path

    def config(self, row: Row) -> Config:
        """A row at the grid's scale, under seed 0."""
        c = config.replace(shrink(row.config, self.preset), **self.changes)
        base = self.study.rows[0]
        if not self.study.equal_flops or row is base:
            return c
        V = c.data.vocabulary
        steps = c.training.steps * run_flops(self.config(base), V) / run_flops(c, V)
        return config.replace(c, steps=max(1, round(steps)))

    @property
    def data(self) -> Data:
        """The corpus, which is that of every row."""
        return self.config(self.rows[0]).data

    @property
    def name(self) -> str:
        return f"{self.study.name}-{self.preset.name}"

    def check(self) -> None:
        """Refuses what can be no grid.

        Raises:
          UsageError: a row does not fit the preset, rows read different corpora, or a change names
            the seed or what a row is about.
        """
        if "seed" in self.changes:
            raise UsageError(
                "a study runs under seeds 0 to K - 1: give --seeds K in place of --seed."
            )
        base = self.study.rows[0].config.data.corpus
        if metric_of(base).name != metric_of(self.data.corpus).name:
            fitting = (p.name for p in PRESETS.values() if _fits(p, base))
            raise UsageError(
                f"{self.study.name} reads {base}, and preset {self.preset.name} has "
                f"{self.data.corpus} in its place: choose --preset {' or '.join(fitting)}."
            )
        for row in self.rows:
            if twice := self.changes.keys() & row.changes.keys():
                raise UsageError(
                    f"{min(twice)} is what row {row.name} of {self.study.name} is about: leave it "
                    "out, or choose other rows with --rows."
                )
            if self.config(row).data != self.data:
                raise UsageError(
                    f"row {row.name} of {self.study.name} reads other data than the others."
                )

    def plan(self, seeds: int, dataset: Dataset) -> list[Cell]:
        """Every row under seeds 0, 1, ..., in the rows' order."""
        facts = store.about(dataset)
        return [
            Cell(row, seed, c, self.home / store.key(c, facts))
            for row in self.rows
            for seed in range(seeds)
            for c in [config.replace(self.config(row), seed=seed)]
        ]


def _fits(preset: Preset, corpus: str) -> bool:
    """Whether what a preset reads is scored as a corpus is."""
    return metric_of(preset.changes.get("corpus", corpus)).name == metric_of(corpus).name
