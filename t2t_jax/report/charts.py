"""The charts of a study: which there are, their captions, and their files."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax import plotting
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.plotting import Spec
from t2t_jax.report import costs, differences, factors, learning, parts, tuning
from t2t_jax.study import agreement, distances, factorial
from t2t_jax.study.comparison import RowResult, main_metric
from t2t_jax.study.grid import Grid


class Chart(NamedTuple):
    """A chart of a study.

    Attributes:
      name: ends the name of its files.
      body: its data and panels, without title and theme.
    """

    name: str
    caption: str
    body: Spec


def draw(grid: Grid, lines: Sequence[RowResult], split: Split | None) -> list[Path]:
    """Draws every chart for which there are results; returns the paths of the PNG files.

    Each is also written as SVG and PDF.

    Args:
      split: the sentences that the study is scored on, if they are available.
    """
    names, out = [line.row.name for line in lines], []
    for chart in charts(grid, lines, split):
        title = [grid.title, *textwrap.wrap(grid.flags, 80), *textwrap.wrap(chart.caption, 110)]
        spec = plotting.chart(chart.body, names, title)
        out.append(plotting.write(grid.home / f"{grid.name}-{chart.name}", spec))
    return out


def charts(grid: Grid, lines: Sequence[RowResult], split: Split | None) -> list[Chart]:
    """Returns every chart for which there are results."""
    if not any(line.runs for line in lines):
        return []
    return [Chart(*parts) for parts in _charts(grid, lines, split)]


def _charts(
    grid: Grid, lines: Sequence[RowResult], split: Split | None
) -> Iterator[tuple[str, str, Spec]]:
    """Yields the name, caption and content of each chart."""
    every, metric = grid.study.rows, main_metric(grid)  # a row's colour depends on no other choice
    styles = plotting.styles([row.name for row in every], [row.group for row in every])
    base = lines[0].row.name
    seeds = any(len(line.runs) > 1 for line in lines)
    faint = " Thin lines and small points are seeds." * seeds
    caption = f"Perplexity in training (lines) and on dev (points).{faint}"
    yield "learning", caption, learning.chart(lines, styles)
    caption = f"{metric} against parameters, FLOPs and time." + " Small points are seeds." * seeds
    yield "cost", caption, costs.chart(grid, lines, styles)
    if values := differences.values(grid, lines, styles):
        body = differences.chart(grid, values, base)
        yield "differences", differences.describe(values), body
    if compared := agreement.agreements(grid, lines):
        caption = (
            "Differences from base against the paper's, with 95% intervals, those of tested rows "
            "corrected for all tests of the table; Kendall's tau."
        )
        yield "agreement", caption, differences.agreement(compared, styles)
    if crossed := factorial.factorial(grid, lines):
        caption = f"{crossed.metric} against each field, with the range of seeds."
        yield "fields", caption, factors.fields(crossed)
        if crossed.cells.ndim > 1:
            caption = f"{crossed.metric} by two fields, mean over seeds and other fields."
            yield "heatmap", caption, factors.heatmaps(crossed)
    if grid.sweep:
        yield "trials", tuning.CAPTION, tuning.chart(grid, lines, styles)
    if split and grid.study.split and (curves := distances.curves(lines, split)):
        name = metric_of(grid.data.corpus).name
        caption = f"{name} on {grid.study.split} by distance (number of sentences)."
        yield "distances", caption, parts.chart(lines, curves, styles, name)
    if pairs := distances.contrastive_curves(distances.contrastive_accuracies(lines)):
        caption = "Accuracy on minimal pairs by distance (number of pairs), with 95% intervals."
        yield "contrastive", caption, parts.chart(lines, pairs, styles, "accuracy (%)")
