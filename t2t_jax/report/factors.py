"""Plots of a factorial study: heatmaps of two fields, and the metric against each field."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import plotting
from t2t_jax.study.factorial import Factorial
from t2t_jax.study.grid import Grid


def heatmap(grid: Grid, study: Factorial, title: str) -> Path:
    """Plots the mean of every combination of two fields, over seeds and the other fields."""
    path = grid.home / f"{grid.name}-heatmap"
    pairs = list(itertools.combinations(range(study.cells.ndim), 2))
    names, levels = list(study.levels), list(study.levels.values())
    height = 0.35 * max(len(x) for x in levels) + 1.6
    shape: dict[str, Any] = dict(squeeze=False)
    with plotting.figure(path, 1, len(pairs), size=(3.6 * len(pairs), height), **shape) as (
        figure,
        panels,
    ):
        for axes, (a, b) in zip(panels[0], pairs, strict=True):
            others = tuple(i for i in range(study.cells.ndim) if i not in (a, b))
            means = study.means.mean(axis=others)
            image = axes.imshow(means, aspect="auto", cmap="viridis")
            middle = (means.min() + means.max()) / 2
            for i, j in np.ndindex(means.shape):
                colour = "white" if means[i, j] < middle else "black"
                axes.text(j, i, f"{means[i, j]:.2f}", ha="center", va="center", color=colour)
            axes.set_yticks(range(len(levels[a])), levels[a])
            axes.set_xticks(range(len(levels[b])), levels[b])
            axes.set(xlabel=names[b], ylabel=names[a])
            axes.grid(visible=False)
            figure.colorbar(image, ax=axes, label=study.metric)
        figure.suptitle(title)
    return path


def against(grid: Grid, study: Factorial, title: str) -> Path:
    """Plots the metric against each field, with the deviation over seeds.

    There is a line for each combination of the other fields.
    """
    path = grid.home / f"{grid.name}-fields"
    count = study.cells.ndim
    shape: dict[str, Any] = dict(squeeze=False, sharey=True)
    with plotting.figure(path, 1, count, size=(3.6 * count + 0.5, 3), **shape) as (figure, panels):
        for axis, (axes, (name, levels)) in enumerate(
            zip(panels[0], study.levels.items(), strict=True)
        ):
            numeric = all(isinstance(x, int | float) for x in levels)
            x = levels if numeric else range(len(levels))
            moved = np.moveaxis(study.cells, axis, -1)
            ends = []
            for i, place in enumerate(np.ndindex(moved.shape[:-1])):
                spreads = [cell.spread for cell in moved[place]]
                y, error = [s.mean for s in spreads], [np.nan_to_num(s.deviation) for s in spreads]
                style = plotting.line(i)
                axes.errorbar(x, y, error, capsize=2, elinewidth=0.7, **style)
                ends.append((x[-1], y[-1], _others(study, axis, place), style["color"]))
            if logarithmic(levels):
                axes.set_xscale("log")
                axes.minorticks_off()
            axes.set_xticks(x, levels)
            axes.set_xlabel(name)
            plotting.label(axes, ends)
        panels[0][0].set_ylabel(study.metric)
        figure.suptitle(title)
    return path


def logarithmic(levels: Sequence[Any]) -> bool:
    """Returns whether an axis is logarithmic: its greatest value is at least 4 times the least."""
    return all(isinstance(x, int | float) for x in levels) and 0 < 4 * min(levels) <= max(levels)


def _others(study: Factorial, axis: int, place: Sequence[int]) -> str:
    """Returns the values of the fields that a line holds fixed."""
    fixed = [(name, x) for i, (name, x) in enumerate(study.levels.items()) if i != axis]
    return ", ".join(f"{name}={x[i]}" for (name, x), i in zip(fixed, place, strict=True))


def specs(study: Factorial) -> list[tuple[str, str, dict[str, Any]]]:
    """Returns both plots for a page: the name, the caption and the Vega-Lite of each chart."""
    values = [
        {
            **{name: x[i] for (name, x), i in zip(study.levels.items(), place, strict=True)},
            "mean": cell.spread.mean,
            "n": cell.spread.n,
            "low": cell.spread.mean - float(np.nan_to_num(cell.spread.deviation)),
            "high": cell.spread.mean + float(np.nan_to_num(cell.spread.deviation)),
        }
        for place, cell in np.ndenumerate(study.cells)
    ]
    names, out = list(study.levels), []
    for name in names:
        others = [x for x in names if x != name]
        out.append((f"field-{name}", f"{study.metric} against {name}, ± deviation over seeds.",
                    _against(study, values, name, others)))  # fmt: skip
    for a, b in itertools.combinations(names, 2):
        caption = f"{study.metric} by {a} and {b}, mean over seeds and other fields."
        out.append((f"heatmap-{a}-{b}", caption, _heatmap(study, values, a, b)))
    return out


def _against(
    study: Factorial, values: Sequence[dict[str, Any]], name: str, others: Sequence[str]
) -> dict[str, Any]:
    levels = study.levels[name]
    numeric = all(isinstance(x, int | float) for x in levels)
    scale = {"type": "log", "nice": False} if logarithmic(levels) else {"zero": False}
    x: dict[str, Any] = {"field": name, "type": "quantitative" if numeric else "ordinal"}
    x |= {"scale": scale, "axis": {"values": levels}} if numeric else {"sort": levels}
    fixed = " + ', ' + ".join(f"'{n}=' + datum['{n}']" for n in others) or "''"
    tooltip = [{"field": n} for n in (*study.levels, "mean", "n")]
    y = {"type": "quantitative", "title": study.metric, "scale": {"zero": False}}
    return {
        "data": {"values": list(values)},
        "transform": [{"calculate": fixed, "as": "fixed"}],
        "encoding": {
            "x": x,
            "color": {"field": "fixed", "type": "nominal", "title": None},
            "tooltip": tooltip,
        },
        "layer": [
            {"mark": {"type": "line", "point": True}, "encoding": {"y": y | {"field": "mean"}}},
            {"mark": "rule", "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}}},
        ],
    }


def _heatmap(study: Factorial, values: Sequence[dict[str, Any]], a: str, b: str) -> dict[str, Any]:
    mean = {"aggregate": "mean", "field": "mean", "type": "quantitative"}
    colour = mean | {"title": study.metric, "scale": {"scheme": "viridis"}}
    outlined = {"type": "text", "fill": "black", "stroke": "white", "strokeWidth": 3}
    text = {"text": mean | {"format": ".2f"}}
    return {
        "data": {"values": list(values)},
        "height": 50 * len(study.levels[a]),
        "encoding": {
            "x": {"field": b, "type": "ordinal", "sort": study.levels[b]},
            "y": {"field": a, "type": "ordinal", "sort": study.levels[a]},
        },
        "layer": [
            {"mark": "rect", "encoding": {"color": colour}},
            {"mark": outlined, "encoding": text},
            {"mark": {"type": "text", "fill": "black"}, "encoding": text},
        ],
    }
