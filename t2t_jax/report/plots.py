"""The plots of a study, made from stored results alone, in the study's store."""

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.report import style
from t2t_jax.study import cost, distances, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line
from t2t_jax.training.progress import read_metrics


def draw(grid: Grid, found: Sequence[Line], split: Split | None) -> list[Path]:
    """Every plot that the results give, each as PNG, SVG and PDF; the paths of the PNGs.

    Args:
      split: the sentences that the study is scored on, if they are at hand.
    """
    if not any(line.entry.runs for line in found):
        return []
    drawn = [learning(grid, found), costs(grid, found)]
    if any(line.difference for line in found):
        drawn.append(differences(grid, found))
    if split and grid.study.split and (curves := distances.curves(found, split)):
        drawn.append(distance(grid, curves))
    return [path.with_name(f"{path.name}.png") for path in drawn]


def curve(line: Line) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Step and perplexity of a row's first seed, in training and on dev."""
    records = read_metrics(line.entry.runs[0].directory / "metrics.jsonl")
    trained = [(r["step"], math.exp(min(r["nll"], 99))) for r in records if "nll" in r]
    return trained, [(r["step"], r["dev_perplexity"]) for r in records if "dev_perplexity" in r]


def learning(grid: Grid, found: Sequence[Line]) -> Path:
    """Perplexity against the step in training (lines) and on dev (marks), of the first seeds."""
    path = grid.home / f"{grid.name}-learning"
    with style.figure(path, 1, 1, size=(6.5, 0.12 * len(found) + 2.5)) as (figure, axes):
        for i, line in enumerate(found):
            if line.entry.runs:
                trained, dev = (np.array(points).reshape(-1, 2).T for points in curve(line))
                look: dict[str, Any] = style.line(i)
                axes.plot(*trained, linewidth=1, **look | {"marker": ""})
                axes.plot(*dev, label=line.entry.row.name, **look | {"linestyle": "none"})
        axes.set(xlabel="step", ylabel="perplexity: training (lines), dev (marks)")
        style.logarithmic(axes.xaxis, axes.yaxis)
        figure.suptitle(_title(grid))
        figure.legend(loc="outside right center")
    return path


def differences(grid: Grid, found: Sequence[Line]) -> Path:
    """BLEU or F1 difference from base: ours with its 95% interval, and the paper's."""
    path = grid.home / f"{grid.name}-differences"
    shown = [line for line in found if line.difference is not None]
    theirs = tables.papers(grid, found[0].entry.row)
    with style.figure(path, 1, 1, size=(5.5, 0.18 * len(shown) + 1.4)) as (figure, axes):
        for y, line in enumerate(shown):
            d, paper = line.difference, tables.papers(grid, line.entry.row)
            assert d is not None
            dash = "--" if d.over == "sentences" else "-"
            axes.plot([d.low, d.high], [y, y], dash, color=style.COLOURS[0], linewidth=1)
            axes.plot(d.size, y, "o", color=style.COLOURS[0], label="ours" * (y == 0))
            if paper is not None and theirs is not None:
                label = "paper" * (y == 0)
                axes.plot(paper - theirs, y, "D", color="black", fillstyle="none", label=label)
        axes.axvline(0, color="grey", linewidth=1)
        axes.set_yticks(range(len(shown)), [line.entry.row.name for line in shown])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(
            f"{metric_of(grid.data.corpus).name} difference from base,\n95% {interval(shown)}"
        )
        figure.suptitle(_title(grid))
        axes.legend()
    return path


def interval(shown: Sequence[Line]) -> str:
    """What the intervals of differences cover; those over sentences alone are dashed."""
    covered = {line.difference.over for line in shown if line.difference}
    if len(covered) == 1:
        return f"interval over {covered.pop()}"
    return "interval over seeds and sentences\n(dashed: interval over sentences)"


COSTS = {
    "parameters": ("parameters (M)", 1e6),
    "flops": ("training FLOPs, counted", 1.0),
    "training_seconds": ("minutes of training", 60.0),
}


def quality(grid: Grid, line: Line) -> float | None:
    """BLEU or F1, or perplexity where the study has no other metric; the mean over seeds."""
    spread = line.score if grid.study.split else line.PPL
    return None if spread is None else spread.mean


def costs(grid: Grid, found: Sequence[Line]) -> Path:
    """Quality against parameters, FLOPs and time."""
    path = grid.home / f"{grid.name}-cost"
    name = metric_of(grid.data.corpus).name if grid.study.split else "perplexity"
    with style.figure(path, 1, 3, size=(8, 3.2)) as (figure, panels):
        for axes, (key, (label, unit)) in zip(panels, COSTS.items(), strict=True):
            for i, line in enumerate(found):
                if line.entry.runs:
                    x = np.mean([cost.costs(run)[key] for run in line.entry.runs]) / unit
                    look: dict[str, Any] = style.line(i) | {"linestyle": "none"}
                    axes.plot(x, quality(grid, line), label=line.entry.row.name, **look)
            axes.set_xlabel(label)
            style.logarithmic(axes.xaxis)
        panels[0].set_ylabel(name)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.suptitle(_title(grid))
    return path


def distance(grid: Grid, curves: Sequence[distances.Curves]) -> Path:
    """Quality against the length of the longest dependency, and of the sentence."""
    path = grid.home / f"{grid.name}-distances"
    with style.figure(path, 1, 2, size=(8, 3.6)) as (figure, panels):
        for axes, one in zip(panels, curves, strict=True):
            for i, (name, values) in enumerate(one.rows.items()):
                axes.plot(range(len(values)), values, label=name, **style.line(i))
            ticks = [f"{span}\n({n})" for span, n in one.parts]
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set_xlabel(f"{one.what} (number of sentences)")
        panels[0].set_ylabel(f"{metric_of(grid.data.corpus).name} on {grid.study.split}")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.suptitle(_title(grid, ": quality against distance"))
    return path


def _title(grid: Grid, what: str = "") -> str:
    """The study, the preset and, below them, what a command line changed."""
    return "\n".join([grid.title + what, *textwrap.wrap(grid.flags, 80)])
