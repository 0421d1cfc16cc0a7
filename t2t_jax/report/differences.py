"""Charts of differences from base, beside the paper's and against the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_jax.report.vega import CHOSEN, Spec, styles
from t2t_jax.study.agreement import Agreement, agreements
from t2t_jax.study.comparison import Line, main_measure, main_metric, paper_difference
from t2t_jax.study.grid import Grid

_STEP = 18  # height of a row of the chart of differences, in pixels


def charts(grid: Grid, lines: Sequence[Line]) -> list[tuple[str, str, Spec]]:
    """Returns the name, caption and content of each chart."""
    out = []
    names = [line.entry.row.name for line in lines]
    if values := _differences(grid, lines):
        title = f"{main_metric(grid)} difference from {names[0]}"
        over = " or, dashed, ".join(sorted({v["over"] for v in values}))
        caption = f"{title}, 95% interval over {over}: {_marks(values)}."
        out.append(("differences", caption, _difference(values, title)))
    for x in agreements(grid, lines):
        caption = (
            f"{x.metric} difference from {names[0]} against the paper's, with 95% intervals. "
            f"Kendall's tau of the rows: {x.tau:.2f}."
        )
        out.append((f"agreement-{x.metric}", caption, _agreement(names, x)))
    return out


def _differences(grid: Grid, lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Returns the differences of rows from base, and of their seeds from base's mean."""
    of_base, values = main_measure(grid, lines[0]), []
    for line in lines:
        row, measure = line.entry.row, main_measure(grid, line)
        if measure is None or measure.difference is None or of_base is None:
            continue
        gap = paper_difference(grid, row)
        untuned = main_measure(grid, line.untuned) if line.untuned else None
        seeds = [x - of_base.spread.mean for x in measure.values]
        values.append({"row": row.name, "paper": gap and round(gap, 2), "seeds": seeds,
                       "untuned": untuned and untuned.difference and untuned.difference.size,
                       **measure.difference._asdict() | {"p": measure.p}})  # fmt: skip
    return values


def _marks(values: Sequence[Mapping[str, Any]]) -> str:
    """Describes the marks of the chart of differences."""
    marks = {"paper": "the paper's (diamond)", "untuned": "untuned (ring)"}
    several = ", seeds (small points)" * any(len(v["seeds"]) > 1 for v in values)
    others = [mark for n, mark in marks.items() if any(v[n] is not None for v in values)]
    return " and ".join([f"ours (dot){several}", *others])


def _difference(values: Sequence[Mapping[str, Any]], title: str) -> Spec:
    names = [n for n in ("paper", "untuned") if any(v[n] is not None for v in values)]
    x = {"type": "quantitative", "title": title}
    dashed = {"test": "datum.over === 'sentences'", "value": [4, 3]}
    shapes = {"paper": "diamond", "untuned": "circle"}
    others: list[Spec] = [
        {
            "mark": {"type": "point", "shape": shapes[name], "stroke": "currentColor"},
            "encoding": {"x": x | {"field": name}},
        }
        for name in names
    ]
    return {
        "data": {"values": list(values)},
        "transform": [CHOSEN],
        "height": _STEP * (len(values) + 1),
        "usermeta": {"step": _STEP},  # the script fits the height to the chosen rows
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelLimit": 220}},
            "tooltip": [_tooltip(n) for n in ("row", "size", "low", "high", "over", "p", *names)],
        },
        "layer": [
            {
                "mark": {"type": "rule", "color": "currentColor"},
                "encoding": {
                    "x": x | {"field": "low"},
                    "x2": {"field": "high"},
                    "strokeDash": {"condition": dashed, "value": [1, 0]},
                },
            },
            {
                "transform": [{"flatten": ["seeds"]}],
                "mark": {"type": "point", "filled": True, "size": 15, "color": "currentColor"},
                "encoding": {"x": x | {"field": "seeds"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "color": "currentColor"},
                "encoding": {"x": x | {"field": "size"}},
            },
            *others,
            {
                "mark": {"type": "rule", "stroke": "currentColor", "opacity": 0.5, "tooltip": None},
                "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
            },
        ],
    }  # fmt: skip


def _tooltip(name: str) -> dict[str, str]:
    """Returns a line of the tooltip of a difference."""
    title = "interval over" if name == "over" else name
    formats = {"row": {}, "over": {}, "p": {"format": ".3g"}}
    return {"field": name, "title": title} | formats.get(name, {"format": ".2f"})


def _agreement(names: Sequence[str], agreement: Agreement) -> Spec:
    values = []
    for point in agreement.points:
        d = point.measure.difference
        ends = {"low": d.low, "high": d.high} if d else {"low": point.ours, "high": point.ours}
        name = point.line.entry.row.name
        values.append({"row": name, "paper": round(point.paper, 3), "ours": point.ours, **ends})
    style = styles(names)
    tooltip = [_tooltip(name) for name in ("row", "paper", "ours", "low", "high")]
    x, y = (
        {"field": name, "type": "quantitative", "title": f"{agreement.metric} difference, {name}"}
        for name in ("paper", "ours")
    )
    zero: Spec = {"mark": {"type": "rule", "stroke": "currentColor", "opacity": 0.5}}
    return {
        "data": {"values": values},
        "transform": [CHOSEN],
        "layer": [
            zero | {"encoding": {"x": {"datum": 0}}},
            zero | {"encoding": {"y": {"datum": 0}}},
            {
                "mark": {"type": "rule", "opacity": 0.5},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"},
                             "color": style["color"]},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": style["color"], "shape": style["shape"],
                             "tooltip": tooltip},
            },
        ],
    }  # fmt: skip
