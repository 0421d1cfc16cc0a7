"""Studies: a table of a paper as rows, each written as its difference from base.

A study is a function, in any file, that returns rows and is decorated with `@study`. Those under
experiments/ are known by name.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near
from t2t_jax.runs.study_file import load

# What a paper may report of a row; `params` is in millions.
PAPER = ("PPL", "BLEU", "F1", "accuracy", "params", "FLOPs")
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
_DECLARATION = re.compile(
    r"""^@study\(\s*((["'])(?P<title>.*?)\2)?.*?^def (?P<name>\w+)\(""", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Its group is the block of the table that it belongs to; a word that is no single letter is also
    the row's name. In a group of one letter, the name lists the changes, unless it is set:
    `A:h=4,d_k=128,d_v=128`.
    """

    group: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # from base, at the paper's scale
    paper: Mapping[str, float] = field(default_factory=dict)  # its values, by the names in `PAPER`
    name: str = ""  # unique in a study
    label: str = ""  # the paper's description of a change that has no column

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self._default_name)

    @property
    def _default_name(self) -> str:
        if len(self.group) > 1:
            return self.group
        return f"{self.group}:" + ",".join(f"{n}={v}" for n, v in self.changes.items())

    @property
    def name_lists_changes(self) -> bool:
        return len(self.group) == 1 and self.name == self._default_name


@dataclass(frozen=True)
class Study:
    """A table.

    With `equal_flops`, each row has as many steps as the training FLOPs of base allow, with
    sentences of the preset's `length`; the warm-up has the same steps in every row.
    """

    name: str
    title: str
    columns: tuple[str, ...]  # config fields that have a column of their own
    rows: tuple[Row, ...]  # the first is base, with which the others are compared
    split: str  # that BLEU, F1 or accuracy is measured on; empty if only perplexity is
    equal_flops: bool = False
    # Fields in which this table's base differs from Table 3's; a preset may replace them.
    base: Mapping[str, Any] = field(default_factory=dict)
    # Values of fields, one of which is chosen for each row (`study.sweep`).
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    # By corpus, the columns of scores, as `--metrics` names them: by default PPL and its metric.
    metrics: Mapping[str, str] = field(default_factory=dict)

    def config(self, row: Row | None = None) -> Config:
        """Returns a row's config at the paper's scale; base's if no row is given."""
        base = config.replace(Config(), **self.base)
        return config.replace(base, **row.changes) if row else base


def study(
    title: str, *, columns: str, split: str, V: int = 0, **options: Any
) -> Callable[[Callable[[], Sequence[Row]]], Study]:
    """Returns a decorator that makes a function a study: its name, with the rows that it returns.

    See `Study` for the arguments; `options` are `equal_flops`, `base`, `sweep` and `metrics`.
    `V` has no effect; files for older code give it.
    """

    def make(rows: Callable[[], Sequence[Row]]) -> Study:
        fields, returned = tuple(columns.split()), tuple(rows() or ())
        made = Study(rows.__name__, title, fields, returned, split, **options)
        _check(made)
        return made

    return make


def _check(study: Study) -> None:
    """Raises an error if a row or a name of it is invalid, or if two rows have the same name."""
    if not study.rows or not all(isinstance(row, Row) for row in study.rows):
        other = next((type(x).__name__ for x in study.rows if not isinstance(x, Row)), "nothing")
        raise UsageError(f"study {study.name} returns {other}: return a list of rows, base first.")
    for name in study.columns:
        config.field_type(name)  # raises an error if there is no such field
    names = [row.name for row in study.rows]
    for row in study.rows:
        study.config(row)
        if unknown := [name for name in row.paper if name not in PAPER]:
            value = f"has a value {unknown[0]!r} of the paper"
            raise UsageError(f"row {row.name} of {study.name} {value}: {near(unknown[0], PAPER)}")
        if not row.name.isprintable():
            raise UsageError(f"row {row.name!r} of {study.name}: write its name on one line.")
        if "seed" in {**study.base, **row.changes}:
            raise UsageError(
                f"row {row.name} of {study.name} names the seed: leave it out, every row runs "
                "under the seeds 0 to K - 1 of --seeds K."
            )
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{study.name} has two rows {repeated[0]}: change one, or its group.")


def cross(**levels: Sequence[Any] | Callable[[Mapping[str, Any]], Any]) -> list[Row]:
    """Returns a row for each combination of values: `cross(h=[1, 4, 8], d_model=[256, 512])` has 6.

    A function in place of values gives a field that follows from the others, such as
    `d_k=lambda row: row["d_model"] // row["h"]`. Its argument has all fields of the row. Fields
    that are not named keep base's values, whatever the others are.

    The first row is base: each field has the value of Table 3's base if that is one of the values
    given, and otherwise the first of them. Every row names all of the fields, so a preset scales
    their values and replaces none. A UsageError is raised if there is no such field, or if it has
    fewer than two values or one value twice.
    """
    defaults = config.flatten(Config())
    derived = {n: x for n, x in levels.items() if callable(x)}
    factors = {n: x for n, x in levels.items() if not callable(x)}
    for name in levels:
        config.field_type(name)
    for name, values in factors.items():
        if len(values) < 2 or any(x in values[:i] for i, x in enumerate(values)):
            raise UsageError(f"cross({name}={list(values)}): name two values or more, each once.")

    def complete(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: of({**defaults, **row}) for name, of in derived.items()}

    every = itertools.product(*factors.values())
    rows = [complete(dict(zip(factors, values, strict=True))) for values in every]
    base = complete({n: defaults[n] if defaults[n] in x else x[0] for n, x in factors.items()})
    return [Row("base", base), *(Row("A", row) for row in rows if row != base)]


def declared(folder: Path | None = None) -> dict[str, tuple[str, Path]]:
    """Returns the title and the file of every study in a folder by name, without executing one."""
    return {
        match["name"]: (match["title"] or "", path)
        for path in sorted((folder or EXPERIMENTS).glob("*.py"))
        for match in _DECLARATION.finditer(path.read_text("utf-8", errors="replace"))
    }


def find(text: str) -> Study:
    """Returns the study of a name, of a file `PATH.py`, or `PATH.py:name` in a file of several.

    Raises a UsageError if there is no such study, or the file cannot be loaded.
    """
    path, name = path_of(text), text.rpartition(":")[2]
    if path is None:
        known = declared()
        if name not in known:
            raise UsageError(f"there is no study {name!r} under {EXPERIMENTS}: {near(name, known)}")
        path = known[name][1]
    of_file = {s.name: s for s in vars(load(path)).values() if isinstance(s, Study)}
    if not of_file:
        raise UsageError(
            f"{path} defines no study: decorate a function with @study (`help study`)."
        )
    if Path(text) == path:
        if len(of_file) > 1:
            choices = " or ".join(f"{path}:{name}" for name in of_file)
            raise UsageError(f"{path} defines {len(of_file)} studies: name one of them, {choices}.")
        return next(iter(of_file.values()))
    if name not in of_file:
        raise UsageError(f"{path} defines no study {name!r}: {near(name, of_file)}")
    return of_file[name]


def path_of(text: str) -> Path | None:
    """Returns the file that `PATH.py` or `PATH.py:name` names; None for the name of a study."""
    file, _, name = text.rpartition(":")
    paths = (text, file) if name.isidentifier() else (text,)
    return next((Path(path) for path in paths if path.endswith(".py")), None)


def select(study: Study, names: Sequence[str]) -> tuple[Row, ...]:
    """Returns base and the rows with these names or groups, in order; all rows without names."""
    choices = {row.name for row in study.rows} | {row.group for row in study.rows}
    for name in names:
        if name not in choices:
            raise UsageError(f"{study.name} has no row {name!r}: {near(name, choices)}")
    selected = {study.rows[0].name, *names}
    return tuple(row for row in study.rows if not names or {row.name, row.group} & selected)
