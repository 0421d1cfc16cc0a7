"""`table`, `results`, `plot`, `report` and `publish`: the results of studies."""

import dataclasses
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path

from t2t_jax import files
from t2t_jax.commands.shared import default_store, grid_shown, lines_of, sentences_of
from t2t_jax.errors import RunError, UsageError
from t2t_jax.report import charts
from t2t_jax.report.study import study_page
from t2t_jax.runs import provenance, study_file
from t2t_jax.runs.results import stored
from t2t_jax.study import declaration, requests, tidy
from t2t_jax.study import publish as publishing
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.formats import TYPESET, render
from t2t_jax.study.grid import Grid
from t2t_jax.terminal import say


def table(arguments: Namespace) -> None:
    """Prints the tables of one or several studies, from one or several stores."""
    columns, costs, p = arguments.columns, not arguments.no_cost, arguments.p
    if arguments.format not in TYPESET and (columns or not costs or p or arguments.notes):
        raise UsageError(
            f"--format {arguments.format} has every field, test, cost and note: leave out "
            "--columns, --p, --no-cost and --notes."
        )
    grids = []
    for names in (arguments.studies, arguments.stores):
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"{repeated[0]} is named twice: name it once.")
    for study in arguments.studies:
        for store in arguments.stores or [None]:
            named = Namespace(**vars(arguments) | {"study": study, "store": store})
            grids.append(grid_shown(named))
    parts = [(grid, _lines(grid, arguments, needed=False)) for grid in grids]
    if not any(line.runs or line.status for _, lines in parts for line in lines):
        raise UsageError(requests.no_run(grids[0]))
    for grid, lines in parts:
        if not any(line.runs or line.status for line in lines):
            say(f"left out: {requests.no_run(grid)}")
    print(render(parts, arguments.format, columns, costs, p, arguments.notes), end="")


def results(arguments: Namespace) -> None:
    """Writes the runs of stores and their curves to two files, and prints their paths."""
    out = arguments.out
    files_of = {declaration.find(x).name: x for x in arguments.studies if declaration.path_of(x)}
    studies = [*files_of, *(x for x in arguments.studies if not declaration.path_of(x))]
    beside = list(dict.fromkeys(map(default_store, arguments.studies)))
    homes, parts = arguments.stores or beside or [Path("runs")], []
    for home in filter(Path.is_dir, homes):
        places = {n: f"{path}:{n}" for n, (_, path) in declaration.declared(home.parent).items()}
        places |= files_of
        for request in requests.known(home):
            if studies and not {request.study, f"{request.study}-{request.preset}"} & {*studies}:
                continue
            try:
                study = declaration.find(places.get(request.study, request.study))
                grid = request.declared_alone(say).grid(study, home)
                parts.append((grid, lines_of(grid, arguments.cache)))
            except UsageError as error:
                say(f"{home}: what `table` shows of {request.study} is not known: {error}")
    tables = tidy.tables(homes, studies, say, tidy.shown(parts))
    files.make_directory(out)
    for name, rows in zip(("runs", "curves"), tables, strict=True):
        tidy.write(path := out / f"{name}.csv", rows)
        print(path)


def plot(arguments: Namespace) -> None:
    """Draws the plots of a study, and prints their paths."""
    grid = grid_shown(arguments)
    lines = _lines(grid, arguments)
    paths = charts.draw(grid, lines, sentences_of(grid, lines, arguments.cache))
    if not paths:
        raise RunError(f"{grid.home} has no finished run of {grid.study.name} to draw.")
    print(*paths, sep="\n")


def report(arguments: Namespace) -> None:
    """Writes the page of a study, and prints its path."""
    grid = grid_shown(arguments)
    path = arguments.out or grid.home / f"{grid.name}.html"
    words = [arguments.study, *requests.request_of(grid).flags, "--store", str(arguments.store)]
    words += ["--metrics", arguments.metrics] if arguments.metrics else []
    lines = _lines(grid, arguments)
    sentences = sentences_of(grid, lines, arguments.cache)
    files.make_directory(path.parent)
    files.write(path, study_page(grid, lines, sentences, words))
    print(path)


def publish(arguments: Namespace) -> None:
    """Writes the results of a study, its table and its plots to a folder, and prints its path.

    The file of a study outside of this project is written there, too.
    """
    grid = grid_shown(arguments)
    lines = _lines(grid, arguments)
    card = Path(arguments.study).name if arguments.card else ""
    folder = publishing.publish(grid, lines, arguments.to, card)
    if path := declaration.path_of(arguments.study):
        study_file.copy_to(folder, path)
    sentences = sentences_of(grid, lines, arguments.cache)
    with tempfile.TemporaryDirectory() as temporary:  # SVG and PDF files are not published
        elsewhere = dataclasses.replace(grid, home=Path(temporary))
        for path in charts.draw(elsewhere, lines, sentences):
            shutil.copy(path, folder / path.name)
    print(folder)


def _lines(grid: Grid, arguments: Namespace, needed: bool = True) -> list[RowResult]:
    """Returns the lines of a grid; refuses one without any run, unless none is needed."""
    if arguments.compare:
        provenance.compare(stored(grid.home, say))
    judge = bool(getattr(arguments, "metrics", ""))  # what takes minutes must be asked for
    lines = lines_of(grid, arguments.cache, judge)
    if needed and not any(line.runs or line.status for line in lines):
        raise UsageError(requests.no_run(grid))
    return lines
