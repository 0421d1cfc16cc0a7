"""What identifies a run: the fields of its config that differ from their defaults, and its data."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset


def about(dataset: Dataset) -> dict[str, Any]:
    """Which corpus and which subwords a run sees."""
    return {
        "data": dataset.fingerprint,
        "vocabulary": dataset.vocabulary.fingerprint,
        "subwords": dataset.vocabulary.size,
    }


def key(c: Config, data: Mapping[str, Any]) -> str:
    """Twelve hex digits of the sha256 of what determines a result, but for code and device.

    Args:
      data: `about` the data.
    """
    return sha256([identity(c), dict(data)])[:12]


def identity(c: Config) -> dict[str, Any]:
    """The fields of a config that differ from their defaults, but for where files lie.

    A field that is added later, with a default that changes nothing, changes no identity.
    """
    changes = config.difference(c, Config())
    return {name: value for name, (value, _) in changes.items() if name not in config.PATHS}


def sha256(content: Any) -> str:
    """The checksum of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
