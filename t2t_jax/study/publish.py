"""Publication of a grid: one file of the finished runs from which its tables and plots are made."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from t2t_jax import files
from t2t_jax.config import PATHS
from t2t_jax.errors import UsageError
from t2t_jax.runs import names, published, store
from t2t_jax.study import requests
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.formats import render
from t2t_jax.study.grid import Grid


def publish(grid: Grid, lines: Sequence[RowResult], home: Path) -> Path:
    """Writes the runs, their settings and their table to home/STUDY-PRESET; returns that folder.

    Checkpoints, parameters and paths are left out. Each row's first run keeps its translations.
    """
    runs = runs_of(grid, lines)
    if not runs:
        raise UsageError(requests.no_run(grid))
    folder = home / grid.name
    files.make_directory(folder)
    published.write(folder, runs)
    for path in (folder / requests.FOLDER).glob("*.json"):
        path.unlink()
    changes = {name: value for name, value in grid.changes.items() if name not in PATHS}
    requests.remember(folder, dataclasses.replace(grid, changes=changes))
    files.write(folder / "table.md", render([(grid, lines)], "md"))
    return folder


def runs_of(
    grid: Grid, lines: Sequence[RowResult], translations: bool = True
) -> dict[str, published.Contents]:
    """Returns the finished runs of a grid, and the trials of a sweep, by their directories' names.

    Args:
      translations: whether the first run of each row keeps its translations.
    """
    trial = *published.KEPT, f"{store.LIKELIHOOD}.statistics.json", published.FAILURE, names.FILE
    runs: dict[str, published.Contents] = {}
    for line in [*(x.untuned for x in lines if x.untuned), *lines]:
        for run in line.runs:
            splits = grid.splits(line.c)
            named = store.LIKELIHOOD, store.CONTRASTIVE, *splits
            kept = [*published.KEPT, *(f"{x}.statistics.json" for x in named)]
            if translations and run is line.runs[0]:
                kept += (f"{split}.{grid.data.target}" for split in splits)
            known = runs.get(run.directory.name, {}).get(names.FILE, "")  # of the row untuned
            name = f"{line.run_name(grid, run.seed)}\n"
            contents = published.contents(run.directory, kept)
            runs[run.directory.name] = {names.FILE: known + name, **contents}
        for directory in line.choice.directories:
            if directory.name not in runs:
                runs[directory.name] = published.contents(directory, trial)
    return runs
