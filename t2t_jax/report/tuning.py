"""The trials of a sweep: a table and a chart of their perplexity, and of the expected best."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.plotting import CHOSEN, LABEL, LINES, SHAPE, Axis, Spec, facets, panel, tooltip
from t2t_jax.study import typeset
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.grid import Grid
from t2t_jax.study.notes import EDGE
from t2t_jax.study.typeset import Cell, Table

_MEASURED = "perplexity on the sentences of dev by which a trial is chosen"
CAPTION = (
    "All trials at each value (large points are chosen), and the expected best of several: the "
    f"{_MEASURED}."
)
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


def expected(line: RowResult) -> np.ndarray:
    """Returns the expected best perplexity of a row after each number of trials, [trials].

    The trials are drawn with replacement (Dodge et al. 2019, "Show Your Work"). Unfinished ones do
    not count. A failed trial counts as the worst one that did not fail, as the expectation would
    otherwise be infinite.
    """
    PPL = np.array([x.PPL for x in line.choice.finished], dtype=float)
    N, finite = len(PPL), PPL[np.isfinite(PPL)]
    if not len(finite):
        return finite
    n = np.arange(1, N + 1)[:, None]
    at_least = ((N - np.arange(N + 1)) / N) ** n  # P(best of n >= the i-th smallest), [n, i]
    return (at_least[:, :-1] - at_least[:, 1:]) @ np.sort(np.minimum(PPL, finite.max()))


def chart(grid: Grid, lines: Sequence[RowResult], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of the trials at every value, and of the expected best of them.

    Every row of panels has base and a group of the table, or several groups of a single row.
    """
    best, tried, rows = [], [], []
    for line in lines:
        style, chosen = styles[line.row.name], line.choice.chosen
        of_number = enumerate(expected(line).tolist(), 1)
        best += [style | {"trials": n, "expected": value} for n, value in of_number]
        for x in line.choice.finished:
            if x.PPL and math.isfinite(x.PPL):
                own = {"PPL": x.PPL, "setting": x.setting, "chosen": x is chosen}
                tried.append({**style, **own, **x.values})
    for names in facets([(line.row.name, line.row.group) for line in lines]):
        of_tried, of_best = ([v for v in x if v["row"] in names] for x in (tried, best))
        size = SIZE[0], max(SIZE[1], LABEL * len(names))
        panels = [_against(name, of_tried, size) for name in grid.sweep]
        rows.append({"hconcat": [*panels, _expected(of_best, size)]})
    return {"transform": [CHOSEN], "vconcat": rows}


def _expected(best: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> Spec:
    most = max((v["trials"] for v in best), default=1)
    ticks = {"values": list(range(1, most + 1))}
    x = Axis("trials", "trials, drawn at random", 0.8, most + 0.2, properties=ticks)
    y = Axis.over("expected", "expected best perplexity", (v["expected"] for v in best), log=True)
    last = {v["row"]: v for v in best}  # of the most trials
    return panel(x, y, size, LINES, last.values()) | {"data": {"values": best}}


def _against(name: str, tried: Sequence[Mapping[str, Any]], size: tuple[int, int]) -> Spec:
    """Returns a panel of all trials against a swept field; a line follows the best ones."""
    values = list(dict.fromkeys(v[name] for v in tried))
    y = Axis.over("PPL", "perplexity", (v["PPL"] for v in tried), log=True)
    best = {"y": y.channel() | {"aggregate": "min"}}
    chosen: Spec = {"size": {"condition": {"test": "datum.chosen", "value": 90}, "value": 20},
              "tooltip": tooltip("row", "setting", "PPL", PPL=".3f")}  # fmt: skip
    layers = [("line", LINES[0][1] | best), ("point", SHAPE | chosen)]
    if values and config.field_type(name) in (int, float):
        x = Axis.over(name, name, values, log=min(values) > 0, values=sorted(values))
    else:
        x = Axis.of_levels("level", name, values)
    level = {"calculate": f"indexof({json.dumps(values)}, datum['{name}'])", "as": "level"}
    return panel(x, y, size, layers) | {"data": {"values": tried}, "transform": [level]}
