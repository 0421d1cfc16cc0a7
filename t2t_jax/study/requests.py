"""The settings with which `run` was called on a store; `table` and others show a study with them.

Each request is a file of its own, studies/STUDY-PRESET-HASH.json, as several processes may write at
once.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax import files
from t2t_jax.errors import UsageError
from t2t_jax.runs.identity import sha256
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import DEFAULT
from t2t_jax.study.sweep import declared

FOLDER = "studies"


class Request(NamedTuple):
    """The settings of a grid.

    Attributes:
      fields: config fields that the command line changes.
      sweep: values of each swept field, unless they are those that the study declares.
      rows: names of rows or groups; empty for all rows.
    """

    study: str
    preset: str
    fields: Mapping[str, Any]
    sweep: Mapping[str, Sequence[Any]]
    rows: Sequence[str]

    @property
    def settings(self) -> tuple[str, ...]:
        """The flags of these settings without --rows."""
        words = ["--preset", self.preset]
        for name, value in self.fields.items():
            words += [f"--{name}", str(value)]
        return *words, *(word for text in self.sweeps for word in ("--sweep", text))

    @property
    def sweeps(self) -> list[str]:
        """The values of --sweep."""
        texts = {name: [str(value) for value in values] for name, values in self.sweep.items()}
        return [
            f"{name}={(';' if any(',' in x for x in values) else ',').join(values)}"
            for name, values in texts.items()
        ]

    @property
    def flags(self) -> list[str]:
        """The flags with which commands show the grid."""
        return [*self.settings, *(["--rows", *self.rows] if self.rows else ())]

    @property
    def is_plain(self) -> bool:
        """Whether these are the settings of a command without flags other than --rows."""
        return self.settings == ("--preset", DEFAULT)


def request_of(grid: Grid) -> Request:
    """Returns the request for a grid."""
    every, chosen = grid.study.rows, {row.name for row in grid.rows}
    rows = [] if len(chosen) == len(every) else _words(every, chosen)
    own = declared(grid.study, [], {})  # the study's own sweep needs no flag
    sweep = {name: values for name, values in grid.sweep.items() if own.get(name) != values}
    return Request(grid.study.name, grid.preset.name, {**grid.changes}, sweep, rows)


def _words(every: Sequence[Any], chosen: set[str]) -> list[str]:
    """Returns the names of the chosen rows, or the name of a group where all of it is chosen."""
    whole = {row.group for row in every} - {row.group for row in every if row.name not in chosen}
    names = (row.group if row.group in whole else row.name for row in every if row.name in chosen)
    return list(dict.fromkeys(names))


def remember(home: Path, grid: Grid) -> None:
    """Writes the request for a grid into a store."""
    content = request_of(grid)._asdict()
    name = f"{grid.name}-{sha256(content)[:8]}.json"
    files.make_directory(home / FOLDER)
    files.write_json(home / FOLDER / name, content)


def recall(home: Path, study: str, report: Callable[[str], object]) -> Request | None:
    """Returns the request for a study in a store; None if `run` made none there.

    Requests that differ only in their rows count as a single request for all of these rows. If
    there are several requests, the plain one (`Request.is_plain`) is returned.

    Args:
      report: receives a line about the settings if they are not plain, and about other requests.

    Raises:
      UsageError: there are several requests, none of which is plain.
    """
    requests = _requests(home, study)
    if not requests:
        return None
    plain = [request for request in requests if request.is_plain]
    if len(requests) > 1 and not plain:
        raise UsageError(
            f"{study} was run in {home} with {len(requests)} settings: choose {_or(requests)}."
        )
    (request,) = plain or requests
    if len(requests) > 1:
        others = [x for x in requests if x is not request]
        report(f"{study} was run in {home} with other settings, too: choose {_or(others)}.")
    elif request.rows or not request.is_plain:
        flags = shlex.join(request.flags)
        report(f"{study} is shown as it was run in {home}: {flags}; other flags show other runs.")
    return request


def _or(requests: Sequence[Request]) -> str:
    *others, last = (shlex.join(request.settings) for request in requests)
    return f"{', '.join(others)} or {last}" if others else last


def _requests(home: Path, study: str) -> list[Request]:
    """Returns the requests for a study, those with the same settings as one."""
    merged: dict[tuple[str, ...], Request] = {}
    for path in sorted((home / FOLDER).glob("*.json")):
        try:
            request = Request(**files.read_json(path))
        except TypeError:
            raise UsageError(f"{path} is not a request of `run`: remove it.") from None
        if request.study == study:
            other = merged.get(request.settings, request)
            rows = (
                dict.fromkeys([*other.rows, *request.rows]) if other.rows and request.rows else ()
            )
            merged[request.settings] = request._replace(rows=list(rows))
    return list(merged.values())
