"""The charts of a study: which there are, their captions, and their files."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from t2t_jax import plotting
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.plotting import CHOSEN, LABEL, LINES, SHAPE, Axis, Spec, panel, tooltip
from t2t_jax.report import differences, learning
from t2t_jax.runs.results import Run
from t2t_jax.study import agreement, distances
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import main_metric, scored_part
from t2t_jax.study.distances import Curves
from t2t_jax.study.grid import Grid

COSTS, DISTANCES = (240, 200), (200, 120)  # of a panel, in pixels; many labels need a higher one


class Chart(NamedTuple):
    name: str
    caption: str
    body: Spec


def draw(grid: Grid, lines: Lines, split: Split | None) -> list[Path]:
    """Draws every chart that has results, as PNG, SVG and PDF; returns the paths of the PNGs."""
    names, out = [line.row.name for line in lines], []
    for chart in charts(grid, lines, split):
        title = [grid.title, *textwrap.wrap(grid.flags, 80), *textwrap.wrap(chart.caption, 110)]
        spec = plotting.chart(chart.body, names, title)
        out.append(plotting.write(grid.home / f"{grid.name}-{chart.name}", spec))
    return out


def charts(grid: Grid, lines: Lines, split: Split | None) -> Iterator[Chart]:
    """Yields every chart for which there are results."""
    if not any(line.runs for line in lines):
        return
    every, metric = grid.study.rows, main_metric(grid)  # a row's colour depends on no other choice
    styles = plotting.styles([row.name for row in every], [row.group for row in every])
    seeds = any(len(line.runs) > 1 for line in lines)
    faint = " Thin lines and small points are seeds." * seeds
    caption = f"Perplexity in training (lines) and on dev (points).{faint}"
    yield Chart("learning", caption, learning.chart(lines, styles))
    caption = f"{metric} against parameters, FLOPs and time." + " Small points are seeds." * seeds
    yield Chart("cost", caption, _costs(grid, lines, styles))
    if values := differences.values(grid, lines, styles):
        body = differences.chart(grid, values, lines[0].row.name)
        yield Chart("differences", differences.describe(values), body)
    if compared := agreement.agreements(grid, lines):
        caption = (
            "Differences from base against the paper's, with 95% intervals, which are corrected "
            "for all tests of the table if a row is tested; Kendall's tau."
        )
        yield Chart("agreement", caption, differences.agreement(compared, styles))
    if split and grid.study.split and (curves := distances.curves(lines, split, scored_part(grid))):
        name = metric_of(grid.data.corpus).name
        caption = f"{name} on {grid.study.split} by distance (number of sentences)."
        yield Chart("distances", caption, _distances(lines, curves, styles, name))
    if pairs := distances.contrastive_curves(distances.contrastive_accuracies(lines)):
        caption = "Accuracy on minimal pairs by distance (number of pairs), with 95% intervals."
        yield Chart("contrastive", caption, _distances(lines, pairs, styles, "accuracy (%)"))


def _costs(grid: Grid, lines: Lines, styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart with a panel for each cost that is known; small points are seeds."""
    metric, panels = main_metric(grid), list[Spec]()
    values = [value for line in lines for value in _cost_values(grid, line, styles)]
    y = Axis.over("quality", metric, (v["quality"] for v in values))
    grow = {"size": {"condition": {"test": "datum.main", "value": 40}, "value": 8}}
    titles = list(dict.fromkeys(v["cost"] for v in values))
    means = list({v["row"]: v for v in values if v["main"]}.values())
    size = COSTS[0], max(COSTS[1], LABEL * len(means))
    for title in titles:
        own = [v for v in values if v["cost"] == title]
        fields = tooltip("row", "seed", ("spent", title), ("quality", metric),
                         quality=".2f", spent=".4~s")  # fmt: skip
        x = Axis.over("spent", title, (v["spent"] for v in own), log=True)
        point = ("point", SHAPE | grow | {"tooltip": fields})
        drawn = panel(x, y, size, [point], means * (title == titles[-1]))
        panels.append(drawn | {"data": {"values": own}})
        y = y._replace(title=None)
    return {"transform": [CHOSEN], "hconcat": panels}


def _cost_values(grid: Grid, line: RowResult, styles: Mapping[str, Spec]) -> list[dict[str, Any]]:
    """Returns a row's quality and each of its costs: the mean and, if there are several, seeds."""
    measure = line.measure(main_metric(grid))
    if measure is None:
        return []
    every = [_spent(run) for run in line.runs]
    of_runs, out = list(zip(line.runs, measure.values, every, strict=True)), list[dict[str, Any]]()
    for cost in dict.fromkeys(cost for spent in every for cost in spent):
        shared = styles[line.row.name] | {"cost": cost}
        seeds = [
            shared | {"seed": run.seed, "quality": value, "spent": spent[cost]}
            for run, value, spent in of_runs
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


def _distances(
    lines: Lines, curves: Sequence[Curves], styles: Mapping[str, Spec], title: str
) -> Spec:
    """Returns a chart with a panel for each quantity; each row of panels has base and one group.

    The size of a point grows with the number of sentences or pairs that it is the score of. Points
    with intervals stand side by side.
    """
    scores = [v for x in curves for row in x.rows.values() for v in row]
    ends = [v for x in curves for row in x.ends.values() for both in row for v in both]
    y = Axis.over("score", title, scores + ends)
    most = max(n for group in curves for _, n in group.parts)
    rows = plotting.facets([(line.row.name, line.row.group) for line in lines])
    out: list[Spec] = []
    for members in rows:
        across, up = [], y
        for group in curves:
            own = {name: styles[name] for name in members if name in group.rows}
            across.append(_part(group, own, up, most, members is rows[-1], group is curves[-1]))
            up = y._replace(title=None)
        out.append({"hconcat": across})
    return {"vconcat": out}


def _part(
    group: Curves, styles: Mapping[str, Spec], y: Axis, most: int, lowest: bool, labelled: bool
) -> Spec:
    spans = [f"{span}\n({n})" for span, n in group.parts]
    x = Axis.of_levels("x", group.what if lowest else None, spans, labels=lowest)
    middle, step = (len(styles) - 1) / 2, 0.08 * bool(group.ends)
    values = [
        {**style, "x": i + step * (place - middle), "part": span, "n": n,
         "score": round(group.rows[name][i], 3)}
        | (dict(zip(("low", "high"), group.ends[name][i], strict=True)) if group.ends else {})
        for place, (name, style) in enumerate(styles.items())
        for i, (span, n) in enumerate(group.parts)
    ]  # fmt: skip
    scale = {"type": "sqrt", "domain": [0, most], "range": [0, 30]}
    grow: Spec = {"size": {"field": "n", "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": tooltip("row", "part", "n", "score", "low", "high", score=".2f", low=".1f",
                               high=".1f")}  # fmt: skip
    lines = [] if group.ends else [LINES[0]]
    layers = [plotting.interval(y)] * bool(group.ends) + lines + [("point", SHAPE | grow)]
    ends = [v for v in values if labelled and v["part"] == group.parts[-1][0]]
    drawn = panel(x, y, (DISTANCES[0], max(DISTANCES[1], LABEL * len(styles))), layers, ends)
    return drawn | {"data": {"values": values}, "transform": [CHOSEN]}
