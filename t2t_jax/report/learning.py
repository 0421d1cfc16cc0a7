"""Learning curves: perplexity against steps, tokens, FLOPs and time, as bands over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import plotting
from t2t_jax.runs import store
from t2t_jax.runs.results import Run
from t2t_jax.study.comparison import Line
from t2t_jax.study.grid import Grid

AXES = {
    "steps": "steps",
    "tokens": "tokens, of source and target",
    "flops": "FLOPs, counted",
    "seconds": "seconds",
}
SHOWN = 5  # plots begin at 1 / SHOWN of the shortest run, before which rows hardly differ

MARKERS = 12  # about this many of a curve's evaluations on dev are shown


class Curve(NamedTuple):
    """The perplexity of a row at the steps that all of its seeds recorded.

    Attributes:
      amounts: the mean over seeds of each of `AXES`, [steps].
      PPL: of each seed, [seeds, steps].
    """

    amounts: Mapping[str, np.ndarray]
    PPL: np.ndarray

    def summary(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the geometric mean over seeds, the least and the greatest, each [steps]."""
        return np.exp(np.log(self.PPL).mean(axis=0)), self.PPL.min(axis=0), self.PPL.max(axis=0)


def curves(runs: Sequence[Run]) -> tuple[Curve, Curve]:
    """Returns a row's curves in training and on dev; both are empty if a run was not timed."""
    records = [store.read_curves(run.directory) for run in runs]
    if not all(any("tokens_per_second" in r for r in x) for x in records):
        empty = Curve({name: np.array([]) for name in AXES}, np.array([]))
        return empty, empty
    training = [{r["step"]: np.exp(min(r["nll"], 99)) for r in x if "nll" in r} for x in records]
    dev = [{r["step"]: r["dev_perplexity"] for r in x if "dev_perplexity" in r} for x in records]
    return _curve(runs, records, training), _curve(runs, records, dev)


def _curve(
    runs: Sequence[Run],
    records: Sequence[Sequence[Mapping[str, Any]]],
    values: Sequence[Mapping[int, float]],
) -> Curve:
    steps = np.array(sorted(set.intersection(*(set(x) for x in values))), dtype=int)
    every = [amounts(run, x, steps) for run, x in zip(runs, records, strict=True)]
    means = {name: np.mean([x[name] for x in every], axis=0) for name in AXES}
    return Curve(means, np.array([[x[step] for step in steps.tolist()] for x in values]))


def amounts(
    run: Run, records: Sequence[Mapping[str, Any]], steps: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns what a run has consumed after some steps, by the names in `AXES`.

    Tokens and seconds are those of training alone. They are interpolated between records, and
    extrapolated after the last one. A run that was trained at once with others has its share.
    """
    timed = [r for r in records if "tokens_per_second" in r]
    ends = np.array([0, *(r["step"] for r in timed)])
    together = run.result["trained_together"]
    seconds = np.array([r["seconds_per_step"] for r in timed]) / together
    tokens = np.array([r["tokens_per_second"] for r in timed]) * seconds

    def total(rates: np.ndarray) -> np.ndarray:
        sums = np.concatenate([[0.0], np.cumsum(rates * np.diff(ends))])
        return np.interp(steps, ends, sums) + rates[-1] * np.maximum(0, steps - ends[-1])

    flops = run.result["flops"] / run.result["steps"] * steps
    return {"steps": steps, "tokens": total(tokens), "flops": flops, "seconds": total(seconds)}


def learning(grid: Grid, lines: Sequence[Line], title: str) -> Path:
    """Plots perplexity against each of `AXES`, in training (lines) and on dev (markers).

    Every row of panels has base and a group of the table, or several groups of a single row.
    """
    path = grid.home / f"{grid.name}-learning"
    facets = plotting.facets([line.entry.row.group for line in lines])
    found = {i: curves(line.entry.runs) for i, line in enumerate(lines) if line.entry.runs}
    every = {i: both for i, both in found.items() if both[0].PPL.size and both[1].PPL.size}
    heights = [max(1.4, 0.13 * (len(rows) + 1) + 0.3) for rows in facets]
    shape = dict(squeeze=False, sharex="col", gridspec_kw={"height_ratios": heights})
    size = 9, sum(heights) + 0.9
    with plotting.figure(path, len(facets), len(AXES), size=size, **shape) as (figure, grids):
        for rows, across in zip(facets, grids, strict=True):
            for place, i in enumerate((0, *rows)):
                for axes, name in zip(across if i in every else (), AXES, strict=False):
                    _draw(axes, name, every[i], plotting.line(place))
        _scale(grids, list(every.values()))
        for rows, across, height in zip(facets, grids, heights, strict=True):
            ends = [
                _end(every[i], lines[i], place) for place, i in enumerate((0, *rows)) if i in every
            ]
            plotting.label(across[-1], ends, 0.11 / height)
        figure.supylabel("perplexity in training (lines)\nand on dev (markers)", fontsize=8)
        figure.suptitle(title)
    return path


def _draw(axes: Any, name: str, both: tuple[Curve, Curve], style: Mapping[str, Any]) -> None:
    training, dev = both
    for curve in both:
        _, low, high = curve.summary()
        axes.fill_between(curve.amounts[name], low, high, color=style["color"], alpha=0.2, lw=0)
    axes.plot(training.amounts[name], training.summary()[0], linewidth=1, **{**style, "marker": ""})
    shown = slice(None, None, -max(1, len(dev.amounts[name]) // MARKERS))  # the last one included
    marks = {**style, "linestyle": "none"}
    axes.plot(dev.amounts[name][shown], dev.summary()[0][shown], **marks)


def _scale(grids: np.ndarray, every: Sequence[tuple[Curve, Curve]]) -> None:
    """Makes all axes logarithmic with equal limits, which begin at 1 / SHOWN of the least row."""
    if not every:
        return
    ends = [training.amounts for training, _ in every]
    first = {name: min(amounts[name][-1] for amounts in ends) / SHOWN for name in AXES}
    both = [curve for pair in every for curve in pair]
    late = [curve.PPL[:, curve.amounts["steps"] >= first["steps"]] for curve in both]
    low, high = min(x.min(initial=np.inf) for x in late), max(x.max(initial=0) for x in late)
    for i, (name, label) in enumerate(AXES.items()):
        last = max(curve.amounts[name].max() for curve in both)
        for axes in grids[:, i]:
            axes.set_xlim(first[name], 1.1 * last)
            axes.set_ylim(0.9 * low, 1.1 * high)
            plotting.logarithmic(axes.xaxis, axes.yaxis, narrow=True)
        grids[-1, i].set_xlabel(label)


def _end(both: tuple[Curve, Curve], line: Line, place: int) -> tuple[float, float, str, str]:
    """Returns the last point of a row on dev, its name and its colour."""
    _, dev = both
    x, y = dev.amounts["seconds"][-1], dev.summary()[0][-1]
    return x, y, line.entry.row.name, plotting.line(place)["color"]
