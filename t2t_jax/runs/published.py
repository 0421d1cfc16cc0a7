"""What the files of a run hold: in a directory of its own, or published with others in one file.

`runs.jsonl.xz` is JSON lines, compressed. Each line is a run: the name of its directory, and the
content of its files by their names, of JSON files as JSON and of others as text. A folder that has
such a file is read as a store is, and nothing but `write` changes the file.
"""

import json
import lzma
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.config import PATHS
from t2t_jax.errors import UsageError
from t2t_jax.training.progress import read_metrics

NAME = "runs.jsonl.xz"
KEPT = (
    "config.json",
    "data.json",
    "environment.json",
    "code.json",
    "metrics.jsonl",
    "result.json",
)
Contents = dict[str, Any]


def directories(home: Path) -> list[Path]:
    """The directories of the runs of a store, those of published runs among them."""
    there = {path.parent for path in home.glob("*/config.json")}
    return sorted(there | {home / name for name in _published(home)})


def read(directory: Path, name: str) -> Any:
    """What a file of a run holds: JSON, the records of a .jsonl, or text; None without the file.

    Raises:
      UsageError: it is damaged, or cannot be read.
    """
    path = directory / name
    if not path.exists():
        return _published(directory.parent).get(directory.name, {}).get(name)
    if path.suffix == ".json":
        return files.read_json(path)
    return read_metrics(path) if path.suffix == ".jsonl" else path.read_text()


def is_published(directory: Path) -> bool:
    """Whether a run is known from a file of runs alone."""
    return not directory.exists() and directory.name in _published(directory.parent)


def where(directory: Path) -> Path:
    """Where a person finds a run: its directory, or the file of runs that it is published in."""
    return directory.parent / NAME if is_published(directory) else directory


def contents(directory: Path, names: Iterable[str] = KEPT) -> Contents:
    """What these files of a run hold, without where its corpus lay; those that it has."""
    kept = {name: read(directory, name) for name in names}
    kept["config.json"] = kept["config.json"] | dict.fromkeys(PATHS, "")
    return {name: content for name, content in kept.items() if content is not None}


def write(home: Path, runs: Mapping[str, Contents]) -> None:
    """Publishes runs, by the names of their directories, in place of those that a folder has.

    Raises:
      RunError: the file cannot be written.
    """
    lines = ({"directory": name, **held} for name, held in runs.items())
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    files.write(home / NAME, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _published(home: Path) -> Mapping[str, Contents]:
    """What a folder's file of runs holds, by the names of their directories."""
    try:
        state = (home / NAME).stat()
    except OSError:
        return {}
    return _unpacked(home / NAME, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _unpacked(path: Path, *_: int) -> Mapping[str, Contents]:
    """The runs of a file; the numbers tell its versions apart."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            return {run["directory"]: run for run in map(json.loads, lines)}
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        why = str(error).rstrip(".")
        raise UsageError(f"{path} is damaged ({why}): restore it from where it came.") from None
