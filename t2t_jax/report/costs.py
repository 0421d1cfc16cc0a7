"""A chart of quality against parameters, FLOPs and time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_jax.plotting import CHOSEN, SHAPE, Axis, Spec, panel, tooltip
from t2t_jax.runs import results
from t2t_jax.study.comparison import RowResult, main_measure, main_metric
from t2t_jax.study.grid import Grid

AXES = {
    "parameters": ("parameters (M)", 1e6),
    "flops": ("training FLOPs, counted", 1.0),
    "training_seconds": ("training time (minutes)", 60.0),
}
WIDTH, HEIGHT = 240, 200  # of a panel, in pixels; many rows need a higher one for their labels


def chart(grid: Grid, lines: Sequence[RowResult], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart with a panel for each of `AXES`; small points are seeds."""
    values = [value for line in lines for value in _values(grid, line, styles)]
    means = [x for x in values if x["main"]]
    size = {"size": {"condition": {"test": "datum.main", "value": 40}, "value": 8}}
    panels: list[Spec] = []
    for key, (title, _) in AXES.items():
        metric = None if panels else main_metric(grid)
        x = Axis.over(key, title, (v[key] for v in values), log=True)
        y = Axis.over("quality", metric, (v["quality"] for v in values))
        fields = tooltip("row", "seed", (key, title), ("quality", main_metric(grid)),
                         quality=".2f", **{key: ".4~s"})  # fmt: skip
        points = ("point", SHAPE | size | {"tooltip": fields})
        height = max(HEIGHT, 11 * len(means))
        labelled = means if key == list(AXES)[-1] else ()
        panels.append(panel(x, y, (WIDTH, height), [points], labelled))
    return {"data": {"values": values}, "transform": [CHOSEN], "hconcat": panels}


def _values(grid: Grid, line: RowResult, styles: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Returns the costs and quality of a row and, if there are several, of its seeds."""
    measure, runs = main_measure(grid, line), line.runs
    if measure is None:
        return []
    every = [results.costs(run.result) for run in runs]
    spent = {key: [x[key] / unit for x in every] for key, (_, unit) in AXES.items()}
    means = {key: float(np.mean(x)) for key, x in spent.items()}
    style = styles[line.row.name]
    out = [{**style, "seed": "mean", "main": True, "quality": measure.spread.mean} | means]
    if len(runs) > 1:
        for i, (run, value) in enumerate(zip(runs, measure.values, strict=True)):
            own = {key: x[i] for key, x in spent.items()}
            out.append({**style, "seed": run.seed, "main": False, "quality": value} | own)
    return out
