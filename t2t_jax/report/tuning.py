"""The trials of a sweep: a table and a chart of their perplexity."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_jax import config
from t2t_jax.plotting import CHOSEN, LABEL, LINES, SHAPE, Axis, Spec, facets, panel, tooltip
from t2t_jax.study import typeset
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.grid import Grid
from t2t_jax.study.notes import EDGE
from t2t_jax.study.typeset import Cell, Table

_MEASURED = "perplexity on the sentences of dev by which a trial is chosen"
CAPTION = f"All trials at each value (large points are chosen): the {_MEASURED}."
SIZE = 280, 120  # of a panel, in pixels


def table(grid: Grid, lines: Sequence[RowResult]) -> Table:
    """Returns the perplexity of every trial; the chosen ones count as the best of their rows."""
    fields = ", ".join(grid.sweep)
    values = [{name: trial.changes[name] for name in grid.sweep} for trial in grid.trials]
    header = [("", ""), *((fields, ", ".join(map(str, x.values()))) for x in values)]
    groups: dict[str, list[list[str]]] = {}
    for line in lines:
        cells, choice = [line.row.name], line.choice
        for trial in choice.trials:
            chosen = trial is choice.chosen
            failed = "unfinished" if trial.PPL is None else "diverged"
            text = f"{trial.PPL:.3f}" if trial.PPL and math.isfinite(trial.PPL) else failed
            cells.append(Cell(text + EDGE * bool(chosen and choice.at_edge), chosen))
        groups.setdefault(line.row.group, []).append(cells)
    note = (
        f"The {_MEASURED}. The chosen trial of a row is in bold; {EDGE}: a chosen "
        "value is at the edge of its range."
    )
    return typeset.table("Trials.", header, groups.values(), (note,))


def chart(grid: Grid, lines: Sequence[RowResult], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of the trials at every value.

    Every row of panels has base and a group of the table, or several groups of a single row.
    """
    tried, rows = [], []
    for line in lines:
        style, chosen = styles[line.row.name], line.choice.chosen
        for x in line.choice.finished:
            if x.PPL and math.isfinite(x.PPL):
                own = {"PPL": x.PPL, "setting": x.setting, "chosen": x is chosen}
                tried.append({**style, **own, **x.values})
    for names in facets([(line.row.name, line.row.group) for line in lines]):
        group = [v for v in tried if v["row"] in names]
        size = SIZE[0], max(SIZE[1], LABEL * len(names))
        *others, last = grid.sweep
        panels = [_against(name, group, size) for name in others]
        rows.append({"hconcat": [*panels, _against(last, group, size, labelled=True)]})
    return {"transform": [CHOSEN], "vconcat": rows}


def _against(
    name: str, tried: Sequence[Mapping[str, Any]], size: tuple[int, int], labelled: bool = False
) -> Spec:
    """Returns a panel of all trials against a swept field; a line follows the best ones."""
    values, numeric = list(dict.fromkeys(v[name] for v in tried)), False
    if values and config.field_type(name) in (int, float):
        values, numeric = sorted(values), True
    y = Axis.over("PPL", "perplexity", (v["PPL"] for v in tried), log=True)
    best = {"y": y.channel() | {"aggregate": "min"}}
    chosen: Spec = {"size": {"condition": {"test": "datum.chosen", "value": 90}, "value": 20},
              "tooltip": tooltip("row", "setting", "PPL", PPL=".3f")}  # fmt: skip
    layers = [("line", LINES[0][1] | best), ("point", SHAPE | chosen)]
    x = Axis.of_levels("level", name, values)
    if numeric:
        x = Axis.over(name, name, values, log=min(values) > 0, values=values)
    level = {"calculate": f"indexof({json.dumps(values)}, datum['{name}'])", "as": "level"}
    along = sorted(tried, key=lambda v: (values.index(v[name]), -v["PPL"]))
    ends = {v["row"]: v for v in along if labelled}  # the best at each row's last value
    drawn = panel(x, y, size, layers, ends.values())
    return drawn | {"data": {"values": tried}, "transform": [level]}
