"""The charts of a study's page, with tooltips for every point."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_jax.report import differences, factors, learning, plots, tuning
from t2t_jax.report.vega import CHOSEN, Chart, Spec, chart, linear, logarithmic, styles
from t2t_jax.runs import results, store
from t2t_jax.runs.results import Run
from t2t_jax.study import factorial
from t2t_jax.study.comparison import Line, main_measure, main_metric
from t2t_jax.study.distances import Curves
from t2t_jax.study.grid import Grid

_POINTS = 80  # points of a curve; more would not be visible


def charts(
    grid: Grid, lines: Sequence[Line], curves: Sequence[Curves], pairs: Sequence[Curves]
) -> list[Chart]:
    """Returns every chart for which there are results.

    Args:
      curves: the grid's metric against distances and lengths.
      pairs: contrastive accuracy against distance.
    """
    metric = main_metric(grid)
    names = [line.entry.row.name for line in lines]
    shown = [line for line in lines if line.entry.runs]
    if not shown:
        return []
    caption = "Perplexity in training (lines) and on dev (markers)."
    out = [chart("learning", caption + _faint(shown), names, _learning(names, shown))]
    for key, (label, unit) in plots.COST_AXES.items():
        spec = _cost(names, _costs(grid, shown, key, unit), label, metric)
        seeds = " Small points are seeds." * _several(shown)
        out.append(chart(f"cost-{key}", f"{metric} against {label}.{seeds}", names, spec))
    for i, group in enumerate(curves):
        caption = f"{metric} by {group.what}."
        out.append(chart(f"distance-{i}", caption, names, _distance(names, group, metric)))
    for i, group in enumerate(pairs):
        caption = f"Contrastive accuracy by {group.what}."
        out.append(chart(f"contrastive-{i}", caption, names, _distance(names, group, "accuracy")))
    others = differences.charts(grid, lines) + tuning.charts(grid, lines)
    if crossed := factorial.factorial(grid, lines):
        others += factors.specs(crossed)
    return out + [chart(name, caption, names, spec) for name, caption, spec in others]


def _several(lines: Sequence[Line]) -> bool:
    return any(len(line.entry.runs) > 1 for line in lines)


def _faint(lines: Sequence[Line]) -> str:
    return " The first seed of each row is darker than its other seeds." * _several(lines)


def _learning(names: Sequence[str], lines: Sequence[Line]) -> Spec:
    """Returns a chart whose horizontal axis the reader chooses: steps, tokens, FLOPs or seconds."""
    values = []
    for line in lines:
        for i, run in enumerate(line.entry.runs):
            for split, points in zip(("training", "dev"), plots.curve(line, i), strict=True):
                thin = _thinned(points)
                steps, perplexities = [s for s, _ in thin], [round(ppl, 3) for _, ppl in thin]
                name = line.entry.row.name
                values.append({"row": name, "seed": run.seed, "first": i == 0, "split": split,
                               "step": steps, "PPL": perplexities} | _per_step(run))  # fmt: skip
    style = styles(names)
    axes = list(learning.AXES)
    menu = {"input": "select", "name": "against ", "options": axes}
    title = {"signal": json.dumps(learning.AXES) + "[axis]"}
    tooltip = ["row", "seed", "split", "step", "PPL"]
    consumed = {"field": "x", "title": "consumed", "format": ".4~g"}
    return {
        "data": {"values": values},
        "params": [{"name": "axis", "value": axes[0], "bind": menu}],
        "transform": [
            CHOSEN,
            {"flatten": ["step", "PPL"]},
            {"calculate": "datum.step * datum[axis]", "as": "x"},
            {"filter": "datum.x > 0"},
        ],
        "encoding": {
            "x": logarithmic("x", "") | {"title": title},
            "y": logarithmic("PPL", "perplexity"),
            "color": style["color"],
            "detail": {"field": "seed"},
            "opacity": {"condition": {"test": "datum.first", "value": 1}, "value": 0.35},
            "tooltip": [*({"field": field} for field in tooltip), consumed],
        },
        "layer": [
            {
                "transform": [{"filter": "datum.split === 'training'"}],
                "mark": {"type": "line"},
                "encoding": {"strokeDash": style["strokeDash"]},
            },
            {
                "transform": [{"filter": "datum.split === 'dev'"}],
                "mark": {"type": "point", "filled": True, "size": 30},
                "encoding": {"shape": style["shape"]},
            },
        ],
    }


def _per_step(run: Run) -> dict[str, float]:
    """Returns what a run consumed per step on average, by the names in `learning.AXES`.

    For a run that was too short to be timed, only the steps are known.
    """
    last, records = run.result["steps"], store.read_curves(run.directory)
    if not any("tokens_per_second" in record for record in records):
        return {"steps": 1}
    amounts = learning.amounts(run, records, np.array([last]))
    return {name: float(f"{x[0] / last:.4g}") for name, x in amounts.items()}


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Returns at most `_POINTS` points, the last included, evenly spaced on a logarithmic axis."""
    if len(points) <= _POINTS:
        return points
    kept = np.unique(np.geomspace(1, len(points), _POINTS).round().astype(int))
    return [points[i - 1] for i in kept.tolist()]


def _costs(grid: Grid, lines: Sequence[Line], key: str, unit: float) -> list[dict[str, Any]]:
    """Returns cost and quality of every row, and of its seeds if there are several."""
    values = []
    for line in lines:
        measure, runs = main_measure(grid, line), line.entry.runs
        if measure is None:
            continue
        name, x = line.entry.row.name, [results.costs(run.result)[key] / unit for run in runs]
        points: list[tuple[Any, float, float]] = [("mean", float(np.mean(x)), measure.spread.mean)]
        if len(runs) > 1:
            points += zip([run.seed for run in runs], x, measure.values, strict=True)
        values += [
            {"row": name, "seed": seed, "main": i == 0, "x": cost_of_seed, "y": quality}
            for i, (seed, cost_of_seed, quality) in enumerate(points)
        ]
    return values


def _cost(
    names: Sequence[str], values: Sequence[Mapping[str, Any]], label: str, metric: str
) -> Spec:
    style = styles(names)
    tooltip = [("row", "row"), ("seed", "seed"), ("x", label), ("y", metric)]
    return {
        "data": {"values": list(values)},
        "transform": [CHOSEN],
        "mark": {"type": "point", "filled": True},
        "encoding": {
            "x": logarithmic("x", label),
            "y": linear("y", metric),
            "color": style["color"],
            "shape": style["shape"],
            "size": {"condition": {"test": "datum.main", "value": 70}, "value": 15},
            "tooltip": [{"field": field, "title": title} for field, title in tooltip],
        },
    }


def _distance(names: Sequence[str], curves: Curves, metric: str) -> Spec:
    spans = [span for span, _ in curves.parts]
    values = [
        {"row": name, "part": spans, "sentences": [n for _, n in curves.parts],
         metric: [round(value, 2) for value in row]}
        for name, row in curves.rows.items()
    ]  # fmt: skip
    style = styles(names)
    axis = {"labelAngle": 0}
    return {
        "data": {"values": values},
        "transform": [CHOSEN, {"flatten": ["part", "sentences", metric]}],
        "mark": {"type": "line", "point": {"size": 30, "strokeDash": [1, 0]}, "tooltip": True},
        "encoding": {n: style[n] for n in ("color", "strokeDash", "shape")}
        | {
            "x": {"field": "part", "type": "ordinal", "sort": spans, "title": curves.what}
            | {"axis": axis},
            "y": linear(metric, metric),
        },
    }
