"""Charts of differences from base, beside the paper's and against the paper's."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from t2t_jax.plotting import CHOSEN, COLOUR, INK, SHAPE, Axis, Spec, interval, panel, tooltip, zero
from t2t_jax.study.agreement import Agreement
from t2t_jax.study.collecting import Lines
from t2t_jax.study.comparison import main_metric, paper_value
from t2t_jax.study.grid import Grid

WIDTH = 420  # of the chart of differences, in pixels
STRETCHED = 10  # times the median difference, above which the axis is logarithmic
SIZE = 380, 280  # of a panel of the chart of agreement


def values(grid: Grid, lines: Lines, styles: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Returns the difference from base of every row, and of its seeds from base's mean."""
    name, out = main_metric(grid), []
    of_base, papers_base = lines[0].measure(name), paper_value(grid, grid.study.rows[0], name)
    for line in lines:
        measure, paper = line.measure(name), paper_value(grid, line.row, name)
        if measure is None or measure.difference is None or of_base is None:
            continue
        if paper is not None:
            paper = None if papers_base is None else paper - papers_base
        untuned = line.untuned and line.untuned.measure(name)
        seeds = [x - of_base.spread.mean for x in measure.values]
        out.append({**styles[line.row.name], "paper": paper,
                    "seeds": seeds if len(seeds) > 1 else [],
                    "untuned": untuned and untuned.difference and untuned.difference.size,
                    **measure.difference._asdict()})  # fmt: skip
    return out


def describe(values: Sequence[Mapping[str, Any]]) -> str:
    """Describes the marks of the chart of differences, and what its intervals cover."""
    both = {"seeds and sentences": "seeds and sentences (corrected for all tests of the table)"}
    over = " or, dashed, ".join(both.get(x, x) for x in sorted({v["over"] for v in values}))
    marks = {"seeds": "seeds (small)", "untuned": "untuned (rings)", "paper": "the paper's "
             "(diamonds, on the axis above)"}  # fmt: skip
    others = [text for n, text in marks.items() if any(v[n] not in (None, []) for v in values)]
    return ", ".join(["Ours (dots)", *others]) + f"; 95% intervals over {over}."


def chart(grid: Grid, values: Sequence[Mapping[str, Any]], base: str) -> Spec:
    """Returns a chart of the differences of rows from base: ours with intervals, and the paper's.

    The paper's have an axis of their own, as ours may be many times as large; both axes share 0.
    """
    title = f"{main_metric(grid)} difference from {base}"
    ends = [v[n] for v in values for n in ("size", "low", "high", "untuned") if v[n] is not None]
    gaps = [v["paper"] for v in values if v["paper"] is not None]
    ours = f"{title}, ours" if gaps else title
    x = Axis.over("size", ours, [0, *ends, *(seed for v in values for seed in v["seeds"])])
    middle = median(abs(v["size"]) for v in values)
    if not gaps and max(map(abs, ends)) > STRETCHED * middle > 0:
        x = x._replace(symlog=middle, title=f"{title} (logarithmic)")
    if gaps:  # an eighth of the axis at least, even if all rows are better than base, or all worse
        margin = 0.14 * max(-x.low, x.high)
        x = x._replace(low=min(x.low, -margin), high=max(x.high, margin))
    fields = tooltip("row", "size", "low", "high", ("over", "interval over"), "p", "paper",
                     "untuned", **dict.fromkeys(("size", "low", "high", "paper", "untuned"), ".2f"),
                     p=".3g")  # fmt: skip
    layers: list[Spec] = [{"layer": _ours(x)}]
    if gaps:
        factor = 1.1 * max(gap / (x.high if gap > 0 else x.low) for gap in gaps) or 1.0
        above = Axis("paper", f"{title}, the paper's", factor * x.low, factor * x.high,
                     properties={"orient": "top", "grid": False})  # fmt: skip
        mark = {"type": "point", "shape": "diamond", "filled": False, "color": INK, "size": 45}
        layers.append({"mark": mark, "encoding": {"x": above.channel()}})
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


def _ours(x: Axis) -> list[Spec]:
    dashed = {"condition": {"test": "datum.over === 'sentences'", "value": [4, 3]}, "value": [1, 0]}
    ends = {"x": x.channel("low"), "x2": {"field": "high"}, "strokeDash": dashed}
    point = {"type": "point", "size": 45}
    seed = {"mark": point | {"size": 10}, "encoding": {"x": x.channel("seeds")} | COLOUR}
    return [
        zero("x"),
        {"mark": "rule", "encoding": ends | COLOUR},
        {"transform": [{"flatten": ["seeds"]}], **seed},
        {"mark": point, "encoding": {"x": x.channel()} | COLOUR},
        {"mark": point | {"filled": False}, "encoding": {"x": x.channel("untuned")} | COLOUR},
    ]


def agreement(found: Sequence[Agreement], styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of our differences from base against the paper's, for each metric."""
    return {"transform": [CHOSEN], "hconcat": [_agreement(metric, styles) for metric in found]}


def _agreement(metric: Agreement, styles: Mapping[str, Spec]) -> Spec:
    values = []
    for x in metric.points:
        d, style = x.measure.difference, styles[x.line.row.name]
        ends = {"low": d.low, "high": d.high} if d else {"low": x.ours, "high": x.ours}
        values.append(style | {"paper": x.paper, "ours": x.ours} | ends)
    name, numbers = f"{metric.metric} difference from base", ("ours", "low", "high")
    paper = Axis.over("paper", f"{name}, paper", (v["paper"] for v in values))
    y = Axis.over("ours", f"{name}, ours", (v[n] for v in values for n in numbers))
    formats = dict.fromkeys(("paper", *numbers), ".2f")
    dot = {"type": "point", "size": 40}, SHAPE | {"tooltip": tooltip("row", *formats, **formats)}
    drawn = panel(paper, y, SIZE, [interval(y), dot], values) | {"data": {"values": values}}
    title = {"text": f"{metric.metric}: tau {metric.tau:.2f}", "fontSize": 11}
    return drawn | {"layer": [zero("x"), zero("y"), *drawn["layer"]], "title": title}
