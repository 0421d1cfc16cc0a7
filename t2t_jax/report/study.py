"""The page of a study: table, comparison of rows, curves, costs, significance and translations."""

import functools
import json
import shlex
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from t2t_jax import config, files, plotting
from t2t_jax.data.cache import Split
from t2t_jax.data.corpora import CORPORA
from t2t_jax.evaluation.metrics import PPL, metric_of
from t2t_jax.report.charts import charts
from t2t_jax.runs import store
from t2t_jax.study import distances, tables
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import Pairs, comparable, compare_pairs
from t2t_jax.study.formats import render, row_config
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import LEVEL
from t2t_jax.study.typeset import Cell, Table, extends

DOWNLOADS = (
    ("json", "json", "every row and run, as JSON"),
    ("latex", "tex", "the table, as LaTeX"),
    ("md", "md", "as Markdown"),
)
SENTENCES = 12  # whose translations are shown, evenly spaced over the split
SAME, ADDED, OMITTED = "same", "added", "omitted"


def study_page(grid: Grid, lines: Lines, split: Split | None, words: Sequence[str]) -> str:
    order = list(dict.fromkeys(line.row.group for line in lines))
    lines = sorted(lines, key=lambda line: order.index(line.row.group))  # as in the table
    quality, rows = tables.quality(grid, lines), iter(lines)
    scored, judged = split if grid.study.split else None, distances.contrastive_accuracies(lines)
    names = [line.row.name for line in lines]
    drawn = []
    for chart in charts(grid, lines, split):
        spec = plotting.chart(chart.body, names, paper="transparent")
        picture = Markup(plotting.picture(spec))  # for readers without scripts
        drawn.append(dict(name=chart.name, caption=chart.caption, spec=spec, picture=picture))
    main, pairs = _compared(grid, lines)
    return _template().render(
        title=grid.title,
        name=grid.name,
        table=quality,
        groups=[[_page_row(cells, next(rows)) for cells in group] for group in quality.groups],
        index={name: i for i, name in enumerate(names)},
        spans=_spans,
        trials=tables.trials(grid, lines) if grid.sweep else None,
        cost=tables.costs(lines),
        contrastive=distances.contrastive_table(judged) if judged else None,
        unfinished=[(x.row.name, x.status) for x in lines if x.status],
        runs=sum(len(x.runs) for x in lines),
        rows_with_runs=sum(1 for x in lines if x.runs),
        rows=len(lines),
        charts=drawn,
        pairs=pairs,
        compared=list(dict.fromkeys(name for name, _ in pairs)),
        level=LEVEL,
        metric=main,
        samples=samples(grid, lines, scored) if scored else [],
        split=grid.study.split,
        environment=_environment(lines),
        command=lambda name: shlex.join(["t2t-jax", name, *words]),
        downloads=[
            (f"{grid.name}.{suffix}", quote(render([(grid, lines)], form)), label)
            for form, suffix, label in DOWNLOADS
        ],
        data=files.finite(
            {
                "rows": [{"name": x.row.name, "config": row_config(x.c)} for x in lines],
                "specs": {x["name"]: x["spec"] for x in drawn},
            }
        ),
        vega=_vega() if drawn else "",
    )


@functools.cache
def _template() -> Template:
    """Returns the template of the page, which escapes whatever is no `Markup`."""
    environment = Environment(
        loader=PackageLoader("t2t_jax.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # in the given order
    return environment.get_template("study.html")


@functools.cache
def _vega() -> Markup:
    """Returns Vega-Lite and its dependencies as one script."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return Markup(script.replace("</script", "<\\/script"))


def _compared(grid: Grid, lines: Lines) -> tuple[str, Pairs]:
    """Returns the metric of the study, or PPL if it has no pairs, and its pairs."""
    own = metric_of(grid.data.corpus).name
    if grid.study.split and (pairs := compare_pairs(lines, own)):
        return own, pairs
    comparables = [line for line in lines if comparable(PPL, line, lines[0])]
    return PPL, compare_pairs(comparables, PPL)


def _spans(table: Table) -> list[tuple[str, int]]:
    """Returns the cells of the upper header row: text, and the number of columns it spans."""
    return [(text, len(list(same))) for text, same in groupby(above for above, _ in table.header)]


def _page_row(cells: Sequence[Cell], line: RowResult) -> dict[str, Any]:
    """Returns a row of the table and its details."""
    scaled, row = config.flatten(line.c), line.row
    changes = ", ".join(f"{n}={scaled[n]}" for n in row.changes) or "base"
    summary = f"{row.name}: {changes}; n = {len(line.runs)}"
    details = json.dumps(row_config(line.c), indent=1)
    return dict(cells=cells, across=extends(cells), name=row.name, summary=summary, config=details)


def _environment(lines: Lines) -> Mapping[str, str]:
    """Returns the devices, versions and code of all runs."""
    values: dict[str, set[Any]] = {}
    for line in lines:
        for run in line.runs:
            for name, value in run.result["environment"].items():
                if not isinstance(value, Mapping):  # as programs are
                    values.setdefault(name, set()).add(str(value))
    return {name: ", ".join(sorted(v)) for name, v in values.items() if any(v)}


def samples(grid: Grid, lines: Lines, split: Split) -> list[dict[str, Any]]:
    """Returns sentences of the split with the translations of every run that has stored them.

    A translation has its row and seed, the words as `marked`, and whether it is of the row's first
    run.
    """
    files = grid.study.split, grid.data.target
    runs = [(line, run) for line in lines for run in line.runs]
    every = [(*x, store.read_translations(x[1].directory, *files)) for x in runs]
    read = [(line, run, text) for line, run, text in every if text is not None]
    if not read or CORPORA[grid.data.corpus].documents:  # whose outputs are likelihoods
        return []
    out = []
    for i in np.unique(np.linspace(0, len(split.sources) - 1, SENTENCES).astype(int)).tolist():
        source, reference = split.sources[i], split.references[i]
        translations = [
            dict(row=x.row.name, seed=run.seed, first=run is x.runs[0],
                 parts=marked(text[i], reference))
            for x, run, text in read
        ]  # fmt: skip
        out.append(dict(source=source, reference=reference, translations=translations))
    return out


def marked(text: str, reference: str) -> list[tuple[str, str]]:
    """Returns spans of words, each in both texts, added to the reference, or omitted from it."""
    words, expected, parts = text.split(), reference.split(), []
    matcher = SequenceMatcher(None, words, expected, autojunk=False)
    for kind, start, end, low, high in matcher.get_opcodes():
        if kind != "equal" and low < high:
            parts.append((" ".join(expected[low:high]), OMITTED))
        if start < end:
            parts.append((" ".join(words[start:end]), SAME if kind == "equal" else ADDED))
    return parts
