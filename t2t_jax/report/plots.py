"""Plots of a study, from its stored results; they are written to its store."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import plotting
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.runs import store
from t2t_jax.study import agreement, cost, distances
from t2t_jax.study.comparison import Line, paper_score
from t2t_jax.study.grid import Grid


def draw(grid: Grid, lines: Sequence[Line], split: Split | None) -> list[Path]:
    """Draws every plot for which there are results; returns the paths of the PNG files.

    Each is also written as SVG and PDF.

    Args:
      split: the sentences that the study is scored on, if they are available.
    """
    if not any(line.entry.runs for line in lines):
        return []
    paths = [learning(grid, lines), costs(grid, lines)]
    if any(line.difference for line in lines):
        paths.append(differences(grid, lines))
    if found := agreement.agreements(grid, lines):
        paths.append(agreeing(grid, lines, found))
    if split and grid.study.split and (curves := distances.curves(lines, split)):
        paths.append(distance(grid, curves))
    return [path.with_name(f"{path.name}.png") for path in paths]


def curve(line: Line, i: int = 0) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Returns (step, perplexity) of a row's i-th seed, in training and on dev."""
    records = store.read_curves(line.entry.runs[i].directory)
    training = [(r["step"], math.exp(min(r["nll"], 99))) for r in records if "nll" in r]
    return training, [(r["step"], r["dev_perplexity"]) for r in records if "dev_perplexity" in r]


def learning(grid: Grid, lines: Sequence[Line]) -> Path:
    """Plots perplexity against the step, in training (lines) and on dev (markers); first seeds."""
    path = grid.home / f"{grid.name}-learning"
    with plotting.figure(path, 1, 1, size=(6.5, 0.12 * len(lines) + 2.5)) as (figure, axes):
        for i, line in enumerate(lines):
            if line.entry.runs:
                training, dev = (np.array(points).reshape(-1, 2).T for points in curve(line))
                style: dict[str, Any] = plotting.line(i)
                axes.plot(*training, linewidth=1, **style | {"marker": ""})
                axes.plot(*dev, label=line.entry.row.name, **style | {"linestyle": "none"})
        axes.set(xlabel="step", ylabel="perplexity: training (lines), dev (markers)")
        plotting.logarithmic(axes.xaxis, axes.yaxis)
        figure.suptitle(_title(grid))
        figure.legend(loc="outside right center")
    return path


def differences(grid: Grid, lines: Sequence[Line]) -> Path:
    """Plots differences in BLEU or F1 from base: ours with 95% intervals, and the paper's."""
    path = grid.home / f"{grid.name}-differences"
    compared = [line for line in lines if line.difference is not None]
    paper_base = paper_score(grid, lines[0].entry.row)
    with plotting.figure(path, 1, 1, size=(5.5, 0.18 * len(compared) + 1.4)) as (figure, axes):
        for y, line in enumerate(compared):
            d, paper = line.difference, paper_score(grid, line.entry.row)
            assert d is not None
            linestyle = "--" if d.over == "sentences" else "-"
            axes.plot([d.low, d.high], [y, y], linestyle, color=plotting.COLOURS[0], linewidth=1)
            axes.plot(d.size, y, "o", color=plotting.COLOURS[0], label="ours" * (y == 0))
            if paper is not None and paper_base is not None:
                label = "paper" * (y == 0)
                axes.plot(paper - paper_base, y, "D", color="black", fillstyle="none", label=label)
        axes.axvline(0, color="grey", linewidth=1)
        axes.set_yticks(range(len(compared)), [line.entry.row.name for line in compared])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(
            f"{metric_of(grid.data.corpus).name} difference from base,\n95% {interval(compared)}"
        )
        figure.suptitle(_title(grid))
        axes.legend()
    return path


def agreeing(grid: Grid, lines: Sequence[Line], found: Sequence[agreement.Agreement]) -> Path:
    """Plots our differences from base against the paper's, with 95% intervals, for each metric."""
    path = grid.home / f"{grid.name}-agreement"
    size, labels = (4.5 * len(found), 4.2), {}
    styles = {line.entry.row.name: plotting.line(i) for i, line in enumerate(lines)}
    with plotting.figure(path, 1, len(found), size=size) as (figure, panels):
        for axes, metric in zip(np.atleast_1d(panels), found, strict=True):
            for point in metric.points:
                d, name = point.measure.difference, point.line.entry.row.name
                style: dict[str, Any] = styles[name] | {"linestyle": "none"}
                if d is not None:
                    low, high = point.ours - d.low, d.high - point.ours
                    style |= {"yerr": [[max(low, 0)], [max(high, 0)]], "elinewidth": 0.7}
                labels[name] = axes.errorbar(point.paper, point.ours, **style)
            axes.axhline(0, color="grey", linewidth=1)
            axes.axvline(0, color="grey", linewidth=1)
            axes.set_title(f"{metric.metric}: tau {metric.tau:.2f}")
            axes.set(xlabel="difference from base, paper", ylabel="difference from base, ours")
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=4)
        figure.suptitle(_title(grid))
    return path


def interval(lines: Sequence[Line]) -> str:
    """Names what the intervals of differences are over; those over sentences alone are dashed."""
    over = {line.difference.over for line in lines if line.difference}
    if len(over) == 1:
        return f"interval over {over.pop()}"
    return "interval over seeds and sentences\n(dashed: interval over sentences)"


COSTS = {
    "parameters": ("parameters (M)", 1e6),
    "flops": ("training FLOPs, counted", 1.0),
    "training_seconds": ("training time (minutes)", 60.0),
}


def quality(grid: Grid, line: Line) -> float | None:
    """Returns the mean over seeds of BLEU or F1, or of perplexity if the study is not scored."""
    measure = line.score if grid.study.split else line.PPL
    return None if measure is None else measure.spread.mean


def costs(grid: Grid, lines: Sequence[Line]) -> Path:
    """Plots quality against parameters, FLOPs and time."""
    path = grid.home / f"{grid.name}-cost"
    name = metric_of(grid.data.corpus).name if grid.study.split else "perplexity"
    with plotting.figure(path, 1, 3, size=(8, 3.2)) as (figure, panels):
        for axes, (key, (label, unit)) in zip(panels, COSTS.items(), strict=True):
            for i, line in enumerate(lines):
                if line.entry.runs:
                    x = np.mean([cost.costs(run)[key] for run in line.entry.runs]) / unit
                    style: dict[str, Any] = plotting.line(i) | {"linestyle": "none"}
                    axes.plot(x, quality(grid, line), label=line.entry.row.name, **style)
            axes.set_xlabel(label)
            plotting.logarithmic(axes.xaxis)
        panels[0].set_ylabel(name)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.suptitle(_title(grid))
    return path


def distance(grid: Grid, curves: Sequence[distances.Curves]) -> Path:
    """Plots quality against the length of the longest dependency, and of the sentence."""
    path = grid.home / f"{grid.name}-distances"
    with plotting.figure(path, 1, 2, size=(8, 3.6)) as (figure, panels):
        for axes, group in zip(panels, curves, strict=True):
            for i, (name, values) in enumerate(group.rows.items()):
                axes.plot(range(len(values)), values, label=name, **plotting.line(i))
            ticks = [f"{span}\n({n})" for span, n in group.parts]
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set_xlabel(f"{group.what} (number of sentences)")
        panels[0].set_ylabel(f"{metric_of(grid.data.corpus).name} on {grid.study.split}")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.suptitle(_title(grid, ": quality against distance"))
    return path


def _title(grid: Grid, what: str = "") -> str:
    """Returns the study and its preset and, below them, the fields that the command line set."""
    return "\n".join([grid.title + what, *textwrap.wrap(grid.flags, 80)])
