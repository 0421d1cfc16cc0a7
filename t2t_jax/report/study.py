"""The page of a study: table, curves, costs, significance and translations."""

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from t2t_jax import config
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.report.charts import charts
from t2t_jax.report.page import page, vega
from t2t_jax.report.samples import samples
from t2t_jax.study import cost, distances, tables
from t2t_jax.study.comparison import LEVEL, Line, compare_pairs
from t2t_jax.study.formats import row_config
from t2t_jax.study.grid import Grid
from t2t_jax.study.typeset import Cell, Table

REFRESH = 60  # seconds between reloads of the page of a running study


class PageRow(NamedTuple):
    """A row of the table and its details.

    Attributes:
      summary: the changes and the number of seeds, as a tooltip.
      config: the full config as JSON.
      runs: the scores of each run.
    """

    cells: tuple[Cell, ...]
    name: str
    summary: str
    config: str
    runs: Sequence[str]


class Pair(NamedTuple):
    """The difference of two rows.

    Attributes:
      mark: the symbol in the matrix.
      tooltip: difference and p.
      kind: above, below, open (not significant) or same (no difference to test).
    """

    mark: str
    tooltip: str
    kind: str


def study_page(
    grid: Grid, lines: Sequence[Line], split: Split | None, words: Sequence[str], live: bool
) -> str:
    """Returns the HTML.

    Args:
      split: the sentences that the study is scored on, if they are available.
      words: the arguments that a command needs for this study.
      live: whether the page reloads itself, as the study is running.
    """
    quality = tables.quality(grid, lines)
    scored = split if grid.study.split else None
    curves = distances.curves(lines, scored) if scored else []
    drawn = charts(grid, lines, curves)
    costs = cost.table([line.entry for line in lines])
    return page(
        "study.html",
        title=grid.title,
        name=grid.name,
        table=quality,
        spans=_spans(quality),
        groups=_page_rows(grid, quality, lines),
        cost=costs,
        cost_spans=_spans(costs),
        unfinished=[(x.entry.row.name, x.entry.status) for x in lines if x.entry.status],
        runs=sum(len(x.entry.runs) for x in lines),
        rows_with_runs=sum(1 for x in lines if x.entry.runs),
        rows=len(lines),
        charts=drawn,
        specs={chart.name: chart.spec for chart in drawn},
        matrix=_matrix(grid, lines),
        level=LEVEL,
        metric=metric_of(grid.data.corpus).name,
        samples=samples(grid, lines, scored) if scored else [],
        split=grid.study.split,
        environment=_environment(lines),
        command=lambda name: shlex.join(["t2t-jax", name, *words]),
        refresh=REFRESH if live else None,
        vega=vega() if drawn else "",
    )


def _spans(table: Table) -> list[tuple[str, int]]:
    """Returns the cells of the upper header row: text, and the number of columns it spans."""
    upper = [above for above, _ in table.header]
    starts = [i for i, text in enumerate(upper) if not text or not i or text != upper[i - 1]]
    return [(upper[a], b - a) for a, b in pairwise([*starts, len(upper)])]


def _page_rows(grid: Grid, table: Table, lines: Sequence[Line]) -> list[list[PageRow]]:
    """Returns the rows of each group of the table."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.entry.row.group, []).append(line)
    return [
        [_page_row(grid, cells, line) for cells, line in zip(cells_of_group, group, strict=True)]
        for cells_of_group, group in zip(table.groups, groups.values(), strict=True)
    ]


def _page_row(grid: Grid, cells: tuple[Cell, ...], line: Line) -> PageRow:
    entry, metric = line.entry, metric_of(grid.data.corpus).name
    scaled = config.flatten(entry.c)
    changes = ", ".join(f"{n}={scaled[n]}" for n in entry.row.changes) or "base"
    runs = [
        f"seed {run.seed}: PPL {run.result['dev_perplexity']:.3f}"
        + ("" if run.score is None else f", {metric} {run.score:.2f}")
        for run in entry.runs
    ]
    summary = f"{entry.row.name}: {changes}; n = {len(entry.runs)}"
    full = json.dumps(row_config(entry.c), indent=1)
    return PageRow(cells, entry.row.name, summary, full, runs)


def _matrix(grid: Grid, lines: Sequence[Line]) -> list[tuple[str, list[Pair]]]:
    """Returns the differences between all pairs of rows; empty if none is tested."""
    metric = metric_of(grid.data.corpus).name
    compared = compare_pairs(lines)
    if all(p is None for _, p in compared.values()):
        return []
    names = [line.entry.row.name for line in lines if line.score]
    return [(a, [_pair(metric, a, b, compared.get((a, b))) for b in names]) for a in names]


def _pair(metric: str, a: str, b: str, test: tuple[float, float | None] | None) -> Pair:
    if test is None:
        return Pair("", "", "same")
    difference, p = test
    tooltip = f"{a} minus {b}: {difference:+.2f} {metric}"
    if p is None:
        return Pair("·", f"{tooltip}, not tested: one seed", "open")
    tooltip += f", p = {p:.3g}"
    if p >= LEVEL:
        return Pair("·", f"{tooltip}, not significant", "open")
    return Pair("▲", tooltip, "above") if difference > 0 else Pair("▼", tooltip, "below")


def _environment(lines: Sequence[Line]) -> Mapping[str, str]:
    """Returns the devices, versions and code of all runs."""
    values: dict[str, set[Any]] = {}
    for line in lines:
        for run in line.entry.runs:
            for name, value in run.result["environment"].items():
                values.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(v)) for name, v in values.items() if any(v)}
