"""What is worth keeping of a grid's finished runs: all that its tables and plots are made of."""

from collections.abc import Sequence
from pathlib import Path

from t2t_jax import files
from t2t_jax.errors import UsageError
from t2t_jax.runs import names, published
from t2t_jax.study import tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line


def publish(grid: Grid, found: Sequence[Line], home: Path) -> Path:
    """Writes home/STUDY-PRESET: the runs without checkpoints, in one file, and their table.

    Of a row's runs the first is kept with its translations.

    Raises:
      UsageError: no run is finished, or the folder cannot be made.
      RunError: a file cannot be written.
    """
    runs = {}
    for line in found:
        for run in line.entry.runs:
            kept = [*published.KEPT, f"{grid.study.split}.statistics.json"]
            if run is line.entry.runs[0]:
                kept.append(f"{grid.study.split}.{grid.data.target}")
            name = f"{grid.run_name(line.entry.row, run.seed)}\n"
            runs[run.directory.name] = {
                names.FILE: name,
                **published.contents(run.directory, kept),
            }
    if not runs:
        raise UsageError(f"{grid.home} has no finished run of {grid.study.name}: run it first.")
    folder = home / grid.name
    files.make_directory(folder)
    published.write(folder, runs)
    files.write(folder / "table.md", tables.FORMATS["md"](grid, found))
    return folder
