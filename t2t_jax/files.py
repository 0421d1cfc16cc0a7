"""Atomic writes: a file is written under another name, then renamed; it is complete or absent."""

import json
import math
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.errors import UsageError, writing


def make_directory(directory: Path) -> None:
    """Makes a directory for results unless it exists; raises a UsageError if it cannot."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}.") from None


def write(path: Path, content: str | bytes) -> None:
    """Writes a file atomically; raises a RunError if it cannot, as on a full disk."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")  # of this process alone
    with writing(path):
        try:
            partial.write_bytes(content.encode() if isinstance(content, str) else content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes indented JSON atomically."""
    write(path, json.dumps(content, indent=1) + "\n")


def finite(value: Any) -> Any:
    """Returns a value with infinities and nan replaced by None, which JSON can express."""
    if isinstance(value, Mapping):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    infinite = isinstance(value, float) and not math.isfinite(value)
    return None if infinite else value


def read_json(path: Path) -> dict[str, Any]:
    """Returns the content of a JSON file; raises a UsageError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}): restore it.") from None
