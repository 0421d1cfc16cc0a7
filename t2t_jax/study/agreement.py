"""Agreement of a table with the paper's: the order of the rows, and the signs of differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from t2t_jax.evaluation.metrics import PPL, metric_of
from t2t_jax.study import statistics
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import comparable, paper_value
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import Measure

# The least differences that count; smaller ones may be chance in the paper's single runs.
SEPARATED = {"PPL": 0.1, "BLEU": 0.3, "F1": 0.3, "accuracy": 0.3}


@dataclass(frozen=True)
class Point:
    """A row that has a value in both tables; `paper` and `ours` are differences from base."""

    line: RowResult
    measure: Measure
    paper: float
    ours: float


@dataclass(frozen=True)
class Agreement:
    """Agreement in a metric.

    Rows are separated if they differ from base by `SEPARATED` in the paper and, if ours are tested,
    significantly in ours.
    """

    metric: str
    points: tuple[Point, ...]
    tau: float  # Kendall's tau-b of the rows' values, base included
    # Its 95% interval, by bootstrap over rows, seeds and sentences; None if a row has one seed or
    # the statistics of its sentences were not kept.
    low: float | None
    high: float | None
    pairs: int  # of rows, base included, that differ by `SEPARATED` in the paper
    ordered: int  # of these pairs, those that have the paper's order
    tested: bool  # whether our rows have several seeds, and so are tested for significance
    separated: tuple[Point, ...]
    same_sign: tuple[Point, ...]  # the separated rows whose difference has the paper's sign


def agreements(grid: Grid, lines: Lines) -> list[Agreement]:
    """Returns the agreement in PPL and in the grid's metric, where both tables have three values.

    There is none for a metric in which all rows are equal.
    """
    found = []
    shown = (x for x in (PPL, metric_of(grid.data.corpus).name) if x in grid.scores)
    for name in dict.fromkeys(shown):
        column = [(x, x.measure(name), paper_value(grid, x.row, name)) for x in lines]
        found.append(_agreement(name, column))
    return [x for x in found if x]


def _agreement(
    name: str, column: Sequence[tuple[RowResult, Measure | None, float | None]]
) -> Agreement | None:
    line, base, paper_base = column[0]
    if base is None or paper_base is None or line.unusual:
        return None
    points = tuple(
        Point(line, measure, paper - paper_base, measure.spread.mean - base.spread.mean)
        for line, measure, paper in column
        if measure is not None and paper is not None and not line.unusual
        if comparable(name, line, column[0][0])
    )
    paper_values = np.array([point.paper for point in points]).round(6)  # keeps the paper's ties
    ours = np.array([point.ours for point in points])
    tau = float(statistics.kendall(ours, paper_values))
    if len(points) < 3 or np.isnan(tau):  # all rows are equal
        return None
    apart = (paper_values[:, None] - paper_values).round(6) >= SEPARATED[name]
    ordered = apart & (ours[:, None] > ours)
    tested = any(point.measure.p is not None for point in points)
    far = (x for x in points if round(abs(x.paper), 6) >= SEPARATED[name])
    separated = tuple(x for x in far if x.measure.significant or not tested)
    same = tuple(x for x in separated if x.paper * x.ours > 0)
    low, high = _interval(points, paper_values)
    pairs, in_order = int(apart.sum()), int(ordered.sum())
    return Agreement(name, points, tau, low, high, pairs, in_order, tested, separated, same)


def _interval(
    points: Sequence[Point], paper_values: np.ndarray
) -> tuple[float, float] | tuple[None, None]:
    """Returns an interval of tau that covers the tau of all seeds, sentences and like rows.

    Seeds and sentences alone, with the rows as they are, would not do: noise lowers tau, and a
    bootstrap adds noise to noisy means. In simulated tables of 20 rows, whose deviation over seeds
    is half of the rows' own, 95% intervals over seeds and sentences cover the true tau 60% of the
    time for 2 seeds and 67% for 3, bias-corrected ones no more often, and these 99%. If seeds
    differ as much as rows do, these cover it 81% of the time for 2 seeds and 91% for 3.
    """
    random, measures = np.random.default_rng(0), [point.measure for point in points]
    every = [x.draws for x in measures if x.draws is not None and x.spread.n > 1]
    if len(every) < len(points):
        return None, None
    values = np.stack([statistics.over_seeds(draws, random) for draws in every], axis=-1)
    drawn = random.integers(len(points), size=values.shape)
    taus = statistics.kendall(np.take_along_axis(values, drawn, axis=-1), paper_values[drawn])
    low, high = np.nanquantile(taus, [0.025, 0.975])
    return float(low), float(high)


def sentence(agreement: Agreement) -> str:
    """Returns the agreement in words, as it stands under a table."""
    name = agreement.metric
    text = f"Kendall's tau between our {name} and the paper's is {agreement.tau:.2f}"
    if agreement.low is not None:
        n = min(point.measure.spread.n for point in agreement.points)
        few = f"; {n} seeds are few, it may be too narrow" * (n < 3)
        interval = f"{agreement.low:.2f} to {agreement.high:.2f}"
        text += f" (95% interval over rows, seeds and sentences: {interval}{few})"
    gap = f"at least {SEPARATED[name]} {name} in the paper"
    if agreement.pairs:
        pairs = f"the {agreement.pairs} pairs of rows that differ by {gap}"
        text += f"; {agreement.ordered} of {pairs} have the paper's order"
    rows = f"rows that differ from base by {gap}{' and significantly here' * agreement.tested}"
    separated, same = agreement.separated, agreement.same_sign
    if not separated:
        return f"{text}; there are no {rows}."
    wrong = "; ".join(x.line.row.name for x in separated if x not in same)
    signs = f"{len(same)} of {len(separated)} {rows} have the paper's sign"
    return f"{text}; {signs}{f' (not {wrong})' if wrong else ''}."
