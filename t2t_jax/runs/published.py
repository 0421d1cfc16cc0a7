"""The files of runs, read from the run's directory or from a file of published runs.

`runs.jsonl.xz` is compressed JSON lines. Each line is a run: the name of its directory, and the
content of its files by name, JSON files as JSON and others as text. A folder that has such a file
is read like a store; only `write` changes the file.
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
from t2t_jax.training.records import read_metrics

NAME = "runs.jsonl.xz"
KEPT = (  # files of a run that are published, besides its translations and statistics
    *"config.json data.json environment.json metrics.jsonl result.json".split(),
    *"study.py modules.json".split(),
)
FAILURE = "failed.json"
Contents = dict[str, Any]


def directories(home: Path) -> list[Path]:
    """Returns the directories of the runs of a store, published runs included."""
    unpublished = {path.parent for path in home.glob("*/config.json")}
    return sorted(unpublished | {home / name for name in _published(home)})


def read(directory: Path, name: str) -> Any:
    """Returns the content of a run's file: JSON, the records of a .jsonl, or text; None without it.

    Raises a UsageError if the file is damaged, or cannot be read.
    """
    path = directory / name
    if not path.exists():
        return _published(directory.parent).get(directory.name, {}).get(name)
    if _is_json(name):
        return files.read_json(path)
    return read_metrics(path) if name == "metrics.jsonl" else path.read_text("utf-8")


def _is_json(name: str) -> bool:
    """Returns whether a file has JSON; translations into a language `json` are test.json."""
    named = name in (*KEPT, FAILURE) or name.endswith(".statistics.json")
    return named and name.endswith(".json")


def is_published(directory: Path) -> bool:
    """Returns whether a run has no directory, only an entry in a file of published runs."""
    return not directory.exists() and directory.name in _published(directory.parent)


def location(directory: Path) -> Path:
    """Returns the path at which a run is stored: its directory, or the file of published runs."""
    return directory.parent / NAME if is_published(directory) else directory


def contents(directory: Path, names: Iterable[str] = KEPT) -> Contents:
    """Returns the content of the files that a run has; the paths in its config are left blank."""
    content_of = {name: read(directory, name) for name in names}
    content_of["config.json"] = content_of["config.json"] | dict.fromkeys(PATHS, "")
    if environment := content_of.get("environment.json"):
        content_of["environment.json"] = {n: x for n, x in environment.items() if n != "study_file"}
    return {name: content for name, content in content_of.items() if content is not None}


def write(home: Path, runs: Mapping[str, Contents]) -> None:
    """Publishes runs, by the names of their directories; replaces the runs published in `home`."""
    lines = ({"directory": name, **content} for name, content in runs.items())
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    files.write(home / NAME, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def unpack(folder: Path, home: Path) -> int:
    """Makes the runs published in a folder, unless they are begun or done; returns how many."""
    runs = _published(folder)
    if not runs:
        raise UsageError(f"{folder} has no {NAME}: name a folder that `publish` wrote.")
    files.make_directory(home)
    new = [name for name in runs if not (home / name / "config.json").exists()]
    for name in new:
        files.make_directory(home / name)
        others = (file for file in runs[name] if file not in ("directory", "config.json"))
        for file in (*others, "config.json"):  # last: it makes the directory a run
            files.write(home / name / file, _text(file, runs[name][file]))
    return len(new)


def _text(name: str, content: Any) -> str:
    if name == "metrics.jsonl":
        return "".join(f"{json.dumps(record)}\n" for record in content)
    return json.dumps(content) if _is_json(name) else str(content)


def _published(home: Path) -> Mapping[str, Contents]:
    """Returns the runs published in a folder, by the names of their directories."""
    try:
        state = (home / NAME).stat()
    except OSError:
        return {}
    return _unpacked(home / NAME, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _unpacked(path: Path, *_: int) -> Mapping[str, Contents]:
    """Returns the runs of a file; its time and size are part of the cache's key."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            return {run["directory"]: run for run in map(json.loads, lines)}
    except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        reason = str(error).rstrip(".")
        raise UsageError(f"{path} is damaged ({reason}): restore it from its origin.") from None
