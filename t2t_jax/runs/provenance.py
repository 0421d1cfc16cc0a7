"""Where the results of a run come from: the code and the environment that produced them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.config import Config
from t2t_jax.environment import environment
from t2t_jax.files import read_json, write
from t2t_jax.runs import published, store
from t2t_jax.runs.code import changed, code_of, digest, used


def read_code(directory: Path, environment: Mapping[str, Any]) -> dict[str, str]:
    """Returns the code that an environment of a run names: its definitions and their hashes.

    If that code was not recorded, the name of the code stands in for every hash.
    """
    recorded = published.read(directory, "code.json") or {}
    name = environment["code"]
    return recorded.get(name) or dict.fromkeys(code_of(store.read_config(directory)), name)


def record_code(directory: Path, code: dict[str, str]) -> str:
    """Adds code to code.json, which has all code that worked on a run; returns its digest."""
    path, name = directory / "code.json", digest(code)
    recorded = read_json(path) if path.exists() else {}
    if name not in recorded:
        write(path, json.dumps(recorded | {name: code}) + "\n")
    return name


def current_environment(directory: Path, c: Config, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns this process's environment with the run's code; a changed value names old and new.

    Args:
      before: the environment in which the run was begun, or trained.
    """
    code, begun = code_of(c), read_code(directory, before)
    both = {
        name: begun[name] if begun[name] == code.get(name) else f"{begun[name]}+{code.get(name)}"
        for name in begun
    }
    now = environment() | {"code": record_code(directory, code | both)}
    now |= {n: x for n, x in before.items() if n == "continued"}
    known = dict(before) | {"code": now["code"]}
    return {n: x if known.get(n, x) == x else f"{known[n]}, then {x}" for n, x in now.items()}


def outdated_definitions(directory: Path, c: Config) -> Sequence[str]:
    """Returns the definitions that have changed since a run was made or begun.

    A directory without a run has none.
    """
    if published.read(directory, "environment.json") is None:
        return []
    result = store.read_result(directory)
    made_in = result["environment"] if result else store.read_environment(directory)
    return changed_since(directory, c, made_in)


def changed_since(directory: Path, c: Config, environment: Mapping[str, Any]) -> Sequence[str]:
    """Returns the definitions that have changed since a run was made in an environment."""
    codes = read_code(directory, environment), code_of(c)
    return changed(*(used(code, c, environment["device"]) for code in codes))
