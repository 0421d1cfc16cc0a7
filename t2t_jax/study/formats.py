"""The results of one or several studies in each format: text, Markdown, LaTeX and JSON.

Each study in each store has tables of its own: rows are compared only with rows of the same table.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.files import finite
from t2t_jax.study import tables
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import paper_value
from t2t_jax.study.declaration import PAPER
from t2t_jax.study.grid import Grid
from t2t_jax.study.latex import as_latex
from t2t_jax.study.typeset import Table, as_markdown, as_text

Part = tuple[Grid, Lines]
TYPESET: dict[str, Callable[[Table, str], str]] = {  # of a table and its label
    "text": lambda table, _: as_text(table),
    "md": lambda table, _: as_markdown(table),
    "latex": as_latex,
}
FORMATS = (*TYPESET, "json")


def render(
    parts: Sequence[Part],
    format: str,
    columns: Sequence[str] = (),
    costs: bool = True,
    p: bool = False,
    details: bool = True,
) -> str:
    """Returns the results of parts, each a grid and its lines, in one of `FORMATS`.

    Parts without runs are left out. Titles name the store if there are several. A typeset table has
    the columns of `tables.quality`. Below it are all notes, or without `details` those that are
    needed to read it, and with `costs` the table of costs.
    """
    known = [part for part in parts if any(line.runs or line.status for line in part[1])]
    parts = known or parts[:1]
    if format == "json":
        named = len(parts) > 1  # by its study and store
        sources = ({"study": x.name, "store": str(x.home)} if named else {} for x, _ in parts)
        of_parts = zip(sources, parts, strict=True)
        every = [x | record(grid, line) for x, (grid, lines) in of_parts for line in lines]
        return json.dumps(finite(every), indent=1) + "\n"
    several = len({grid.home for grid, _ in parts}) > 1
    made = list[str]()
    for grid, lines in parts:
        found = tables.quality(grid, lines, columns, p)
        found = found if details else _brief(found, format)
        store = f", {grid.home}" * several
        label = f"{grid.name}{f'-{grid.home}' * several}"
        shown = {label: found._replace(title=f"{grid.title}{store}.")}
        if costs and any(line.runs for line in lines):
            shown[f"{label}-cost"] = tables.costs(lines)
        made += (TYPESET[format](table, name) for name, table in shown.items())
    return "\n".join(made)


def _brief(table: Table, format: str) -> Table:
    """Returns a table without the notes that are details; a terminal has their number instead."""
    notes = [x for x in table.notes if not getattr(x, "detail", False)]
    more = len(table.notes) - len(notes)
    hint = f"Notes that are not shown: {more} (--notes shows them)."
    return table._replace(notes=(*notes, *[hint] * (more > 0 and format == "text")))


def row_config(c: Config) -> dict[str, Any]:
    """Returns the fields that all runs of a row share: without paths and seed."""
    flat = config.flatten(c)
    return {n: v for n, v in flat.items() if n not in (*config.PATHS, "seed")}


def record(grid: Grid, line: RowResult) -> dict[str, Any]:
    """Returns all that is known about a row."""
    metric, row = metric_of(grid.data.corpus).name, line.row
    choice, untuned = line.choice, line.untuned
    names = grid.scores
    tuning = untuned and {
        "chosen": choice.values or None,
        "at_edge": choice.at_edge,
        "trials": [{**trial.values, "PPL_choosing": trial.PPL} for trial in choice.trials],
        "untuned": _scores(untuned, names),
    }
    return {
        "row": row.name,
        "group": row.group,
        "changes": dict(row.changes),
        "config": row_config(line.c),
        "paper": {n: row.paper.get(n) for n in PAPER} | {metric: paper_value(grid, row, metric)},
        **_scores(line, names),
        **(tuning or {}),
        "status": line.status,
        "runs": [_run(grid, line, names, i) for i in range(len(line.runs))],
    }


def _scores(line: RowResult, names: Sequence[str]) -> dict[str, Any]:
    """Returns the mean of each score, and its difference from base, as it is tested."""
    measures = [(name, line.measure(name)) for name in names]
    means = {name: x and x.spread._asdict() for name, x in measures}
    differences = ((f"{n}_difference", x and x.difference) for n, x in measures)
    return means | {name: x and x._asdict() for name, x in differences}


def _run(grid: Grid, line: RowResult, names: Sequence[str], i: int) -> dict[str, Any]:
    run = line.runs[i]
    return {
        "seed": run.seed,
        "name": line.run_name(grid, run.seed),
        "directory": str(run.directory),
        "unusual": run.unusual,
        **{name: (x := line.measure(name)) and x.values[i] for name in names},
        "device": run.device,
        "programs": run.programs,
        "version": run.version,
    } | run.costs
