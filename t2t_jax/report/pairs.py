"""The differences between all pairs of rows, as a matrix, as a table and as data for the script."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.study.comparison import LEVEL, RowResult, comparable, compare_pairs
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import Difference

Pairs = Mapping[tuple[str, str], Difference]


class MatrixCell(NamedTuple):
    """A cell of the matrix."""

    text: str
    tooltip: str
    kind: str  # above, below, open (not significant) or same (no difference to test)


def of_metrics(grid: Grid, lines: Sequence[RowResult]) -> dict[str, Pairs]:
    """Returns the pairs by metric, the study's own first; metrics without pairs are left out."""
    compared = [line for line in lines if comparable("PPL", line, lines[0])]
    metrics = {"PPL": compare_pairs(compared, "PPL")}
    if grid.study.split:
        name = metric_of(grid.data.corpus).name
        metrics = {name: compare_pairs(lines, name), **metrics}
    return {name: pairs for name, pairs in metrics.items() if pairs}


def matrix(metric: str, pairs: Pairs) -> list[tuple[str, list[tuple[str, MatrixCell]]]]:
    """Returns the cells of each row, with the names of their columns."""
    names = list(dict.fromkeys(name for both in pairs for name in both))
    return [(a, [(b, _cell(metric, pairs, a, b)) for b in names]) for a in names]


def _cell(metric: str, pairs: Pairs, a: str, b: str) -> MatrixCell:
    if a == b:
        return MatrixCell("", "", "same")
    d = pairs[a, b] if (a, b) in pairs else reverse(pairs[b, a])
    tooltip = f"{a} minus {b}: {d.size:+.2f} {metric}, 95% interval {interval(d)}, {verdict(d)}"
    kind = ("above" if d.size > 0 else "below") if significant(d) else "open"
    return MatrixCell(f"{d.size:+.1f}", tooltip, kind)


def reverse(d: Difference) -> Difference:
    """Returns the difference of the second row minus the first."""
    return d._replace(size=-d.size, low=-d.high, high=-d.low)


def interval(d: Difference) -> str:
    return f"{d.low:.2f} to {d.high:.2f}"


def significant(d: Difference) -> bool:
    return d.p is not None and d.p < LEVEL


def verdict(d: Difference) -> str:
    if d.p is None:
        return "not tested: one seed"
    return f"p = {d.p:.3g}" + ", not significant" * (not significant(d))
