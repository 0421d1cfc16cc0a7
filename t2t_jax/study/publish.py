"""What is worth keeping of a grid's finished runs: all that its tables and plots are made of."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from t2t_jax import files
from t2t_jax.config import PATHS
from t2t_jax.errors import RunError, UsageError
from t2t_jax.study import tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line

KEPT = "data.json", "environment.json", "code.json", "metrics.jsonl", "result.json"


def publish(grid: Grid, found: Sequence[Line], home: Path) -> Path:
    """Copies results without checkpoints to home/STUDY-PRESET, with tables beside them.

    Of a row's runs the first is kept with its translations.

    Raises:
      UsageError: no run is finished.
      RunError: the directory cannot be written.
    """
    runs = [(run, run is line.entry.runs[0]) for line in found for run in line.entry.runs]
    if not runs:
        raise UsageError(f"{grid.home} has no finished run of {grid.study.name}: run it first.")
    folder = home / grid.name
    names = [*KEPT, f"{grid.study.split}.statistics.json"]
    translations = f"{grid.study.split}.{grid.data.target}"
    try:
        for run, first in runs:
            kept = folder / run.directory.name
            kept.mkdir(parents=True, exist_ok=True)
            for name in names + [translations] * first:
                if (run.directory / name).exists():
                    shutil.copy(run.directory / name, kept / name)
            config = json.loads((run.directory / "config.json").read_text())
            files.write_json(kept / "config.json", config | dict.fromkeys(PATHS, ""))
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}.") from None
    for kind, suffix in {"md": "md", "latex": "tex", "csv": "csv", "json": "json"}.items():
        text = tables.FORMATS[kind](grid, found)
        files.write(folder / f"table.{suffix}", text.replace(f"{grid.home}/", ""))
    return folder
