"""Which differences are significant: Welch's t over seeds, variance over sentences added."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

TIMES = 1000


class Spread(NamedTuple):
    """Mean, sample standard deviation (nan for fewer than two values) and number of values."""

    mean: float
    deviation: float
    n: int


class Difference(NamedTuple):
    """The difference of two rows' means.

    Attributes:
      size: the row's mean minus base's.
      low, high: the ends of its 95% interval.
      over: what the interval covers, "seeds and sentences"; "sentences" where a row has one seed.
      p: of no difference, two-sided; None where a row has one seed.
    """

    size: float
    low: float
    high: float
    over: str
    p: float | None


def spread(values: Sequence[float]) -> Spread:
    """Mean and deviation of a metric over seeds."""
    n = len(values)
    mean = math.fsum(values) / n
    squares = math.fsum((x - mean) ** 2 for x in values)
    return Spread(mean, math.sqrt(squares / (n - 1)) if n > 1 else math.nan, n)


def resampled(
    statistics: Sequence[np.ndarray], of_sums: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """A metric [seeds, TIMES] of sentences drawn anew; draw i is the same for every row and seed.

    Args:
      statistics: what the metric adds up of the same sentences, [sentences, counts] for each seed.
      of_sums: the metric of sums [..., counts].
    """
    weights = _weights(len(statistics[0]))
    return np.array([of_sums(weights @ counts) for counts in statistics])


@functools.lru_cache(maxsize=1)
def _weights(n: int) -> np.ndarray:
    """How often each draw has each of n sentences, [TIMES, n].

    As floats, whose product is faster than that of integers, and exact for counts.
    """
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=TIMES)
    return draws.astype(float)


def compare(
    row: Sequence[float], base: Sequence[float], row_draws: np.ndarray, base_draws: np.ndarray
) -> Difference:
    """How a row differs from base in the mean of a metric.

    A t statistic whose variance is that of the seeds (Welch 1947) plus that of the sentences
    (paired bootstrap, Koehn 2004). The variance over seeds already contains how each seed's luck
    with the sentences differs, so that part is subtracted from the bootstrap's variance. With one
    seed the variance over seeds is unknown: there is no p, and the interval is the bootstrap's.
    If no draw differs from another, nothing is known about the sentences: p is 1.

    Args:
      row, base: the metric of each seed.
      row_draws, base_draws: `resampled` of the same seeds.
    """
    size = float(np.mean(row) - np.mean(base))
    drawn = row_draws.mean(axis=0) - base_draws.mean(axis=0)
    n = np.array([len(row), len(base)])
    if n.min() == 1:
        low, high = np.quantile(drawn, [0.025, 0.975])
        return Difference(size, float(low), float(high), "sentences", None)
    of_seeds = sum(_of_one_seed(draws) / len(draws) for draws in (row_draws, base_draws))
    variances = np.array([np.var(row, ddof=1), np.var(base, ddof=1)])
    error, freedom = standard_error(variances, n, max(0.0, drawn.var() - of_seeds))
    half = float(special.stdtrit(freedom, 0.975) * error)
    p = float(p_value(size, error, freedom)) if np.ptp(drawn) else 1.0
    return Difference(size, size - half, size + half, "seeds and sentences", p)


def _of_one_seed(draws: np.ndarray) -> float:
    """Variance over sentences [seeds, TIMES] that the seeds of a row do not share."""
    centred = draws - draws.mean(axis=1, keepdims=True)
    return float(centred.var(axis=0, ddof=1).mean())


def standard_error(
    variances: np.ndarray, n: np.ndarray, sentences: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Standard error of the difference of two means, and its degrees of freedom.

    Satterthwaite's degrees of freedom (1946). The variance over sentences counts as known, but does
    not raise them above those of the seeds: where few seeds happen to lie close together, it would
    hide how uncertain their deviation is.

    Args:
      variances: over the seeds of either row, [2, ...].
      n: seeds of either row, [2, ...].
      sentences: variance of the difference over sentences [...].
    """
    squares = variances / n
    total = squares.sum(axis=0) + sentences
    with np.errstate(divide="ignore", invalid="ignore"):  # seeds that do not differ
        freedom = total**2 / (squares**2 / (n - 1)).sum(axis=0)
    return np.sqrt(total), np.fmin(freedom, (n - 1).sum(axis=0))


def p_value(size: Any, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Two-sided p of a t statistic; 1 where its standard error is 0."""
    t = np.divide(-np.abs(size), error, out=np.zeros_like(error), where=error > 0)
    return 2 * special.stdtr(freedom, t)


def corrected(p: Sequence[float | None]) -> list[float | None]:
    """p values times their number, at most 1 (Bonferroni); None, of no test, stays None.

    If those below 0.05 are taken for differences, the probability that any of them is false is at
    most 0.05, whichever rows differ. Holm's step down (1979) has a little more power, but tests the
    last row at 0.05 alone, where Welch's t, an approximation, is wrong in up to 7% of tables with
    two or three seeds; so it is if a table has one comparison only and one row's deviation is
    several times the other's. experiments/significance.py has the rates of both, of moderated and
    of pooled variances.
    """
    tests = sum(x is not None for x in p)
    return [None if x is None else min(1.0, tests * x) for x in p]
