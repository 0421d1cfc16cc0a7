"""The results of a study in each format: text, Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.runs import results
from t2t_jax.study import cost, factorial, tables
from t2t_jax.study.comparison import Line, paper_score
from t2t_jax.study.grid import Grid
from t2t_jax.study.latex import as_latex
from t2t_jax.study.registry import PAPER
from t2t_jax.study.statistics import Spread
from t2t_jax.study.typeset import Table, as_markdown, as_text


def records(grid: Grid, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns all that is known about every row, as JSON."""
    return [_record(grid, line) for line in lines]


def row_config(c: Config) -> dict[str, Any]:
    """Returns the fields that all runs of a row share: without paths and seed."""
    flat = config.flatten(c)
    return {n: v for n, v in flat.items() if n not in (*config.PATHS, "seed")}


def _record(grid: Grid, line: Line) -> dict[str, Any]:
    metric, entry = metric_of(grid.data.corpus).name, line.entry
    row = entry.row
    return {
        "row": row.name,
        "group": row.group,
        "changes": dict(row.changes),
        "config": row_config(entry.c),
        "paper": {n: row.paper.get(n) for n in PAPER} | {metric: paper_score(grid, row)},
        "PPL": line.PPL and _spread(line.PPL.spread),
        metric: line.score and _spread(line.score.spread),
        "difference": None if line.difference is None else line.difference._asdict(),
        "p_bonferroni": line.p,
        "PPL_difference": line.PPL and line.PPL.difference and line.PPL.difference._asdict(),
        "PPL_p_bonferroni": line.PPL and line.PPL.p,
        **{n: x for name in grid.computed for n, x in _computed_record(line, name).items()},
        **_tuning_record(line),
        "status": entry.status,
        "runs": [_run_record(grid, line, i) for i in range(len(entry.runs))],
    }


def _computed_record(line: Line, name: str) -> dict[str, Any]:
    """Returns a metric that was computed on request."""
    measure = line.measure(name)
    return {
        name: measure and _spread(measure.spread),
        f"{name}_difference": measure and measure.difference and measure.difference._asdict(),
        f"{name}_p_bonferroni": measure and measure.p,
    }


def _tuning_record(line: Line) -> dict[str, Any]:
    """Returns the trials of a row, its chosen values and its results without tuning."""
    choice, untuned = line.entry.choice, line.untuned
    if choice is None or untuned is None:
        return {}
    return {
        "chosen": choice.chosen and choice.chosen.values,
        "at_edge": choice.at_edge,
        "trials": [{**trial.values, "PPL_choosing": _finite(trial.PPL)} for trial in choice.trials],
        "untuned": {
            "PPL": untuned.PPL and _spread(untuned.PPL.spread),
            "score": untuned.score and _spread(untuned.score.spread),
        },
    }


def _run_record(grid: Grid, line: Line, i: int) -> dict[str, Any]:
    run = line.entry.runs[i]
    return {
        "seed": run.seed,
        "name": line.entry.run_name(grid, run.seed),
        "directory": str(run.directory),
        "unusual": run.unusual,
        "PPL": line.PPL and line.PPL.values[i],
        metric_of(grid.data.corpus).name: line.score and line.score.values[i],
        **{name: (x := line.measure(name)) and x.values[i] for name in grid.computed},
        "device": run.result["environment"]["device"],
        "code": run.result["environment"]["code"],
        "version": run.version,
    } | results.costs(run.result)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _spread(value: Spread) -> dict[str, Any]:
    deviation = None if math.isnan(value.deviation) else value.deviation
    return {"mean": value.mean, "deviation": deviation, "n": value.n}


def _csv(grid: Grid, lines: Sequence[Line]) -> str:
    """Returns a line for each run, with unrounded values."""
    names = ["row", "seed", *grid.scores, *results.COSTS, "device", "code", "name", "directory"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for record in records(grid, lines):
        for run in record["runs"]:
            writer.writerow([record["row"], *(run[name] for name in names[1:])])
    return out.getvalue()


def _tables(typeset: Callable[[Table, str], str]) -> Callable[..., str]:
    """Returns a function that typesets the result table and, if there are any, effects and costs.

    Args:
      typeset: takes a table and its label.
    """

    def both(
        grid: Grid, lines: Sequence[Line], columns: Sequence[str] = (), costs: bool = True
    ) -> str:
        out = [typeset(tables.quality(grid, lines, columns), grid.name)]
        crossed = factorial.factorial(grid, lines)
        if crossed and crossed.cells.ndim > 1:
            out.append(typeset(factorial.table(crossed), f"{grid.name}-effects"))
        entries = [line.entry for line in lines]
        if costs and any(entry.runs for entry in entries):
            out.append(typeset(cost.table(entries), f"{grid.name}-cost"))
        return "\n".join(out)

    return both


TYPESET: dict[str, Callable[[Table, str], str]] = {  # of a table and its label
    "text": lambda table, _: as_text(table),
    "md": lambda table, _: as_markdown(table),
    "latex": as_latex,
}
# Each takes a grid and its lines; those of TYPESET also take columns, and whether to show costs.
FORMATS: dict[str, Callable[..., str]] = {
    **{name: _tables(typeset) for name, typeset in TYPESET.items()},
    "csv": _csv,
    "json": lambda grid, lines: json.dumps(records(grid, lines), indent=1) + "\n",
}
