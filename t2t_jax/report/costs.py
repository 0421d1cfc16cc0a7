"""A chart of quality against parameters, FLOPs and time, with a panel for each device."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from t2t_jax.plotting import CHOSEN, SHAPE, Axis, Spec, panel, tooltip
from t2t_jax.runs.results import Run
from t2t_jax.study.comparison import RowResult, main_measure, main_metric
from t2t_jax.study.grid import Grid

WIDTH, HEIGHT = 240, 200  # of a panel, in pixels; many rows need a higher one for their labels


def chart(grid: Grid, lines: Sequence[RowResult], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart with a panel for each cost that is known; small points are seeds."""
    metric = main_metric(grid)
    values = [value for line in lines for value in _values(grid, line, styles)]
    y = Axis.over("quality", metric, (v["quality"] for v in values))
    grow = {"size": {"condition": {"test": "datum.main", "value": 40}, "value": 8}}
    titles, panels = list(dict.fromkeys(v["cost"] for v in values)), list[Spec]()
    means = list({v["row"]: v for v in values if v["main"]}.values())
    size = WIDTH, max(HEIGHT, 11 * len(means))
    for title in titles:
        own = [v for v in values if v["cost"] == title]
        fields = tooltip("row", "seed", ("spent", title), ("quality", metric),
                         quality=".2f", spent=".4~s")  # fmt: skip
        x = Axis.over("spent", title, (v["spent"] for v in own), log=True)
        point = ("point", SHAPE | grow | {"tooltip": fields})
        panels.append(panel(x, y, size, [point], means * (title == titles[-1])))
        panels[-1]["data"] = {"values": own}
        y = y._replace(title=None)
    return {"transform": [CHOSEN], "hconcat": panels}


def _values(grid: Grid, line: RowResult, styles: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Returns a row's quality and each of its costs: the mean and, if there are several, seeds."""
    measure = main_measure(grid, line)
    if measure is None:
        return []
    every = [_spent(run) for run in line.runs]
    shared, out = styles[line.row.name], list[dict[str, Any]]()
    for cost in dict.fromkeys(cost for spent in every for cost in spent):
        seeds = [
            {**shared, "cost": cost, "seed": run.seed, "quality": value, "spent": spent[cost]}
            for run, value, spent in zip(line.runs, measure.values, every, strict=True)
            if cost in spent
        ]
        middle = {"quality": measure.spread.mean, "spent": median(v["spent"] for v in seeds)}
        out.append(seeds[0] | middle | {"seed": "mean", "main": True})
        out += [v | {"main": False} for v in seeds if len(seeds) > 1]
    return out


def _spent(run: Run) -> dict[str, float]:
    costs = run.costs
    spent = {"parameters (M)": costs["parameters"] / 1e6, "training FLOPs, counted": costs["flops"]}
    seconds = costs["training_seconds"]
    return spent | ({f"training time on {run.device} (min)": seconds / 60} if seconds else {})
