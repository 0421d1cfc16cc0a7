"""The page of a study: table, comparison of rows, curves, costs, significance and translations."""

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from t2t_jax import config, files, plotting
from t2t_jax.data.cache import Split
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.report import page, pairs, tuning, vega
from t2t_jax.report.charts import charts
from t2t_jax.report.samples import samples
from t2t_jax.study import distances, factorial, tables
from t2t_jax.study.comparison import LEVEL, RowResult
from t2t_jax.study.formats import records, render, row_config
from t2t_jax.study.grid import Grid
from t2t_jax.study.typeset import Cell, Table, without_empty

DOWNLOADS = {"csv": "every run, as CSV", "latex": "the table, as LaTeX", "md": "as Markdown"}


class Figure(NamedTuple):
    """A chart with its caption, and a picture of it for readers without scripts."""

    name: str
    caption: str
    spec: plotting.Spec
    picture: Markup


class PageRow(NamedTuple):
    """A row of the table and its details."""

    cells: tuple[Cell, ...]
    name: str
    summary: str
    config: str


def study_page(
    grid: Grid, lines: Sequence[RowResult], split: Split | None, words: Sequence[str]
) -> str:
    """Returns the HTML of the page."""
    quality, crossed = tables.quality(grid, lines), factorial.factorial(grid, lines)
    scored, judged = split if grid.study.split else None, distances.contrastive_accuracies(lines)
    names = [line.row.name for line in lines]
    drawn = []
    for chart in charts(grid, lines, split):
        spec = plotting.chart(chart.body, names, paper="transparent")
        drawn.append(Figure(chart.name, chart.caption, spec, Markup(plotting.picture(spec))))
    compared = pairs.of_metrics(grid, lines)
    main, matrix = next(iter(compared.items()), ("", {}))
    return page(
        "study.html",
        title=grid.title,
        name=grid.name,
        table=quality,
        groups=_page_rows(quality, lines),
        index={name: i for i, name in enumerate(names)},
        spans=_spans,
        runs_table=_runs_table(grid, lines),
        trials=tuning.table(grid, lines) if grid.sweep else None,
        cost=tables.costs(lines),
        effects=factorial.effects_table(crossed) if crossed else None,
        contrastive=distances.contrastive_table(judged) if judged else None,
        unfinished=[(x.row.name, x.status) for x in lines if x.status],
        runs=sum(len(x.runs) for x in lines),
        rows_with_runs=sum(1 for x in lines if x.runs),
        rows=len(lines),
        charts=drawn,
        matrix=pairs.matrix(main, matrix),
        pairs=matrix,
        describe=pairs,
        level=LEVEL,
        metric=main,
        samples=samples(grid, lines, scored) if scored else [],
        split=grid.study.split,
        environment=_environment(lines),
        command=lambda name: shlex.join(["t2t-jax", name, *words]),
        downloads=_downloads(grid, lines),
        data=files.finite(_data(grid, lines, compared))
        | {"specs": {x.name: x.spec for x in drawn}},
        vega=vega() if drawn else "",
    )


def _spans(table: Table) -> list[tuple[str, int]]:
    """Returns the cells of the upper header row: text, and the number of columns it spans."""
    upper = [above for above, _ in table.header]
    starts = [i for i, text in enumerate(upper) if not text or not i or text != upper[i - 1]]
    return [(upper[a], b - a) for a, b in pairwise([*starts, len(upper)])]


def _page_rows(table: Table, lines: Sequence[RowResult]) -> list[list[PageRow]]:
    """Returns the rows of each group of the table."""
    groups: dict[str, list[RowResult]] = {}
    for line in lines:
        groups.setdefault(line.row.group, []).append(line)
    return [
        [_page_row(cells, line) for cells, line in zip(cells_of_group, group, strict=True)]
        for cells_of_group, group in zip(table.groups, groups.values(), strict=True)
    ]


def _page_row(cells: tuple[Cell, ...], line: RowResult) -> PageRow:
    scaled, row = config.flatten(line.c), line.row
    changes = ", ".join(f"{n}={scaled[n]}" for n in row.changes) or "base"
    summary = f"{row.name}: {changes}; n = {len(line.runs)}"
    return PageRow(cells, row.name, summary, json.dumps(row_config(line.c), indent=1))


def _runs_table(grid: Grid, lines: Sequence[RowResult]) -> Table:
    """Returns a line for every seed of every row, with a sweep both untuned and tuned."""
    names = ",,seed,dev PPL,{},training (min),device,steps,made by code,name".split(",")
    header = [("", name.format(metric_of(grid.data.corpus).name)) for name in names]
    groups = {}
    for line in lines:
        both = [(line.untuned, "untuned"), (line, "tuned")] if line.untuned else [(line, "")]
        groups[line.row.name] = [
            tuple(map(Cell, (line.row.name, tuning, *_run_texts(grid, x, i))))
            for x, tuning in both
            for i in range(len(x.runs))
        ]
    return without_empty("Every run.", header, groups, ())


def _run_texts(grid: Grid, line: RowResult, i: int) -> tuple[str, ...]:
    run = line.runs[i]
    seconds = run.costs["training_seconds"]
    return (
        str(run.seed),
        f"{line.PPL.values[i]:.3f}" if line.PPL else "",
        f"{line.score.values[i]:.2f}" if line.score else "",
        "" if seconds is None else f"{seconds / 60:.1f}",
        run.device,
        str(run.result["steps"]),
        f"{run.version}{'†' * bool(run.unusual)}",
        line.run_name(grid, run.seed),
    )


def _downloads(grid: Grid, lines: Sequence[RowResult]) -> list[tuple[str, str, str]]:
    """Returns a file name, an address and a label for each format that can be downloaded."""
    suffix = {"latex": "tex"}
    return [
        (
            f"{grid.name}.{suffix.get(name, name)}",
            f"data:text/plain;charset=utf-8,{quote(render([(grid, lines)], name))}",
            label,
        )
        for name, label in DOWNLOADS.items()
    ]


def _data(
    grid: Grid, lines: Sequence[RowResult], compared: Mapping[str, pairs.Pairs]
) -> dict[str, Any]:
    """Returns what the page's script shows of rows side by side, and of every pair.

    Pairs are in both orders; each has its difference, interval and p for each metric.
    """
    measures = [metric_of(grid.data.corpus).name, "PPL"] if grid.study.split else ["PPL"]
    rows, differences = [], dict[str, dict[str, tuple[str, ...]]]()
    for record in records(grid, lines):
        shown = {}
        for metric in measures:
            mean, deviation, _ = (record[metric] or dict(mean=None, deviation=None, n=0)).values()
            both = [text for x in (mean, deviation) if (text := _number(metric, x))]
            shown[metric] = " ± ".join(both)
            for run in record["runs"]:
                shown[f"{metric}, seed {run['seed']}"] = _number(metric, run[metric])
        rows.append({"name": record["row"], "config": record["config"], "results": shown})
    index = {row["name"]: i for i, row in enumerate(rows)}
    for metric, found in compared.items():
        for (a, b), d in found.items():
            for first, second, x in ((b, a, d), (a, b, pairs.reverse(d))):
                numbers = [_number(metric, value) for value in (x.size, x.low, x.high)]
                p = "one seed" if x.p is None else f"{x.p:.3g}"
                texts = numbers[0], f"{numbers[1]} to {numbers[2]}", p
                differences.setdefault(f"{index[first]},{index[second]}", {})[metric] = texts
    return {"rows": rows, "pairs": differences}


def _number(metric: str, value: float | None) -> str:
    return "" if value is None else f"{value:.{3 if metric == 'PPL' else 2}f}"


def _environment(lines: Sequence[RowResult]) -> Mapping[str, str]:
    """Returns the devices, versions and code of all runs."""
    values: dict[str, set[Any]] = {}
    for line in lines:
        for run in line.runs:
            for name, value in run.result["environment"].items():
                values.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(v)) for name, v in values.items() if any(v)}
