"""Charts of a study's page in Vega-Lite, with tooltips for every point."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from t2t_jax import plotting
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.report import factors, plots
from t2t_jax.study import cost, factorial
from t2t_jax.study.comparison import Line, paper_score
from t2t_jax.study.distances import Curves
from t2t_jax.study.grid import Grid

Spec = dict[str, Any]


class Chart(NamedTuple):
    """A chart with its caption, and a picture of it for readers without scripts."""

    name: str
    caption: str
    spec: Spec
    picture: Markup


def charts(grid: Grid, lines: Sequence[Line], curves: Sequence[Curves]) -> list[Chart]:
    """Returns every chart for which there are results."""
    metric = metric_of(grid.data.corpus).name if grid.study.split else "perplexity"
    shown = [line for line in lines if line.entry.runs]
    if not shown:
        return []
    caption = "Perplexity against the step, in training (lines) and on dev (markers); first seeds."
    out = [_chart("learning", caption, _learning(shown))]
    for key, (label, unit) in plots.COSTS.items():
        values = _costs(grid, shown, key, unit)
        out.append(
            _chart(f"cost-{key}", f"{metric} against {label}.", _cost(values, label, metric))
        )
    if any(line.difference for line in lines):
        values = _differences(grid, lines)
        paper = any(v["paper"] is not None for v in values)
        title = f"{metric} difference from {lines[0].entry.row.name}"
        interval = f"95% {plots.interval(lines)}"
        ours = ": ours (dot) and the paper's (diamond)" if paper else ""
        spec = _difference(values, title, paper)
        out.append(_chart("differences", f"{title}, {interval}{ours}.", spec))
    if crossed := factorial.factorial(grid, lines):
        out += [_chart(*described) for described in factors.specs(crossed)]
    for i, group in enumerate(curves):
        out.append(_chart(f"distance-{i}", f"{metric} by {group.what}.", _distance(group, metric)))
    return out


_POINTS = 80  # of a curve; more would not be visible
_GRID = {"gridColor": "#888", "gridOpacity": 0.2, "domainColor": "currentColor"}


def _chart(name: str, caption: str, spec: Spec) -> Chart:
    import vl_convert

    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 640,
        "height": 320,
        "background": "transparent",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "description": caption,
        "config": {
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": _text_colours("label", "title") | _GRID,
            "legend": _text_colours("label", "title") | {"labelLimit": 260},
        },
    } | spec
    picture = vl_convert.vegalite_to_svg(json.dumps(spec))
    return Chart(name, caption, spec | {"width": "container"}, Markup(picture))


def _text_colours(*parts: str) -> dict[str, str]:
    return {f"{part}Color": "currentColor" for part in parts}


def _styles(names: Sequence[str]) -> dict[str, Any]:
    """Returns channels for colour, dash and shape; rows differ by more than colour."""
    styles = [plotting.line(i) for i in range(len(names))]
    dashes = {"-": [1, 0], "--": [6, 3], ":": [2, 2], "-.": [7, 2, 2, 2]}
    colours = ["currentColor", *(style["color"] for style in styles[1:])]
    legend = {"orient": "bottom", "columns": 3, "symbolLimit": 0, "title": None}
    scale = {"domain": list(names)}
    shapes = "circle square triangle-up diamond triangle-down triangle-left triangle-right cross"
    return {
        "shape": {
            "field": "row",
            "scale": scale | {"range": shapes.split()},
            "legend": legend,
        },
        "color": {"field": "row", "scale": scale | {"range": colours}, "legend": legend},
        "strokeDash": {
            "field": "row",
            "scale": scale | {"range": [dashes[style["linestyle"]] for style in styles]},
            "legend": legend,
        },
    }


def _highlight(names: Sequence[str]) -> dict[str, Any]:
    """Returns a menu that highlights one row, and the opacity that it sets."""
    menu = {
        "input": "select",
        "options": [None, *names],
        "labels": ["all", *names],
        "name": "Highlight row ",
    }
    return {
        "params": [{"name": "highlighted", "value": None, "bind": menu}],
        "opacity": {
            "condition": {"test": "highlighted === null || datum.row === highlighted", "value": 1},
            "value": 0.12,
        },
    }


def _logarithmic(field: str, title: str) -> dict[str, Any]:
    """Returns the channel of a logarithmic axis with plain numbers."""
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "axis": {"format": "~g", "tickCount": 6, "labelOverlap": True},
        "title": title,
    }


def _learning(lines: Sequence[Line]) -> Spec:
    names = [line.entry.row.name for line in lines]
    values = [
        {"row": line.entry.row.name, "split": split, "step": step, "PPL": round(ppl, 3)}
        for line in lines
        for split, points in zip(("training", "dev"), plots.curve(line), strict=True)
        for step, ppl in _thinned(points)
    ]
    styles, highlight = _styles(names), _highlight(names)
    tooltip = ["row", "split", "step", "PPL"]
    return {
        "data": {"values": values},
        "params": highlight["params"],
        "encoding": {
            "x": _logarithmic("step", "step"),
            "y": _logarithmic("PPL", "perplexity"),
            "color": styles["color"],
            "opacity": highlight["opacity"],
            "tooltip": [{"field": field} for field in tooltip],
        },
        "layer": [
            {
                "transform": [{"filter": "datum.split === 'training'"}],
                "mark": {"type": "line"},
                "encoding": {"strokeDash": styles["strokeDash"]},
            },
            {
                "transform": [{"filter": "datum.split === 'dev'"}],
                "mark": {"type": "point", "filled": True, "size": 30},
                "encoding": {"shape": styles["shape"]},
            },
        ],
    }


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Returns at most `_POINTS` points, the last included, evenly spaced on a logarithmic axis."""
    if len(points) <= _POINTS:
        return points
    kept = np.unique(np.geomspace(1, len(points), _POINTS).round().astype(int))
    return [points[i - 1] for i in kept.tolist()]


def _costs(grid: Grid, lines: Sequence[Line], key: str, unit: float) -> list[dict[str, Any]]:
    values = []
    for line in lines:
        x = np.mean([cost.costs(run)[key] for run in line.entry.runs]) / unit
        y, n = plots.quality(grid, line), len(line.entry.runs)
        values.append({"row": line.entry.row.name, "x": float(x), "y": y, "n": n})
    return values


def _cost(values: Sequence[Mapping[str, Any]], label: str, metric: str) -> Spec:
    names = [v["row"] for v in values]
    styles, highlight = _styles(names), _highlight(names)
    tooltip = [("row", "row"), ("x", label), ("y", metric), ("n", "seeds")]
    return {
        "data": {"values": list(values)},
        "params": highlight["params"],
        "encoding": {
            "x": _logarithmic("x", label),
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": {"zero": False},
                "title": metric,
            },
            "opacity": highlight["opacity"],
            "tooltip": [{"field": field, "title": title} for field, title in tooltip],
        },
        "layer": [
            {
                "mark": {"type": "point", "filled": True, "size": 70},
                "encoding": {"color": styles["color"], "shape": styles["shape"]},
            },
            {
                "mark": {"type": "text", "dy": -10, "fill": "currentColor"},
                "encoding": {
                    "text": {"field": "row"},
                    "opacity": {
                        "condition": {"test": "datum.row === highlighted", "value": 1},
                        "value": 0,
                    },
                },
            },
        ],
    }


def _differences(grid: Grid, lines: Sequence[Line]) -> list[dict[str, Any]]:
    base, values = paper_score(grid, lines[0].entry.row), []
    for line in lines:
        if line.difference is None:
            continue
        paper = paper_score(grid, line.entry.row)
        gap = None if paper is None or base is None else round(paper - base, 2)
        values.append({"row": line.entry.row.name, "paper": gap,
                       **line.difference._asdict() | {"p": line.p}})  # fmt: skip
    return values


def _tooltip(name: str) -> dict[str, str]:
    """Returns a line of the tooltip of a difference."""
    title = "interval over" if name == "over" else name
    return {"field": name, "title": title} | ({} if name in ("row", "over") else {"format": ".2f"})


def _difference(values: Sequence[Mapping[str, Any]], title: str, paper: bool) -> Spec:
    tooltip = ["row", "size", "low", "high", "over", *(["paper"] if paper else [])]
    y = {"field": "row", "type": "nominal", "sort": None, "title": None}
    x = {"type": "quantitative", "title": title}
    diamond = {
        "mark": {"type": "point", "shape": "diamond", "stroke": "currentColor"},
        "encoding": {"x": x | {"field": "paper"}},
    }
    return {
        "data": {"values": list(values)},
        "height": 18 * len(values),
        "encoding": {"y": y | {"axis": {"labelLimit": 220}}},
        "layer": [
            {
                "mark": {"type": "rule", "color": plotting.COLOURS[0]},
                "encoding": {
                    "x": x | {"field": "low"},
                    "x2": {"field": "high"},
                    "strokeDash": {
                        "condition": {"test": "datum.over === 'sentences'", "value": [4, 3]},
                        "value": [1, 0],
                    },
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "color": plotting.COLOURS[0]},
                "encoding": {
                    "x": x | {"field": "size"},
                    "tooltip": [_tooltip(name) for name in tooltip],
                },
            },
            *([diamond] if paper else []),
            {
                "mark": {"type": "rule", "stroke": "currentColor", "opacity": 0.5},
                "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
            },
        ],
    }


def _distance(curves: Curves, metric: str) -> Spec:
    names, spans = list(curves.rows), [span for span, _ in curves.parts]
    values = [
        {"row": name, "part": span, "sentences": n, metric: round(value, 2)}
        for name, row in curves.rows.items()
        for (span, n), value in zip(curves.parts, row, strict=True)
    ]
    styles, highlight = _styles(names), _highlight(names)
    return {
        "data": {"values": values},
        "params": highlight["params"],
        "mark": {"type": "line", "point": {"size": 18, "strokeDash": [1, 0]}, "tooltip": True},
        "encoding": {n: styles[n] for n in ("color", "strokeDash")}
        | {
            "x": {
                "field": "part",
                "type": "ordinal",
                "sort": spans,
                "title": curves.what,
                "axis": {"labelAngle": 0},
            },
            "y": {"field": metric, "type": "quantitative", "scale": {"zero": False}},
            "opacity": highlight["opacity"],
        },
    }
