"""Studies: a table of a paper as rows, each written as its difference from base.

A study is one file under experiments/: a function that returns rows, decorated with `@study`.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near, warn

PAPER = ("PPL", "BLEU", "F1", "params", "FLOPs")  # fields of a row that hold the paper's values
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      group: the block of the table that it belongs to, a letter; or the row's own name.
      changes: config fields that differ from the study's base, at the paper's scale.
      PPL, BLEU, F1, params, FLOPs: the paper's values, params in millions; None if its cell is
        blank.
      label: the paper's description of a change that has no column.
    """

    group: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    PPL: float | None = None
    BLEU: float | None = None
    params: float | None = None
    FLOPs: float | None = None
    F1: float | None = None
    label: str = ""

    @property
    def name(self) -> str:
        """The row's name, unique in a study: `base`, `A:h=4,d_k=128,d_v=128`."""
        if len(self.group) > 1:
            return self.group
        return f"{self.group}:" + ",".join(f"{n}={v}" for n, v in self.changes.items())


@dataclass(frozen=True)
class Study:
    """A table.

    Attributes:
      columns: config fields that have a column of their own.
      rows: the first is base, with which the others are compared.
      split: the split that BLEU or F1 is measured on; empty if only perplexity is measured.
      V: the vocabulary size for counting parameters at the paper's scale.
      equal_flops: whether the steps of each row are chosen such that it takes base's FLOPs.
      base: config fields in which this table's base differs from Table 3's; a preset may replace
        them.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    split: str
    V: int
    equal_flops: bool = False
    base: Mapping[str, Any] = field(default_factory=dict)

    def config(self, row: Row | None = None) -> Config:
        """Returns a row's config at the paper's scale; base's if no row is given.

        Raises:
          UsageError: a change names no field, or a value is out of range.
        """
        base = config.replace(Config(), **self.base)
        return config.replace(base, **row.changes) if row else base


def study(
    title: str,
    *,
    columns: str,
    split: str,
    V: int,
    equal_flops: bool = False,
    base: Mapping[str, Any] | None = None,
) -> Callable[[Callable[[], Sequence[Row]]], Study]:
    """Returns a decorator that turns a function into a study of its name, with the rows it returns.

    See `Study` for the arguments.
    """

    def make(rows: Callable[[], Sequence[Row]]) -> Study:
        made = Study(
            name=rows.__name__,
            title=title,
            columns=tuple(columns.split()),
            rows=tuple(rows()),
            split=split,
            V=V,
            equal_flops=equal_flops,
            base=base or {},
        )
        _check(made)
        return made

    return make


def _check(study: Study) -> None:
    """Raises an error if a change names no field or the seed, or if two rows have the same name."""
    for row in study.rows:
        study.config(row)
        if "seed" in {**study.base, **row.changes}:
            raise UsageError(
                f"row {row.name} of {study.name} names the seed: leave it out, every row runs "
                "under the seeds 0 to K - 1 of --seeds K."
            )
    names = [row.name for row in study.rows]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{study.name} has two rows {repeated[0]}: change one, or its group.")


def studies(folder: Path = EXPERIMENTS, report: Callable[[str], object] = warn) -> dict[str, Study]:
    """Returns every study under experiments/, by name.

    Args:
      report: receives a line about each file that cannot be loaded.
    """
    out: dict[str, Study] = {}
    for path in sorted(folder.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"experiments.{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            report(f"{path} cannot be loaded ({reason}): its studies are left out.")
            continue
        out |= {s.name: s for s in vars(module).values() if isinstance(s, Study)}
    return out


def find(name: str) -> Study:
    """Returns the study with this name.

    Raises:
      UsageError: there is no such study.
    """
    known = studies()
    if name not in known:
        raise UsageError(f"there is no study {name!r} under {EXPERIMENTS}: {near(name, known)}")
    return known[name]


def select(study: Study, names: Sequence[str]) -> tuple[Row, ...]:
    """Returns base and the rows with these names or groups, in order; all rows without names.

    Raises:
      UsageError: a name is that of no row and no group.
    """
    choices = {row.name for row in study.rows} | {row.group for row in study.rows}
    for name in names:
        if name not in choices:
            raise UsageError(f"{study.name} has no row {name!r}: {near(name, choices)}")
    selected = {study.rows[0].name, *names}
    return tuple(row for row in study.rows if not names or {row.name, row.group} & selected)
