"""Plots of a study from its stored results; they are written to its store."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import plotting
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.report import factors
from t2t_jax.report.learning import learning
from t2t_jax.report.trials import trials
from t2t_jax.runs import results, store
from t2t_jax.study import agreement, distances, factorial
from t2t_jax.study.comparison import Line, main_measure, main_metric, paper_difference
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import Difference


def draw(grid: Grid, lines: Sequence[Line], split: Split | None) -> list[Path]:
    """Draws every plot for which there are results; returns the paths of the PNG files.

    Each is also written as SVG and PDF.

    Args:
      split: the sentences that the study is scored on, if they are available.
    """
    if not any(line.entry.runs for line in lines):
        return []
    paths = [learning(grid, lines, _title(grid)), costs(grid, lines)]
    if any(_difference(grid, line) for line in lines):
        paths.append(differences(grid, lines))
    if found := agreement.agreements(grid, lines):
        paths.append(agreeing(grid, lines, found))
    if crossed := factorial.factorial(grid, lines):
        paths.append(factors.against(grid, crossed, _title(grid)))
        if crossed.cells.ndim > 1:
            paths.append(factors.heatmap(grid, crossed, _title(grid)))
    if grid.sweep:
        paths.append(trials(grid, lines, _title(grid, ": expected best of the trials")))
    if split and grid.study.split and (curves := distances.curves(lines, split)):
        paths.append(distance(grid, lines, curves))
    if pairs := distances.contrastive_curves(distances.contrastive_accuracies(lines)):
        paths.append(contrastive(grid, lines, pairs))
    return [path.with_name(f"{path.name}.png") for path in paths]


def curve(line: Line, i: int = 0) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Returns (step, perplexity) of a row's i-th seed, in training and on dev."""
    records = store.read_curves(line.entry.runs[i].directory)
    training = [(r["step"], math.exp(min(r["nll"], 99))) for r in records if "nll" in r]
    return training, [(r["step"], r["dev_perplexity"]) for r in records if "dev_perplexity" in r]


def differences(grid: Grid, lines: Sequence[Line]) -> Path:
    """Plots the differences of rows from base: ours with 95% intervals, and the paper's.

    The paper's have an axis of their own, as ours may be many times as large; both axes share 0.
    """
    path, styles = grid.home / f"{grid.name}-differences", _styles(lines)
    compared = [line for line in lines if _difference(grid, line)]
    of_paper = {i: paper_difference(grid, line.entry.row) for i, line in enumerate(compared)}
    paper = {i: x for i, x in of_paper.items() if x is not None}
    metric, ours = main_metric(grid), [_difference(grid, line) for line in compared]
    with plotting.figure(path, 1, 1, size=(5.5, 0.18 * len(compared) + 1.6)) as (figure, axes):
        for y, (line, d) in enumerate(zip(compared, ours, strict=True)):
            colour = styles[line.entry.row.name]["color"]
            assert d is not None
            linestyle = "--" if d.over == "sentences" else "-"
            axes.plot([d.low, d.high], [y, y], linestyle, color=colour, linewidth=1)
            axes.plot(d.size, y, "o", color=colour)
        axes.axvline(0, color="grey", linewidth=1)
        axes.set_yticks(range(len(compared)), [line.entry.row.name for line in compared])
        for tick, line in zip(axes.get_yticklabels(), compared, strict=True):
            tick.set_color(styles[line.entry.row.name]["color"])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        base = lines[0].entry.row.name
        axes.set_xlabel(f"{metric} minus that of {base}, ours (dots),\n95% {interval(ours)}")
        if paper:
            _paper_axis(axes, paper, f"{metric} minus that of {base}, the paper's (diamonds)")
        figure.suptitle(_title(grid))
    return path


def _difference(grid: Grid, line: Line) -> Difference | None:
    measure = main_measure(grid, line)
    return None if measure is None else measure.difference


def _paper_axis(axes: Any, differences: Mapping[int, float], label: str) -> None:
    """Adds an axis above with another scale and the same 0, and the paper's differences on it."""
    low, high = axes.get_xlim()
    margin = 0.2 * max(-low, high)  # even if all rows are better than base, or all worse
    low, high = min(low, -margin), max(high, margin)
    factor = max(x / (high if x > 0 else low) for x in differences.values()) * 1.1 or 1.0
    axes.set_xlim(low, high)
    above = axes.twiny()
    above.spines["top"].set_visible(True)
    above.plot(list(differences.values()), list(differences), "D", color="black", fillstyle="none")
    above.set_xlim(factor * low, factor * high)
    above.set_xlabel(label)
    above.grid(visible=False)


def agreeing(grid: Grid, lines: Sequence[Line], found: Sequence[agreement.Agreement]) -> Path:
    """Plots our differences from base against the paper's, with 95% intervals, for each metric."""
    path = grid.home / f"{grid.name}-agreement"
    size, styles = (5.5 * len(found), 4.2), _styles(lines)
    with plotting.figure(path, 1, len(found), size=size) as (figure, panels):
        for axes, metric in zip(np.atleast_1d(panels), found, strict=True):
            for point in metric.points:
                d = point.measure.difference
                style: dict[str, Any] = styles[point.line.entry.row.name] | {"linestyle": "none"}
                if d is not None:
                    low, high = point.ours - d.low, d.high - point.ours
                    style |= {"yerr": [[max(low, 0)], [max(high, 0)]], "elinewidth": 0.5}
                axes.errorbar(point.paper, point.ours, **style)
            axes.axhline(0, color="grey", linewidth=1)
            axes.axvline(0, color="grey", linewidth=1)
            axes.set_title(f"{metric.metric}: tau {metric.tau:.2f}")
            axes.set(xlabel="difference from base, paper", ylabel="difference from base, ours")
            named = [(x.paper, x.ours, x.line.entry.row.name) for x in metric.points]
            plotting.label(axes, [(x, y, name, styles[name]["color"]) for x, y, name in named])
        figure.suptitle(_title(grid))
    return path


def interval(differences: Sequence[Difference | None]) -> str:
    """Describes the intervals of differences; those over sentences alone are dashed."""
    over = {d.over for d in differences if d}
    if len(over) == 1:
        return f"interval over {over.pop()}"
    return "interval over seeds and sentences\n(dashed: interval over sentences)"


COST_AXES = {
    "parameters": ("parameters (M)", 1e6),
    "flops": ("training FLOPs, counted", 1.0),
    "training_seconds": ("training time (minutes)", 60.0),
}


def costs(grid: Grid, lines: Sequence[Line]) -> Path:
    """Plots quality against parameters, FLOPs and time."""
    path = grid.home / f"{grid.name}-cost"
    metric = main_metric(grid)
    styles, lines = _styles(lines), [line for line in lines if line.entry.runs]
    shape, size = dict(sharey=True), (9, max(2.8, 0.15 * len(lines) + 0.8))
    with plotting.figure(path, 1, 3, size=size, **shape) as (figure, panels):
        for axes, (key, (label, unit)) in zip(panels, COST_AXES.items(), strict=True):
            points = []
            for line in lines:
                spent = [results.costs(run.result)[key] for run in line.entry.runs]
                x = float(np.mean(spent)) / unit
                measure, name = main_measure(grid, line), line.entry.row.name
                y = np.nan if measure is None else measure.spread.mean
                axes.plot(x, y, **styles[name] | {"linestyle": "none"})
                points.append((x, y, name, styles[name]["color"]))
            axes.set_xlabel(label)
            plotting.logarithmic(axes.xaxis)
        plotting.label(panels[-1], points)
        panels[0].set_ylabel(metric)
        figure.suptitle(_title(grid))
    return path


def distance(grid: Grid, lines: Sequence[Line], curves: Sequence[distances.Curves]) -> Path:
    """Plots quality against the length of the longest dependency, and of the sentence."""
    label = f"{metric_of(grid.data.corpus).name} on {grid.study.split}"
    return _by_part(grid, lines, curves, "distances", label, " (number of sentences)")


def contrastive(grid: Grid, lines: Sequence[Line], curves: Sequence[distances.Curves]) -> Path:
    """Plots contrastive accuracy against distance, with a panel for each type of error."""
    label = "accuracy on minimal pairs (%)"
    return _by_part(grid, lines, curves, "contrastive", label, "\n(number of pairs)")


def _by_part(
    grid: Grid,
    lines: Sequence[Line],
    curves: Sequence[distances.Curves],
    kind: str,
    label: str,
    counted: str,
) -> Path:
    """Plots curves side by side; each row of panels has base and one group of the table.

    Args:
      kind: ends the name of the file.
      label: of the vertical axis.
      counted: says what the numbers below the ticks count.
    """
    path, width = grid.home / f"{grid.name}-{kind}", max(9.5, 2.9 * len(curves))
    facets = plotting.facets([line.entry.row.group for line in lines])
    names = [line.entry.row.name for line in lines]
    shape, size = dict(squeeze=False, sharex="col", sharey=True), (width, 1.7 * len(facets) + 0.9)
    with plotting.figure(path, len(facets), len(curves), size=size, **shape) as (figure, grids):
        for rows, across in zip(facets, grids, strict=True):
            for axes, group in zip(across, curves, strict=True):
                for place, i in enumerate((0, *rows)):
                    values = group.rows.get(names[i], [])
                    axes.plot(range(len(values)), values, **plotting.line(place))
        for axes, group in zip(grids[-1], curves, strict=True):
            ticks = [f"{span}\n({n})" for span, n in group.parts]
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set_xlabel(f"{group.what}{counted}")
        for rows, across in zip(facets, grids, strict=True):
            last = curves[-1].rows
            points = [
                (len(last[name]) - 1, last[name][-1], name, plotting.line(place)["color"])
                for place, name in enumerate(names[i] for i in (0, *rows))
                if name in last
            ]
            plotting.label(across[-1], points, 0.075)
        figure.supylabel(label, fontsize=8)
        figure.suptitle(_title(grid, ": quality against distance"))
    return path


def _styles(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Returns the style of each row, by its name."""
    styles = plotting.styles([line.entry.row.group for line in lines])
    return {line.entry.row.name: style for line, style in zip(lines, styles, strict=True)}


def _title(grid: Grid, what: str = "") -> str:
    """Returns the study and its preset and, below them, the fields that the command line set."""
    return "\n".join([grid.title + what, *textwrap.wrap(grid.flags, 80)])
