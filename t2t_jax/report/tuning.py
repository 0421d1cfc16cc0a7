"""The trials of a sweep: a table and a chart of their perplexity, and of the expected best."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.plotting import (
    CHOSEN,
    COLOUR,
    DASH,
    SHAPE,
    Scale,
    Spec,
    facets,
    labels,
    shown,
    tooltip,
)
from t2t_jax.study.comparison import Line
from t2t_jax.study.grid import Grid
from t2t_jax.study.notes import EDGE
from t2t_jax.study.statistics import expected_least
from t2t_jax.study.sweep import Trial
from t2t_jax.study.typeset import Cell, Table

_MEASURED = "perplexity on the sentences of dev by which a trial is chosen"
CAPTION = (
    "All trials at each value (large points are chosen), and the expected best of several: the "
    f"{_MEASURED}."
)
WIDTH, HEIGHT = 280, 120  # of a panel, in pixels


def table(grid: Grid, lines: Sequence[Line]) -> Table:
    """Returns the perplexity of every trial; the chosen ones count as the best of their rows."""
    fields = ", ".join(grid.sweep)
    values = [{name: trial.changes[name] for name in grid.sweep} for trial in grid.trials]
    header = [("", ""), *((fields, ", ".join(map(str, x.values()))) for x in values)]
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for line in lines:
        row, choice = line.row, line.choice
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


def expected(line: Line) -> np.ndarray:
    """Returns the expected best perplexity of a row after each number of trials, [trials].

    Unfinished trials do not count. A failed trial counts as the worst one that did not fail, as the
    expectation would otherwise be infinite.
    """
    choice = line.choice
    PPL = np.array([x.PPL for x in choice.finished] if choice else [], dtype=float)
    finite = PPL[np.isfinite(PPL)]
    return expected_least(np.minimum(PPL, finite.max())) if len(finite) else finite


def chart(grid: Grid, lines: Sequence[Line], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of the expected best of the trials, and of the trials at every value.

    Every row of panels has base and a group of the table, or several groups of a single row.
    """
    names = [line.row.name for line in lines]
    best = [
        {**styles[line.row.name], "trials": n, "expected": value}
        for line in lines
        for n, value in enumerate(expected(line).tolist(), 1)
    ]
    tried = [
        {**styles[line.row.name], "PPL": trial.PPL, "setting": trial.setting,
         "chosen": trial is line.choice.chosen, **trial.values}
        for line in lines
        if line.choice
        for trial in line.choice.finished
        if trial.PPL is not None and math.isfinite(trial.PPL)
    ]  # fmt: skip
    rows = []
    for panel in facets([line.row.group for line in lines]):
        members = [names[i] for i in panel]
        against = [_against(name, tried, members) for name in grid.sweep]
        rows.append({"hconcat": [*against, _expected(best, members, styles)]})
    return {
        "transform": [CHOSEN],
        "datasets": {"best": best, "tried": tried},
        "vconcat": rows,
    }


def _expected(
    best: Sequence[Mapping[str, Any]], names: Sequence[str], styles: Mapping[str, Spec]
) -> Spec:
    most = max((v["trials"] for v in best), default=1)
    x, y = Scale(0.8, most + 0.2), Scale.over((v["expected"] for v in best), log=True)
    height = max(HEIGHT, 11 * len(names))
    last = {v["row"]: v for v in best}  # of the most trials
    points = [
        (float(x.pixels(last[name]["trials"], WIDTH)),
         float(height - y.pixels(last[name]["expected"], height)), styles[name])
        for name in names
        if name in last
    ]  # fmt: skip
    encoding = {
        "x": x.channel("trials", "trials, drawn at random", tickMinStep=1),
        "y": y.channel("expected", "expected best perplexity"),
        "tooltip": tooltip("row", "trials", "expected", expected=".3f"),
    } | COLOUR
    return {
        "data": {"name": "best"},
        "transform": shown(names),
        "width": WIDTH,
        "height": height,
        "layer": [
            {"mark": "line", "encoding": encoding | DASH},
            {"mark": "point", "encoding": encoding | SHAPE},
            *labels(points, WIDTH, height),
        ],
    }


def _against(name: str, tried: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Spec:
    """Returns a panel of all trials against a swept field; a line follows the best ones."""
    values = [v[name] for v in tried]
    x: Spec = {"field": name, "type": "ordinal", "sort": None, "title": name}
    if values and config.field_type(name) in (int, float):
        x = Scale.over(values, log=min(values) > 0).channel(name, name, values=sorted({*values}))
    y = Scale.over((v["PPL"] for v in tried), log=True)
    best = y.channel("PPL", "perplexity") | {"aggregate": "min"}
    chosen = {"size": {"condition": {"test": "datum.chosen", "value": 90}, "value": 20}}
    shape = SHAPE | chosen | {"tooltip": tooltip("row", "setting", "PPL", PPL=".3f")}
    return {
        "data": {"name": "tried"},
        "transform": shown(names),
        "width": WIDTH,
        "height": max(HEIGHT, 11 * len(names)),
        "encoding": {"x": x} | COLOUR,
        "layer": [
            {"mark": "line", "encoding": {"y": best} | DASH},
            {"mark": "point", "encoding": {"y": y.channel("PPL", "perplexity")} | shape},
        ],
    }
