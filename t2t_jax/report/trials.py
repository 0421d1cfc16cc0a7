"""The expected best perplexity against the number of trials of a sweep."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_jax import plotting
from t2t_jax.study.comparison import Line
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import expected_least


def expected(line: Line) -> np.ndarray:
    """Returns the expected best perplexity of a row after each number of trials, [trials].

    Unfinished trials do not count. A failed trial counts as the worst one that did not fail, as the
    expectation would otherwise be infinite.
    """
    choice = line.entry.choice
    PPL = np.array([x.PPL for x in choice.finished] if choice else [], dtype=float)
    finite = PPL[np.isfinite(PPL)]
    return expected_least(np.minimum(PPL, finite.max())) if len(finite) else finite


def trials(grid: Grid, lines: Sequence[Line], title: str) -> Path:
    """Plots the expected best perplexity of every row against the number of trials."""
    path = grid.home / f"{grid.name}-trials"
    every = [expected(line) for line in lines]
    facets = plotting.facets([line.entry.row.group for line in lines])
    shape, size = dict(squeeze=False, sharex=True, sharey=True), (5.5, 1.6 * len(facets) + 0.9)
    with plotting.figure(path, len(facets), 1, size=size, **shape) as (figure, grids):
        for rows, axes in zip(facets, grids[:, 0], strict=True):
            shown = [i for i in (0, *rows) if len(every[i])]
            styles = [plotting.line(place) for place, i in enumerate((0, *rows)) if len(every[i])]
            for i, style in zip(shown, styles, strict=True):
                axes.plot(range(1, len(every[i]) + 1), every[i], **style)
        grids[-1, 0].set_xlabel("trials, drawn at random from those of the sweep")
        for rows, axes in zip(facets, grids[:, 0], strict=True):
            plotting.logarithmic(axes.yaxis)
            axes.xaxis.get_major_locator().set_params(integer=True)
            ends = [
                (
                    len(every[i]),
                    every[i][-1],
                    lines[i].entry.row.name,
                    plotting.line(place)["color"],
                )
                for place, i in enumerate((0, *rows))
                if len(every[i])
            ]
            plotting.label(axes, ends, 0.08)
        figure.supylabel("expected best perplexity on half of dev", fontsize=8)
        figure.suptitle(title)
    return path
