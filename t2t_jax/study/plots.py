"""A study at a glance: learning curves, and gaps to base beside the paper's."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study import results, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line
from t2t_jax.training.progress import read_metrics


def draw(grid: Grid, *, only: str = "", mix: bool = False, report: Callable[[str], object]) -> Path:
    """Draws what the grid's store holds; the PNG, beside which lies an SVG."""
    import matplotlib.pyplot as plt

    found = tables.lines(grid, results.collect(grid, only=only, mix=mix, report=report))
    height = 1.5 + 0.24 * len(found)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, height), layout="constrained")
    _curves(left, found)
    _gaps(right, grid, found)
    figure.suptitle(f"{grid.study.title}. {grid.preset.about}")
    path = grid.home / f"{grid.name}.png"
    for kind in (".svg", ".png"):
        figure.savefig(path.with_suffix(kind), dpi=150)
    plt.close(figure)
    return path


def _curves(axes, found: Sequence[Line]) -> None:
    """Perplexity of every row's first seed: in training (lines) and on dev (dots)."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    colours = plt.get_cmap("viridis")
    for i, line in enumerate(found):
        for run in line.entry.runs[:1]:
            base = i == 0
            style = {
                "color": "black" if base else colours(i / len(found)),
                "zorder": 3 if base else 2,
            }
            records = read_metrics(run.directory / "metrics.jsonl")
            trained = [(r["step"], math.exp(min(r["nll"], 99))) for r in records if "nll" in r]
            dev = [(r["step"], r["dev_perplexity"]) for r in records if "dev_perplexity" in r]
            axes.plot(
                *zip(*trained, strict=True),
                linewidth=2.5 if base else 1,
                linestyle="-" if base else ("-", "--", ":")[i % 3],
                label=line.entry.row.name,
                **style,
            )
            axes.plot(*zip(*dev, strict=True), ".", **style)
    axes.set(xlabel="step", ylabel="perplexity", xscale="log", yscale="log")
    axes.set_title("Learning: training (lines), dev (dots)")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    if any(line.entry.runs for line in found):
        axes.legend(fontsize=6, loc="upper right")


def _gaps(axes, grid: Grid, found: Sequence[Line]) -> None:
    """BLEU or F1 less base's: ours with its 95% interval, and the paper's."""
    shown = [line for line in found[1:] if line.difference is not None]
    theirs = tables.papers(grid, found[0].entry.row)
    for y, line in enumerate(shown):
        d, paper = line.difference, tables.papers(grid, line.entry.row)
        assert d is not None
        axes.plot([d.low, d.high], [y, y], color="tab:blue", linewidth=1)
        axes.plot(d.size, y, "o", color="tab:blue", markersize=5, label="ours" * (y == 0))
        if paper is not None and theirs is not None:
            label = "paper" * (y == 0)
            axes.plot(paper - theirs, y, "D", color="black", fillstyle="none", label=label)
    axes.axvline(0, color="grey", linewidth=1)
    axes.set_yticks(range(len(shown)), [line.entry.row.name for line in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel=f"{metric_of(grid.data.corpus).name} less base's", title="Difference from base")
    axes.grid(axis="x", alpha=0.3)
    if shown:
        axes.legend(fontsize=7)
