"""`table`, `plot`, `report` and `publish`: the results of a study."""

import dataclasses
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_jax import files
from t2t_jax.commands.shared import available_dataset, changed_fields, grid_of, lines_of
from t2t_jax.errors import RunError, UsageError

if TYPE_CHECKING:
    from t2t_jax.data.cache import Split
    from t2t_jax.study.comparison import Line
    from t2t_jax.study.grid import Grid


def table(arguments: Namespace) -> None:
    """Prints the table of a study."""
    from t2t_jax.study.formats import FORMATS, TABLES

    grid = grid_of(arguments)
    options = {"columns": arguments.columns, "costs": not arguments.no_cost}
    if arguments.format not in TABLES:
        if arguments.columns or arguments.no_cost:
            raise UsageError(
                f"--format {arguments.format} has every field and every cost: leave out --columns "
                "and --no-cost."
            )
        options = {}
    print(FORMATS[arguments.format](grid, lines_of(grid, arguments), **options), end="")


def plot(arguments: Namespace) -> None:
    """Draws the plots of a study, and prints their paths."""
    from t2t_jax.report import plots

    grid = grid_of(arguments)
    lines = lines_of(grid, arguments)
    paths = plots.draw(grid, lines, _sentences(grid, lines, arguments.cache))
    if not paths:
        raise RunError(
            f"{grid.home} has no finished run of {grid.study.name} with these settings: run it "
            "first."
        )
    print(*paths, sep="\n")


def report(arguments: Namespace) -> None:
    """Writes the page of a study, repeatedly with --watch, and prints its path."""
    from t2t_jax.report.study import REFRESH, study_page

    grid = grid_of(arguments)
    path = arguments.out or grid.home / f"{grid.name}.html"
    rows = ["--rows", *arguments.rows] if arguments.rows else []
    words = [arguments.study, "--preset", arguments.preset, *rows, "--store", str(arguments.store)]
    words += [word for values in arguments.sweep for word in ("--sweep", values)]
    for name, value in changed_fields(arguments).items():
        words += [f"--{name}", str(value)]
    idle = 0  # successive refreshes with no running run; a single one may fall between two runs
    while True:
        lines = lines_of(grid, arguments)
        idle = 0 if any("running," in x.entry.status for x in lines) else idle + 1
        live = arguments.watch and idle < 2
        sentences = _sentences(grid, lines, arguments.cache)
        files.make_directory(path.parent)
        files.write(path, study_page(grid, lines, sentences, words, live))
        if not live:
            break
        time.sleep(REFRESH)
    print(path)


def publish(arguments: Namespace) -> None:
    """Writes the results of a study, its table and its plots to a folder, and prints its path."""
    from t2t_jax.report import plots
    from t2t_jax.study import publish

    grid = grid_of(arguments)
    lines = lines_of(grid, arguments)
    folder = publish.publish(grid, lines, arguments.to)
    sentences = _sentences(grid, lines, arguments.cache)
    with tempfile.TemporaryDirectory() as temporary:  # SVG and PDF files are not published
        elsewhere = dataclasses.replace(grid, home=Path(temporary))
        for path in plots.draw(elsewhere, lines, sentences):
            shutil.copy(path, folder / path.name)
    print(folder)


def _sentences(grid: "Grid", lines: "Sequence[Line]", cache: Path) -> "Split | None":
    """Returns the sentences that the study is scored on, or None if they are not available."""
    entries = [line.entry for line in lines if line.entry.runs]
    if not grid.study.split or not entries:
        return None
    c, directory = entries[0].c, entries[0].runs[0].directory
    dataset = available_dataset(directory, c, cache, f"the sentences of {grid.data.corpus}")
    return None if dataset is None else dataset.splits[grid.study.split]
