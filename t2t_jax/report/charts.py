"""The charts of a study's report, as Vega-Lite: the picture, and what it says of each point."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from t2t_jax.evaluation.metric import metric_of
from t2t_jax.report import plots, style
from t2t_jax.study import cost, tables
from t2t_jax.study.distances import Curves
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line

Spec = dict[str, Any]


class Chart(NamedTuple):
    """A chart with its caption, and as a picture for where no script runs."""

    name: str
    caption: str
    spec: Spec
    picture: Markup


def charts(grid: Grid, found: Sequence[Line], curves: Sequence[Curves]) -> list[Chart]:
    """Every chart that the results give."""
    metric = metric_of(grid.data.corpus).name if grid.study.split else "perplexity"
    shown = [line for line in found if line.entry.runs]
    if not shown:
        return []
    caption = "Perplexity against the step: in training (lines), on dev (dots); first seeds."
    out = [_chart("learning", caption, _learning(shown))]
    for key, (label, unit) in plots.COSTS.items():
        values = _costs(grid, shown, key, unit)
        out.append(
            _chart(f"cost-{key}", f"{metric} against {label}.", _cost(values, label, metric))
        )
    if any(line.difference for line in found):
        values = _differences(grid, found)
        paper = any(v["paper"] is not None for v in values)
        caption = (
            f"{metric} less that of {found[0].entry.row.name}, 95% {plots.interval(found)}"
            + (": ours (dot) and the paper's (diamond)." if paper else ".")
        )
        spec = _difference(values, f"{metric} less that of {found[0].entry.row.name}", paper)
        out.append(_chart("differences", caption, spec))
    for i, one in enumerate(curves):
        out.append(_chart(f"distance-{i}", f"{metric} by {one.what}.", _distance(one, metric)))
    return out


_POINTS = 80  # of a curve: more cannot be seen, and make a page heavy
_GRID = {"gridColor": "#888", "gridOpacity": 0.2, "domainColor": "currentColor"}
_PLAIN = {"format": "~g", "tickCount": 6, "labelOverlap": True}  # of logarithmic axes


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
            "axis": _inked("label", "title") | _GRID,
            "legend": _inked("label", "title") | {"labelLimit": 260},
        },
    } | spec
    picture = vl_convert.vegalite_to_svg(json.dumps(spec))
    return Chart(name, caption, spec | {"width": "container"}, Markup(picture))


def _inked(*what: str) -> dict[str, str]:
    return {f"{w}Color": "currentColor" for w in what}


def _looks(names: Sequence[str]) -> dict[str, Any]:
    """Colour, and dash or shape, of each row: no two alike by colour alone."""
    looks = [style.line(i) for i in range(len(names))]
    dashes = {"-": [1, 0], "--": [6, 3], ":": [2, 2], "-.": [7, 2, 2, 2]}
    colours = ["currentColor", *(look["color"] for look in looks[1:])]
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
            "scale": scale | {"range": [dashes[look["linestyle"]] for look in looks]},
            "legend": legend,
        },
    }


def _picked(names: Sequence[str]) -> dict[str, Any]:
    """A menu that brings one row to the front."""
    menu = {
        "input": "select",
        "options": [None, *names],
        "labels": ["every row", *names],
        "name": "Row ",
    }
    return {
        "params": [{"name": "picked", "value": None, "bind": menu}],
        "opacity": {
            "condition": {"test": "picked === null || datum.row === picked", "value": 1},
            "value": 0.12,
        },
    }


def _learning(found: Sequence[Line]) -> Spec:
    names = [line.entry.row.name for line in found]
    values = [
        {"row": line.entry.row.name, "of": of, "step": step, "PPL": round(ppl, 3)}
        for line in found
        for of, points in zip(("training", "dev"), plots.curve(line), strict=True)
        for step, ppl in _thinned(points)
    ]
    looks, picked = _looks(names), _picked(names)
    about = ["row", "of", "step", "PPL"]
    log = {"type": "log", "nice": False}
    return {
        "data": {"values": values},
        "params": picked["params"],
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "scale": log, "axis": _PLAIN},
            "y": {
                "field": "PPL",
                "type": "quantitative",
                "scale": log,
                "axis": _PLAIN,
                "title": "perplexity",
            },
            "color": looks["color"],
            "opacity": picked["opacity"],
            "tooltip": [{"field": f} for f in about],
        },
        "layer": [
            {
                "transform": [{"filter": "datum.of === 'training'"}],
                "mark": {"type": "line"},
                "encoding": {"strokeDash": looks["strokeDash"]},
            },
            {
                "transform": [{"filter": "datum.of === 'dev'"}],
                "mark": {"type": "point", "filled": True, "size": 30},
                "encoding": {"shape": looks["shape"]},
            },
        ],
    }


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """At most `_POINTS` of them, even along a logarithmic axis, with the last."""
    if len(points) <= _POINTS:
        return points
    kept = np.unique(np.geomspace(1, len(points), _POINTS).round().astype(int))
    return [points[i - 1] for i in kept.tolist()]


def _costs(grid: Grid, found: Sequence[Line], key: str, unit: float) -> list[dict[str, Any]]:
    values = []
    for line in found:
        x = np.mean([cost.costs(run)[key] for run in line.entry.runs]) / unit
        y, n = plots.quality(grid, line), len(line.entry.runs)
        values.append({"row": line.entry.row.name, "x": float(x), "y": y, "n": n})
    return values


def _cost(values: Sequence[Mapping[str, Any]], label: str, metric: str) -> Spec:
    names = [v["row"] for v in values]
    looks, picked = _looks(names), _picked(names)
    about = [("row", "row"), ("x", label), ("y", metric), ("n", "seeds")]
    return {
        "data": {"values": list(values)},
        "params": picked["params"],
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "scale": {"type": "log", "nice": False},
                "axis": _PLAIN,
                "title": label,
            },
            "y": {
                "field": "y",
                "type": "quantitative",
                "scale": {"zero": False},
                "title": metric,
            },
            "opacity": picked["opacity"],
            "tooltip": [{"field": f, "title": t} for f, t in about],
        },
        "layer": [
            {
                "mark": {"type": "point", "filled": True, "size": 70},
                "encoding": {"color": looks["color"], "shape": looks["shape"]},
            },
            {
                "mark": {"type": "text", "dy": -10, "fill": "currentColor"},
                "encoding": {
                    "text": {"field": "row"},
                    "opacity": {
                        "condition": {"test": "datum.row === picked", "value": 1},
                        "value": 0,
                    },
                },
            },
        ],
    }


def _differences(grid: Grid, found: Sequence[Line]) -> list[dict[str, Any]]:
    base, values = tables.papers(grid, found[0].entry.row), []
    for line in found:
        if line.difference is None:
            continue
        paper = tables.papers(grid, line.entry.row)
        gap = None if paper is None or base is None else round(paper - base, 2)
        values.append({"row": line.entry.row.name, "paper": gap,
                       **line.difference._asdict() | {"p": line.p}})  # fmt: skip
    return values


def _shown(name: str) -> dict[str, str]:
    """A line of a difference's tooltip."""
    title = "interval over" if name == "over" else name
    return {"field": name, "title": title} | ({} if name in ("row", "over") else {"format": ".2f"})


def _difference(values: Sequence[Mapping[str, Any]], title: str, paper: bool) -> Spec:
    about = ["row", "size", "low", "high", "over", *(["paper"] if paper else [])]
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
                "mark": {"type": "rule", "color": style.COLOURS[0]},
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
                "mark": {"type": "point", "filled": True, "size": 50, "color": style.COLOURS[0]},
                "encoding": {
                    "x": x | {"field": "size"},
                    "tooltip": [_shown(name) for name in about],
                },
            },
            *([diamond] if paper else []),
            {
                "mark": {"type": "rule", "stroke": "currentColor", "opacity": 0.5},
                "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
            },
        ],
    }


def _distance(one: Curves, metric: str) -> Spec:
    names, spans = list(one.rows), [span for span, _ in one.parts]
    values = [
        {"row": name, "part": span, "sentences": n, metric: round(value, 2)}
        for name, row in one.rows.items()
        for (span, n), value in zip(one.parts, row, strict=True)
    ]
    looks, picked = _looks(names), _picked(names)
    return {
        "data": {"values": values},
        "params": picked["params"],
        "mark": {"type": "line", "point": {"size": 18, "strokeDash": [1, 0]}, "tooltip": True},
        "encoding": {n: looks[n] for n in ("color", "strokeDash")}
        | {
            "x": {
                "field": "part",
                "type": "ordinal",
                "sort": spans,
                "title": one.what,
                "axis": {"labelAngle": 0},
            },
            "y": {"field": metric, "type": "quantitative", "scale": {"zero": False}},
            "opacity": picked["opacity"],
        },
    }
