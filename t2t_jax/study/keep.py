"""What is worth keeping of a grid's finished runs: all that its table and plots are made of."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from t2t_jax.config import PATHS
from t2t_jax.errors import RunError, UsageError
from t2t_jax.study import store, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.results import Entry

KEPT = "data.json", "environment.json", "metrics.jsonl", "result.json"


def keep(grid: Grid, entries: Sequence[Entry], home: Path) -> Path:
    """Copies results without checkpoints to home/STUDY-PRESET, with tables and plots beside them.

    Raises:
      UsageError: no run is finished.
      RunError: the directory cannot be written.
    """
    runs = [run for entry in entries for run in entry.runs]
    if not runs:
        raise UsageError(f"{grid.home} has no finished run of {grid.study.name}: run it first.")
    folder = home / grid.name
    names = [*KEPT, f"{grid.study.split}.statistics.json"]
    try:
        for run in runs:
            kept = folder / run.directory.name
            kept.mkdir(parents=True, exist_ok=True)
            for name in names:
                if (run.directory / name).exists():
                    shutil.copy(run.directory / name, kept / name)
            config = json.loads((run.directory / "config.json").read_text())
            store.write_json(kept / "config.json", config | dict.fromkeys(PATHS, ""))
        for plot in grid.home.glob(f"{grid.name}*.*"):
            shutil.copy(plot, folder / plot.name)
    except OSError as error:
        raise RunError(f"cannot write to {folder}: {error.strerror}.") from None
    found = tables.lines(grid, entries)
    for kind, suffix in {"md": "md", "latex": "tex", "csv": "csv", "json": "json"}.items():
        text = tables.FORMATS[kind](grid, found)
        store.write(folder / f"table.{suffix}", text.replace(f"{grid.home}/", ""))
    return folder
