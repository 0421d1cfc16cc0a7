"""What identifies a run, its row and its program: config fields and fingerprints of its data."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config, Data
from t2t_jax.data.cache import Dataset

OpenData = Callable[[Data], Dataset]


@dataclass(frozen=True, eq=False)
class Job:
    """A run that a grid asks for: a row of a study under one seed."""

    name: str  # such as `table3-demo/base/0`
    c: Config
    directory: Path
    splits: tuple[str, ...]  # to score, the study's own first; none: only perplexity is measured


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """Returns the fingerprints of a run's corpus and vocabulary, and the vocabulary's size."""
    return {
        "data": dataset.fingerprint,
        "vocabulary": dataset.vocabulary.fingerprint,
        "subwords": dataset.vocabulary.size,
    }


def key(c: Config, data: Mapping[str, Any]) -> str:
    """Returns twelve hex digits that identify a run by its config and its `data_facts`."""
    return sha256([identity(c), dict(data)])[:12]


def identity(c: Config) -> dict[str, Any]:
    """Returns the fields of a config that differ from their defaults, without paths.

    A field that is added later, with a default that changes nothing, changes no identity.
    """
    changes = config.difference(c, Config())
    return {name: value for name, (value, _) in changes.items() if name not in config.PATHS}


def row_key(c: Config) -> str:
    """Returns a text that runs of a row share, whatever their seeds."""
    return json.dumps(identity(config.replace(c, seed=0)), sort_keys=True)


def compile_key(c: Config) -> Config:
    """Returns the config with traced fields at their defaults; equal keys share a program.

    Where a z-loss is added, its factor becomes 1: without one, the program has no trace of it.
    A run with early stopping keeps all of its fields, because it may end before the others.
    """
    if c.training.patience:
        return c
    defaults = config.flatten(Config()) | {"z_loss": float(c.training.z_loss > 0)}
    return config.replace(c, **{name: defaults[name] for name in config.TRACED})


def sha256(content: Any) -> str:
    """Returns the sha256 of a JSON value, as hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
