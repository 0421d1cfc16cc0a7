"""Benchmarks of speed and memory on this device; results are stored as JSON and text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax import files


def keep(path: Path, results: Mapping[str, Any], table: str) -> None:
    """Writes results as JSON and their table, to `path`, as text; prints the table."""
    files.make_directory(path.parent)
    files.write_json(path.with_suffix(".json"), results)
    files.write(path, table)
    print(table, end="")
