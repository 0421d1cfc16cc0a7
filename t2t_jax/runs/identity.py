"""The identity of a run: the fields of its config that differ from their defaults, and its data."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.config import Config

if TYPE_CHECKING:
    from t2t_jax.data.cache import Dataset


def data_facts(dataset: "Dataset") -> dict[str, Any]:
    """Returns the fingerprints of a run's corpus and vocabulary, and the vocabulary's size."""
    return {
        "data": dataset.fingerprint,
        "vocabulary": dataset.vocabulary.fingerprint,
        "subwords": dataset.vocabulary.size,
    }


def key(c: Config, data: Mapping[str, Any]) -> str:
    """Returns twelve hex digits that identify a run by its config and data.

    Args:
      data: `data_facts` of its dataset.
    """
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


def sha256(content: Any) -> str:
    """Returns the sha256 of a JSON value, as hex digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
