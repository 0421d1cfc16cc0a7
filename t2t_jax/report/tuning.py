"""The trials of a sweep: the perplexity of every row at every value, and the chosen ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_jax import config
from t2t_jax.report.vega import CHOSEN, Spec, linear, logarithmic, styles
from t2t_jax.study.comparison import Line
from t2t_jax.study.grid import Grid
from t2t_jax.study.notes import EDGE
from t2t_jax.study.sweep import Trial
from t2t_jax.study.typeset import Cell, Table

_MEASURED = "perplexity on the sentences of dev by which a trial is chosen"


def table(grid: Grid, lines: Sequence[Line]) -> Table:
    """Returns the perplexity of every trial; the chosen ones count as the best of their rows."""
    fields = ", ".join(grid.sweep)
    values = [{name: trial.changes[name] for name in grid.sweep} for trial in grid.trials]
    header = [("", ""), *((fields, ", ".join(map(str, x.values()))) for x in values)]
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for line in lines:
        row, choice = line.entry.row, line.entry.choice
        cells = [Cell(row.name)]
        for trial in choice.trials if choice else ():
            edge = EDGE * bool(trial is choice.chosen and choice.at_edge) if choice else ""
            cells.append(Cell(_text(trial) + edge))
            cells[-1].best = choice is not None and trial is choice.chosen
        groups.setdefault(row.group, []).append(tuple(cells))
    note = (
        f"The {_MEASURED}, with seed 0. The chosen trial of a row is in bold; {EDGE}: a chosen "
        "value is at the edge of its range."
    )
    return Table("Trials.", tuple(header), tuple(map(tuple, groups.values())), (note,))


def _text(trial: Trial) -> str:
    if trial.PPL is None:
        return "unfinished"
    return f"{trial.PPL:.3f}" if math.isfinite(trial.PPL) else "diverged"


def charts(grid: Grid, lines: Sequence[Line]) -> list[tuple[str, str, Spec]]:
    """Returns a chart of the trials against each swept field: its name, caption and content."""
    names = [line.entry.row.name for line in lines]
    values = [
        {"row": line.entry.row.name, "PPL": trial.PPL, "chosen": trial is line.entry.choice.chosen,
         "values": ", ".join(f"{n} {x}" for n, x in trial.values.items()), **trial.values}
        for line in lines
        if line.entry.choice
        for trial in line.entry.choice.finished
        if trial.PPL is not None and math.isfinite(trial.PPL)
    ]  # fmt: skip
    line = "; the line follows the best trial at each value" * (len(grid.sweep) > 1)
    return [
        (
            f"trials-{name}",
            f"{_MEASURED}, against {name}{line}. The chosen trials are large.",
            _chart(names, values, name),
        )
        for name in grid.sweep
        if values
    ]


def _chart(names: Sequence[str], values: Sequence[Mapping[str, Any]], name: str) -> Spec:
    style = styles(names)
    numeric = config.field_type(name) in (int, float)
    positive = numeric and min(v[name] for v in values) > 0
    kind = "quantitative" if numeric else "nominal"
    x = logarithmic(name, name) if positive else {"field": name, "type": kind, "sort": None}
    y = linear("PPL", "perplexity")
    return {
        "data": {"values": list(values)},
        "transform": [CHOSEN],
        "encoding": {"x": x, "color": style["color"]},
        "layer": [
            {
                "mark": "line",
                "encoding": {"y": y | {"aggregate": "min"}, "strokeDash": style["strokeDash"]},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "y": y,
                    "shape": style["shape"],
                    "size": {"condition": {"test": "datum.chosen", "value": 130}, "value": 30},
                    "tooltip": [{"field": field} for field in ("row", "values", "PPL")],
                },
            },
        ],
    }
