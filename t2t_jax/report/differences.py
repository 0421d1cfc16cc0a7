"""Charts of differences from base, beside the paper's and against the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_jax.plotting import (
    CHOSEN,
    COLOUR,
    INK,
    SHAPE,
    Scale,
    Spec,
    labels,
    quantity,
    tooltip,
    zero,
)
from t2t_jax.study.agreement import Agreement
from t2t_jax.study.comparison import Line, main_measure, main_metric, paper_difference
from t2t_jax.study.grid import Grid

WIDTH = 420  # of the chart of differences, in pixels
SIDE = 380  # of the chart of agreement


def values(grid: Grid, lines: Sequence[Line], styles: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Returns the difference from base of every row, and of its seeds from base's mean."""
    of_base, out = main_measure(grid, lines[0]), []
    for line in lines:
        row, measure = line.row, main_measure(grid, line)
        if measure is None or measure.difference is None or of_base is None:
            continue
        untuned = main_measure(grid, line.untuned) if line.untuned else None
        seeds = [x - of_base.spread.mean for x in measure.values]
        out.append({**styles[row.name], "paper": paper_difference(grid, row),
                    "seeds": seeds if len(seeds) > 1 else [],
                    "untuned": untuned and untuned.difference and untuned.difference.size,
                    **measure.difference._asdict() | {"p": measure.p}})  # fmt: skip
    return out


def describe(values: Sequence[Mapping[str, Any]]) -> str:
    """Describes the marks of the chart of differences, and what its intervals cover."""
    over = " or, dashed, ".join(sorted({v["over"] for v in values}))
    marks = {"seeds": "seeds (small)", "untuned": "untuned (rings)", "paper": "the paper's "
             "(diamonds, on the axis above)"}  # fmt: skip
    others = [text for n, text in marks.items() if any(v[n] not in (None, []) for v in values)]
    return ", ".join(["Ours (dots)", *others]) + f"; 95% intervals over {over}."


def chart(grid: Grid, values: Sequence[Mapping[str, Any]], base: str) -> Spec:
    """Returns a chart of the differences of rows from base: ours with intervals, and the paper's.

    The paper's have an axis of their own, as ours may be many times as large; both axes share 0.
    """
    title = f"{main_metric(grid)} minus that of {base}"
    ends = [v[n] for v in values for n in ("size", "low", "high", "untuned") if v[n] is not None]
    x = Scale.over([0, *ends, *(seed for v in values for seed in v["seeds"])])
    gaps = [v["paper"] for v in values if v["paper"] is not None]
    if gaps:  # an eighth of the axis at least, even if all rows are better than base, or all worse
        margin = 0.14 * max(-x.low, x.high)
        x = Scale(min(x.low, -margin), max(x.high, margin))
    fields = tooltip("row", "size", "low", "high", ("over", "interval over"), "p", "paper",
                     "untuned", **dict.fromkeys(("size", "low", "high", "paper", "untuned"), ".2f"),
                     p=".3g")  # fmt: skip
    ours: Spec = {"layer": _ours(x, f"{title}, ours" if gaps else title)}
    if not gaps:
        layers = [ours]
    else:
        factor = 1.1 * max(gap / (x.high if gap > 0 else x.low) for gap in gaps) or 1.0
        papers = Scale(factor * x.low, factor * x.high)
        above = papers.channel("paper", f"{title}, the paper's", orient="top", grid=False)
        mark = {"type": "point", "shape": "diamond", "filled": False, "color": INK, "size": 45}
        layers = [ours, {"mark": mark, "encoding": {"x": above}}]
    row = {"field": "row", "type": "nominal", "sort": None, "title": None}
    return {
        "data": {"values": list(values)},
        "transform": [CHOSEN],
        "width": WIDTH,
        "height": {"step": 17},
        "encoding": {"y": row | {"axis": {"labelLimit": 220, "grid": True}}, "tooltip": fields},
        "layer": layers,
        "resolve": {"scale": {"x": "independent"}},
    }


def _ours(x: Scale, title: str) -> list[Spec]:
    at = {field: x.channel(field, title) for field in ("low", "seeds", "size", "untuned")}
    dashed = {"condition": {"test": "datum.over === 'sentences'", "value": [4, 3]}, "value": [1, 0]}
    interval = {"x": at["low"], "x2": {"field": "high"}, "strokeDash": dashed}
    ring = {"type": "point", "filled": False, "size": 45}
    return [
        zero("x"),
        {"mark": "rule", "encoding": interval | COLOUR},
        {
            "transform": [{"flatten": ["seeds"]}],
            "mark": {"type": "point", "size": 10},
            "encoding": {"x": at["seeds"]} | COLOUR,
        },
        {"mark": {"type": "point", "size": 45}, "encoding": {"x": at["size"]} | COLOUR},
        {"mark": ring, "encoding": {"x": at["untuned"]} | COLOUR},
    ]


def agreement(found: Sequence[Agreement], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of our differences from base against the paper's, for each metric."""
    return {"transform": [CHOSEN], "hconcat": [_agreement(metric, styles) for metric in found]}


def _agreement(metric: Agreement, styles: Mapping[str, Spec]) -> Spec:
    values = []
    for point in metric.points:
        d = point.measure.difference
        low, high = (d.low, d.high) if d else (point.ours, point.ours)
        style = styles[point.line.row.name]
        values.append({**style, "paper": point.paper, "ours": point.ours, "low": low, "high": high})
    x = Scale.over(v["paper"] for v in values)
    y = Scale.over(v[n] for v in values for n in ("ours", "low", "high"))
    height = max(SIDE - 100, 12 * len(values))
    points = [
        (float(x.pixels(v["paper"], SIDE)), float(height - y.pixels(v["ours"], height)),
         styles[v["row"]])
        for v in values
    ]  # fmt: skip
    name = f"{metric.metric} minus that of base"
    across, up = x.channel("paper", f"{name}, paper"), y.channel("ours", f"{name}, ours")
    numbers = dict.fromkeys(("paper", "ours", "low", "high"), ".2f")
    interval = {"x": across, "y": y.channel("low", f"{name}, ours"), "y2": quantity("high")}
    here = {"x": across, "y": up, "tooltip": tooltip("row", *numbers, **numbers)}
    return {
        "title": {"text": f"{metric.metric}: tau {metric.tau:.2f}", "fontSize": 11},
        "data": {"values": values},
        "width": SIDE,
        "height": height,
        "layer": [
            zero("x"),
            zero("y"),
            {"mark": {"type": "rule", "strokeOpacity": 0.6}, "encoding": interval | COLOUR},
            {"mark": {"type": "point", "size": 40}, "encoding": here | COLOUR | SHAPE},
            *labels(points, SIDE, height),
        ],
    }
