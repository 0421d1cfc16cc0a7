"""The page of a study: its table, curves, costs, significance and translations."""

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
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line
from t2t_jax.study.typeset import Cell, Table

REFRESH = 60  # seconds between two looks at a study that runs


class Told(NamedTuple):
    """A row of the table, and what it says when it is asked: its config and its runs."""

    cells: tuple[Cell, ...]
    name: str
    about: str
    config: str
    runs: Sequence[str]


class Pair(NamedTuple):
    """What is known of the difference of two rows: a mark, its words, and how it is shown."""

    mark: str
    words: str
    kind: str


def study_page(
    grid: Grid, found: Sequence[Line], split: Split | None, words: Sequence[str], live: bool
) -> str:
    """The HTML.

    Args:
      split: the sentences that the study is scored on, if they are at hand.
      words: what stands behind the name of a command to repeat it for this study.
      live: the page is made anew while the study runs.
    """
    quality = tables.quality(grid, found)
    known = bool(split and grid.study.split)
    curves = distances.curves(found, split) if split and known else []
    drawn = charts(grid, found, curves)
    return page(
        "study.html",
        title=grid.title,
        name=grid.name,
        table=quality,
        spans=_spans(quality),
        groups=_told(grid, quality, found),
        cost=cost.table([x.entry for x in found]),
        cost_spans=_spans(cost.table([x.entry for x in found])),
        standing=[(x.entry.row.name, x.entry.standing) for x in found if x.entry.standing],
        finished=sum(len(x.entry.runs) for x in found),
        rows=sum(1 for x in found if x.entry.runs),
        of=len(found),
        charts=drawn,
        specs={chart.name: chart.spec for chart in drawn},
        matrix=_matrix(grid, found),
        level=tables.LEVEL,
        metric=metric_of(grid.data.corpus).name,
        samples=samples(grid, found, split) if split and known else [],
        split=grid.study.split,
        made_with=_made_with(found),
        command=lambda name: shlex.join(["t2t-jax", name, *words]),
        refresh=REFRESH if live else None,
        vega=vega() if drawn else "",
    )


def _spans(table: Table) -> list[tuple[str, int]]:
    """The upper header: neighbours of one text as one cell, and over how many columns."""
    upper = [above for above, _ in table.header]
    starts = [i for i, text in enumerate(upper) if not text or not i or text != upper[i - 1]]
    return [(upper[a], b - a) for a, b in pairwise([*starts, len(upper)])]


def _told(grid: Grid, table: Table, found: Sequence[Line]) -> list[list[Told]]:
    lines: dict[str, list[Line]] = {}
    for line in found:
        lines.setdefault(line.entry.row.group, []).append(line)
    return [
        [_tell(grid, cells, line) for cells, line in zip(group, of, strict=True)]
        for group, of in zip(table.groups, lines.values(), strict=True)
    ]


def _tell(grid: Grid, cells: tuple[Cell, ...], line: Line) -> Told:
    entry, metric = line.entry, metric_of(grid.data.corpus).name
    scaled = config.flatten(entry.c)
    changes = ", ".join(f"{n}={scaled[n]}" for n in entry.row.changes) or "the base"
    runs = [
        f"seed {run.seed}: PPL {run.result['dev_perplexity']:.3f}"
        + ("" if run.score is None else f", {metric} {run.score:.2f}")
        for run in entry.runs
    ]
    about = f"{entry.row.name}: {changes}; n = {len(entry.runs)}"
    full = json.dumps(tables.store_config(entry.c), indent=1)
    return Told(cells, entry.row.name, about, full, runs)


def _matrix(grid: Grid, found: Sequence[Line]) -> list[tuple[str, list[Pair]]]:
    """Row against row: which differences are significant; empty where none is tested."""
    metric = metric_of(grid.data.corpus).name
    compared = tables.pairs(grid, found)
    if all(p is None for _, p in compared.values()):
        return []
    names = [line.entry.row.name for line in found if line.score]
    return [(a, [_pair(metric, a, b, compared.get((a, b))) for b in names]) for a in names]


def _pair(metric: str, a: str, b: str, known: tuple[float, float | None] | None) -> Pair:
    if known is None:
        return Pair("", "", "same")
    size, p = known
    words = f"{a} minus {b}: {size:+.2f} {metric}"
    if p is None:
        return Pair("·", f"{words}, not tested: one seed", "open")
    words += f", p = {p:.3g}"
    if p >= tables.LEVEL:
        return Pair("·", f"{words}, not significant", "open")
    return Pair("▲" if size > 0 else "▼", words, "above" if size > 0 else "below")


def _made_with(found: Sequence[Line]) -> Mapping[str, str]:
    """Devices, versions and code of all runs."""
    seen: dict[str, set[Any]] = {}
    for line in found:
        for run in line.entry.runs:
            for name, value in run.result["environment"].items():
                seen.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(values)) for name, values in seen.items() if any(values)}
