"""Comparison of the rows of a study: means over seeds, and significance of their differences."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from t2t_jax.data.corpora import CORPORA
from t2t_jax.evaluation.metrics import BPC, CONTRASTIVE, METRICS, PPL, metric_of, of_split
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.study import statistics
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.declaration import Row
from t2t_jax.study.grid import Grid
from t2t_jax.study.measuring import RunScore, Scores
from t2t_jax.study.statistics import Difference, Measure
from t2t_jax.study.sweep import SCORED

ALL = slice(None)
Pairs = Mapping[tuple[str, str], Difference]  # the first row minus the second, by their names


def compare_with_base(
    grid: Grid, rows: Lines, computed: Scores = MappingProxyType({})
) -> list[RowResult]:
    """Returns the numbers of every row, and how it differs from base, the first row.

    The rows of a sweep are compared twice: each tuned, and each untuned. All tests of the table are
    one family: of all rows, in all columns, tuned and untuned. `computed` has the scores of runs by
    metrics that are computed on request.
    """
    untuned = [row.untuned for row in rows if row.untuned]
    part = SCORED if untuned else ALL
    lines = _compare(grid, rows, part, computed)
    if untuned:
        others = _compare(grid, untuned, part, computed)
        lines = [replace(x, untuned=y) for x, y in zip(lines, others, strict=True)]
    return _corrected(grid, lines)


def tests(grid: Grid, lines: Lines) -> dict[str, list[Difference]]:
    """Returns the differences that a table tests, by the name of their column."""
    every = [of for line in lines for of in (line, line.untuned) if of]
    columns = {name: [line.measure(name) for line in every] for name in grid.scores}
    return {
        name: [x.difference for x in column if x and x.difference and x.p is not None]
        for name, column in columns.items()
    }


def _corrected(grid: Grid, lines: Lines) -> list[RowResult]:
    """Returns the lines of a table, corrected for all of its tests."""
    n = sum(map(len, tests(grid, lines).values())) or 1

    def of_line(line: RowResult) -> RowResult:
        measures = {
            name: x and replace(x, difference=x.difference and x.difference.corrected(n))
            for name, x in line.measures.items()
        }
        return replace(line, measures=measures, untuned=line.untuned and of_line(line.untuned))

    return [of_line(line) for line in lines]


def _compare(grid: Grid, rows: Lines, part: slice, computed: Scores) -> list[RowResult]:
    base, columns = rows[0], dict[str, list[Measure | None]]()
    for name in (PPL, metric_of(grid.data.corpus).name, *computed):
        measures = [_measure(name, x, computed.get(name), grid.study.split, part) for x in rows]
        usual = [not (x.unusual or base.unusual) and comparable(name, x, base) for x in rows]
        columns[name] = _compared(name, measures, usual)
    return [
        replace(row, measures={name: column[i] for name, column in columns.items()})
        for i, row in enumerate(rows)
    ]


def comparable(name: str, row: RowResult, base: RowResult) -> bool:
    """Returns whether two rows can be compared in a metric.

    PPL and BPC cannot with pseudo-perplexity, which predicts each token from both sides of it, and
    PPL cannot if it is per other subwords.
    """
    if name not in (PPL, BPC):
        return True
    masked = [ARCHITECTURES[x.c.model.architecture].masked for x in (row, base)]
    return masked[0] == masked[1] and (name == BPC or same_subwords(row, base))


def same_subwords(row: RowResult, base: RowResult) -> bool:
    """Returns whether dev has the same subwords for both rows, so that their PPL can be compared.

    They have the same vocabulary, and the same number of subwords in every sentence of dev. Rows
    whose runs kept no likelihoods must share all of their data.
    """
    if row.c.data.vocabulary != base.c.data.vocabulary:
        return False

    def origins(x: RowResult, name: str) -> set[str]:
        return {y for run in x.runs for n, y in run.origins.items() if n.startswith(name)}

    same = origins(row, "vocabulary") == origins(base, "vocabulary")
    if not (row.runs and base.runs):
        return True
    ours, theirs = ([n for _, n in x.runs[0].likelihood] for x in (row, base))
    data = ours == theirs if ours and theirs else origins(row, "data") == origins(base, "data")
    return same and data


def _measure(
    name: str, row: RowResult, of_runs: Mapping[Path, RunScore] | None, split: str, part: slice
) -> Measure | None:
    """Returns a metric of a row, without its difference from base; None if a run lacks it.

    `of_runs` are its scores if it is computed on request; `part` is what is counted of dev.
    """
    metric, of = of_split(name)
    on_dev, of_sums = name in (PPL, BPC) or (of or split) == "dev", METRICS[metric].of_sums
    if name == PPL:
        scores = [RunScore(run.result["dev_perplexity"], run.likelihood) for run in row.runs]
    elif of_runs is not None:
        scores = [of_runs[run.directory] for run in row.runs if run.directory in of_runs]
    else:
        scores = [RunScore(x.score, x.statistics) for x in row.runs if x.score is not None]
    sentences, values = [x.statistics for x in scores], [x.value for x in scores]
    if not values or len(values) < len(row.runs):
        return None
    if part != ALL and on_dev and name != CONTRASTIVE:
        if not all(map(len, sentences)):
            return None
        sentences = [x[part] for x in sentences]
        values = [float(of_sums(np.array(x).sum(axis=0))) for x in sentences]
    same = len(set(map(len, sentences))) == 1  # seeds of other data may have other sentences
    kept = same and all(map(len, sentences)) and np.isfinite(values).all()
    draws = statistics.resampled([np.array(x) for x in sentences], of_sums) if kept else None
    return Measure(statistics.spread(values), tuple(values), draws)


def _compared(
    name: str, measures: Sequence[Measure | None], comparable: Sequence[bool]
) -> list[Measure | None]:
    """Returns the measures of a column; comparable rows have their difference from the first."""
    both, out = zip(measures, comparable, strict=True), [*measures]
    tested = {i: x for i, (x, usual) in enumerate(both) if x and usual and x.draws is not None}
    difference = _differences(name, [*tested.values()])
    if base := tested.pop(0, None):
        for i, x in tested.items():
            out[i] = replace(x, difference=difference(x, base))
    return out


def _differences(
    name: str, measures: Sequence[Measure]
) -> Callable[[Measure, Measure], Difference]:
    """Returns the difference of two of the measures of a column, which is tested."""
    scaled: Callable[[Any], Any] = np.log if name == PPL else np.asarray
    several = [np.var(scaled(x.values), ddof=1) for x in measures if x.spread.n > 1]
    n = np.array([x.spread.n for x in measures if x.spread.n > 1])
    prior = statistics.prior(np.array(several), n) if len(several) > 1 else statistics.NO_PRIOR

    def difference(row: Measure, base: Measure) -> Difference:
        row_draws, base_draws = scaled(row.draws), scaled(base.draws)
        values = scaled(row.values), scaled(base.values)
        found = statistics.compare(*values, row_draws, base_draws, prior)
        return found.of_perplexity(math.exp(np.log(base.values).mean())) if name == PPL else found

    return difference


def scored_part(grid: Grid) -> slice:
    """Returns the sentences of the study's split that are scored: not those that chose values."""
    return SCORED if grid.sweep and grid.study.split == "dev" else ALL


def main_metric(grid: Grid) -> str:
    """Returns the name of the grid's metric, or PPL if the study is not scored."""
    return metric_of(grid.data.corpus).name if grid.study.split else PPL


def paper_value(grid: Grid, row: Row, name: str) -> float | None:
    """Returns the paper's PPL or metric; none of a sample, whose test set differs."""
    own = metric_of(grid.data.corpus).name
    known = name == PPL or (name == own and not CORPORA[grid.data.corpus].sample)
    return row.paper.get(name) if known else None


def compare_pairs(lines: Lines, name: str) -> Pairs:
    """Returns the differences of all pairs of comparable rows in a metric, corrected for all."""
    measures = {
        line.row.name: measure
        for line in lines
        if (measure := line.measure(name)) and measure.draws is not None and not line.unusual
    }
    difference = _differences(name, [*measures.values()])
    both = list(itertools.combinations(measures, 2))
    found = {(a, b): difference(measures[a], measures[b]) for a, b in both}
    tests = sum(d.p is not None for d in found.values())
    pairs = {names: d.corrected(tests) for names, d in found.items()}
    return pairs | {(b, a): d.reversed() for (a, b), d in pairs.items()}
