"""The settings with which `run` was called on a store; `table` and others show a study with them.

Each request is a file of its own, studies/STUDY-PRESET-HASH.json, as several processes may write at
once.
"""

import dataclasses
import itertools
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from t2t_jax import files
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import metrics
from t2t_jax.runs.identity import sha256
from t2t_jax.study.declaration import Study, select
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import DEFAULT, preset
from t2t_jax.study.sweep import declared

FOLDER = "studies"


class Request(NamedTuple):
    """The settings of a grid; sweep and metrics only if they are not those of the study itself."""

    study: str
    preset: str = DEFAULT
    fields: Mapping[str, Any] = MappingProxyType({})  # that the command line changes
    sweep: Mapping[str, Sequence[Any]] = MappingProxyType({})  # values of each swept field
    rows: Sequence[str] = ()  # names of rows or groups; empty for all rows
    metrics: Sequence[str] = ()  # the columns of scores

    @property
    def settings(self) -> tuple[str, ...]:
        """The flags of these settings without --rows."""
        fields = [(f"--{name}", str(value)) for name, value in self.fields.items()]
        sweeps = [("--sweep", text) for text in self.sweeps]
        return tuple(itertools.chain(("--preset", self.preset), *fields, *sweeps))

    @property
    def sweeps(self) -> list[str]:
        """The values of --sweep."""
        texts = {name: [*map(str, values)] for name, values in self.sweep.items()}
        marks = {name: ";" if "," in "".join(values) else "," for name, values in texts.items()}
        return [f"{name}={marks[name].join(values)}" for name, values in texts.items()]

    @property
    def flags(self) -> list[str]:
        """The flags with which commands show the grid."""
        return [*self.settings, *(["--rows", *self.rows] if self.rows else ())]

    def declared_alone(self, report: Callable[[str], object]) -> "Request":
        """Returns the request without metrics that no loaded file declares, which it reports."""
        known = [name for name in self.metrics if metrics.of_split(name)[0] in metrics.METRICS]
        if unknown := [name for name in self.metrics if name not in known]:
            report(f"without {', '.join(unknown)}: --import the file that declares it.")
        return self._replace(metrics=known)

    def grid(self, study: Study, home: Path) -> Grid:
        """Returns the grid of these settings in a store, checked."""
        rows, sweep = select(study, self.rows), declared(study, self.sweeps, self.fields)
        grid = Grid(study, preset(self.preset), rows, self.fields, home, sweep)
        corpus = grid.data.corpus
        names = ",".join(self.metrics) or study.metrics.get(corpus, "")
        grid = dataclasses.replace(grid, metrics=metrics.parse(names, corpus, table=True))
        grid.check()
        return grid


def request_of(grid: Grid) -> Request:
    others = [row for row in grid.study.rows if row not in grid.rows]
    parted = {row.group for row in others}  # groups of which not all rows are chosen
    words = [row.name if row.group in parted else row.group for row in grid.rows]
    rows = list(dict.fromkeys(words)) if others else []
    own = declared(grid.study, [], {})  # the study's own sweep needs no flag
    sweep = {name: values for name, values in grid.sweep.items() if own.get(name) != values}
    of_study = grid.study.metrics.get(grid.data.corpus, "").replace(" ", "")
    asked = [] if ",".join(grid.metrics) == of_study else [*grid.metrics]
    return Request(grid.study.name, grid.preset.name, {**grid.changes}, sweep, rows, asked)


def remember(home: Path, grid: Grid) -> None:
    """Writes the request for a grid into a store."""
    content = request_of(grid)._asdict()
    if not content["metrics"]:  # as in the requests of older code, whose file this replaces
        del content["metrics"]
    name = f"{grid.name}-{sha256(content)[:8]}.json"
    files.make_directory(home / FOLDER)
    files.write_json(home / FOLDER / name, content)


def recall(home: Path, study: str, report: Callable[[str], object]) -> Request | None:
    """Returns the request for a study in a store; None if `run` made none there.

    Requests that differ only in rows or metrics count as one request for all of these. Of several
    requests, the plain one, of a command without flags other than --rows, is returned; without one,
    they are refused. Settings that are not plain, and other requests, are reported.
    """
    requests = known(home, study)
    if not requests:
        return None
    plain = [request for request in requests if request.settings == ("--preset", DEFAULT)]
    if len(requests) > 1 and not plain:
        raise UsageError(
            f"{study} was run in {home} with {len(requests)} settings: choose {_or(requests)}."
        )
    (request,) = plain or requests
    if others := [x for x in requests if x is not request]:
        report(f"{study} was run in {home} with other settings, too: choose {_or(others)}.")
    elif request.rows or not plain:
        flags = shlex.join(request.flags)
        report(f"{study} is shown as it was run in {home}: {flags}; other flags show other runs.")
    return request


def no_run(grid: Grid) -> str:
    """Returns the error of a command that needs a finished run; it names other settings."""
    requests = known(grid.home, grid.study.name)
    others = [x for x in requests if x.settings != request_of(grid).settings]
    hint = f"run it first{f', or give {_or(others)}' if others else ''}"
    return f"{grid.home} has no finished run of {grid.study.name} with these settings: {hint}."


def _or(requests: Sequence[Request]) -> str:
    *others, last = (shlex.join(request.settings) for request in requests)
    return f"{', '.join(others)} or {last}" if others else last


def known(home: Path, study: str = "") -> list[Request]:
    """Returns the requests for a study, or for all studies, those with the same settings as one."""
    merged: dict[tuple[str, ...], Request] = {}
    for path in sorted((home / FOLDER).glob("*.json")):
        try:
            request = Request(**files.read_json(path))
        except TypeError:
            raise UsageError(f"{path} is not a request of `run`: remove it.") from None
        if study in ("", request.study):
            key = request.study, *request.settings
            other = merged.get(key, request)
            # None stand for all rows, and for the study's own metrics.
            pairs = (other.rows, request.rows), (other.metrics, request.metrics)
            rows, names = ([*dict.fromkeys((*x, *y))] if x and y else [] for x, y in pairs)
            merged[key] = request._replace(rows=rows, metrics=names)
    return list(merged.values())
