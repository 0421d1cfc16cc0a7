"""What scripts share that run several grids of a study by name and publish them in one folder."""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from t2t_jax.runs import published
from t2t_jax.study import collecting, comparison
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.declaration import find
from t2t_jax.study.grid import Grid
from t2t_jax.study.publish import runs_of
from t2t_jax.study.requests import Request


def parse(description: str, names: Mapping[str, bool], flag: str, title: str) -> argparse.Namespace:
    """Returns `grids` to run, `seeds` and `folder`; exits if a grid or its folder is missing.

    Args:
      names: of the grids that can be run, and whether each reads files of a folder.
      flag, title: the option that names this folder, and what it is.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("grids", nargs="*", metavar="GRID", help=f"to run: {'; '.join(names)}")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row [1]")
    parser.add_argument(flag, dest="folder", help=title)
    arguments = parser.parse_args()
    for name in arguments.grids:
        if name not in names:
            parser.error(f"there is no grid {name!r} to run: choose from {'; '.join(names)}.")
        if names[name] and not arguments.folder:
            parser.error(f"{name!r} needs {flag}, the {title}.")
    return arguments


def run(requests: Iterable[Request], folders: Iterable[Path], store: Path, seeds: int) -> None:
    """Runs grids in a store, or continues them; published runs of the folders count as theirs."""
    for folder in folders:
        if (folder / published.NAME).exists():
            published.unpack(folder, store)
    for request in requests:
        words = ["run", request.study, *request.flags, "--store", store, "--seeds", seeds]
        subprocess.run([sys.executable, "-m", "t2t_jax.cli", *map(str, words)], check=True)


def collected(request: Request, store: Path) -> tuple[Grid, Sequence[collecting.RowResult]]:
    """Returns a grid and the finished runs of its rows, whatever code made them."""
    grid = request.grid(find(request.study), store)
    return grid, collecting.collect(grid)


def compared(
    request: Request, store: Path
) -> tuple[Grid, Sequence[RowResult], dict[str, published.Contents]]:
    """Returns a grid, its rows beside base, and what is published of their runs."""
    grid, rows = collected(request, store)
    lines = comparison.compare_with_base(grid, rows)
    return grid, lines, runs_of(grid, lines, translations=False)
