"""Benchmarks of speed and memory on this device; results are stored as JSON and text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import files


def keep(path: Path, results: Mapping[str, Any], table: str) -> None:
    """Writes results as JSON and their table, to `path`, as text; prints the table."""
    files.make_directory(path.parent)
    files.write_json(path.with_suffix(".json"), results)
    files.write(path, table)
    print(table, end="")


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of cells as lines; all columns but the first are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [x.rjust(width) for x, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
