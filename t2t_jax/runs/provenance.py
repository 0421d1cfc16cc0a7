"""Where the results of a run come from, and whether the code of today computes the same.

The environment of a result has the commit, the device, the versions of libraries, the digest of the
source and the run's programs (`programs.py`). A run whose source is today's is current. Any other
run is compared with the programs that today's code lowers for its config. A store remembers these
in a file, as lowering takes seconds. Commands that read results, such as `table`, find them there
without JAX.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from t2t_jax.config import Config
from t2t_jax.environment import PACKAGE, environment, without_count
from t2t_jax.errors import UsageError
from t2t_jax.files import read_json, write_json
from t2t_jax.runs import identity, published, store, study_file

MEMORY = "programs.json"  # of a store: today's programs of the configs of its runs
_COMPARABLE = "device", "jax", "flax", "optax"
Programs = Mapping[str, str]


@cache
def package_source() -> str:
    """Returns twelve hex digits of the text of all modules of this package."""
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.txt")]):
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def source(c: Config) -> str:
    """Returns twelve hex digits of the source that a run executes, its study file included."""
    text = study_file.text_of(c)
    return identity.sha256([package_source(), text])[:12] if text else package_source()


def origin(c: Config, programs: Programs) -> dict[str, Any]:
    """Returns the environment of this process, with the source and the programs of a run."""
    return environment() | {"source": source(c), "programs": dict(programs)}


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the environment of a run that was begun in another one.

    A value that has changed names both: `x, then y`. If the run was begun by code that kept no
    programs, its programs stay unknown.
    """
    programs = {"programs": _both(before.get("programs", {}), now["programs"])}
    return _both(before, now) | (programs if "programs" in before else {})


def _both(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: x for name, x in now.items() if not isinstance(x, dict)}
    merged = {n: (before.get(n, x), x) for n, x in texts.items()}
    same = {n for n, (old, x) in merged.items() if str(old).split(", then ")[-1] == str(x)}
    return {n: old if n in same else f"{old}, then {x}" for n, (old, x) in merged.items()}


def made_in(directory: Path) -> Mapping[str, Any]:
    """Returns the environment in which a run was made, or begun; empty if there is no run."""
    result = store.read_result(directory)
    return result["environment"] if result else published.read(directory, "environment.json") or {}


def changes(directory: Path, c: Config, made: Mapping[str, Any]) -> list[str] | None:
    """Returns the names of a run's programs that today's code does not compute.

    It is None if this is not known: the store remembers none of today's, or `differing` is None.
    """
    if made.get("source") == source(c):
        return []
    memory = _remembered(directory.parent) or {"programs": {}}
    today = memory["programs"].get(_key(directory, c))
    return differing(made, memory["environment"] | {"programs": today}) if today else None


def differing(made: Mapping[str, Any], now: Mapping[str, Any]) -> list[str] | None:
    """Returns the names of the programs in which two environments differ.

    It is None if they cannot be compared: their versions or devices differ, or the first has no
    programs.
    """
    devices = ([without_count(str(x.get(name))) for name in _COMPARABLE] for x in (made, now))
    if "programs" not in made or next(devices) != next(devices):
        return None
    kept = made["programs"]
    return sorted(name for name, x in now["programs"].items() if kept.get(name, x) != x)


def compare(runs: Iterable[tuple[Path, Config]]) -> None:
    """Lowers today's programs of those runs whose source is not today's.

    The store of the runs remembers them. Programs are lowered in processes of their own, so that
    this one holds no device.
    """
    unknown: dict[Path, dict[str, tuple[Config, int]]] = {}
    for directory, c in runs:
        made = made_in(directory)
        if "programs" not in made or made.get("source") == source(c):
            continue
        memory, key = _remembered(directory.parent), _key(directory, c)
        if memory is None or key not in memory["programs"]:
            V = store.read_data(directory)["subwords"]
            unknown.setdefault(directory.parent, {})[key] = c, V
    for home, configs in unknown.items():
        memory = _lower(configs)
        if before := _remembered(home):
            memory["programs"] = before["programs"] | memory["programs"]
        write_json(home / MEMORY, memory)


def _lower(configs: Mapping[str, tuple[Config, int]]) -> dict[str, Any]:
    """Returns the memory of a store: programs of configs, and the environment of their process."""
    names = {file for c, _ in configs.values() if (file := study_file.file_of(c))}
    files = {file: study_file.contents(file) for file in sorted(names)}
    workers = 1 if Path("/dev/nvidia0").exists() else min(len(configs), os.cpu_count() or 1)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) as pool:
        pairs = zip(*configs.values(), strict=True)
        lowered = list(pool.map(partial(_programs, files), *pairs))
    programs = dict(zip(configs, (programs for _, programs in lowered), strict=True))
    return {"source": package_source(), "environment": lowered[0][0], "programs": programs}


def _programs(
    files: Mapping[str, tuple[str, dict[str, str]]], c: Config, V: int
) -> tuple[dict[str, Any], dict[str, str]]:
    from t2t_jax.runs.programs import programs

    for file, contents in files.items():
        study_file.load(Path(file), *contents)
    now = environment()
    return {name: now[name] for name in _COMPARABLE}, programs(c, V)


def _remembered(home: Path) -> dict[str, Any] | None:
    """Returns what a store remembers of the programs of this source and these libraries."""
    try:
        memory = read_json(home / MEMORY)
    except UsageError:  # it is absent or cut short: lowering again costs only time
        return None
    if memory["source"] != package_source():
        return None
    kept = memory["environment"]
    return memory if all(kept[name] == version(name) for name in _COMPARABLE[1:]) else None


def _key(directory: Path, c: Config) -> str:
    """Returns a text that runs share if they have the same row, vocabulary and study file."""
    V = store.read_data(directory)["subwords"]
    return identity.sha256([identity.row_key(c), V, study_file.text_of(c)])[:12]
