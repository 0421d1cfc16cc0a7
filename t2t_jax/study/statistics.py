"""Which differences are real: deviation over seeds, paired bootstrap over sentences and seeds."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

TIMES = 1000


class Spread(NamedTuple):
    """Mean, sample standard deviation (nan for fewer than two values) and number of values."""

    mean: float
    deviation: float
    n: int


class Difference(NamedTuple):
    """Of two rows in their mean: its size, its 95% interval, and p of no difference (two-sided).

    `deviation` is that of the draws.
    """

    size: float
    low: float
    high: float
    p: float
    deviation: float

    @property
    def normal_p(self) -> float:
        """p as if the draws were normal: for more comparisons than draws can tell apart."""
        if not self.deviation:
            return 0.0 if self.size else 1.0
        return math.erfc(abs(self.size) / self.deviation / math.sqrt(2))


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

    Paired bootstrap (Koehn 2004) over sentences. A difference between trained models is also one
    between seeds: K - 1 of K are drawn anew, which makes the variance of their mean unbiased (Rao
    and Wu 1988). A single seed tells nothing of the others.

    Args:
      row, base: the metric of each seed.
      row_draws, base_draws: `resampled` of the same seeds.
    """
    random = np.random.default_rng(1)

    def mean(draws: np.ndarray) -> np.ndarray:
        chosen = random.integers(len(draws), size=(max(1, len(draws) - 1), TIMES))
        return np.take_along_axis(draws, chosen, axis=0).mean(axis=0)

    size = float(np.mean(row) - np.mean(base))
    drawn = mean(row_draws) - mean(base_draws)
    by_chance = np.abs(drawn - drawn.mean()) >= abs(size)
    low, high = np.quantile(drawn, [0.025, 0.975])
    p = float((by_chance.sum() + 1) / (TIMES + 1))
    return Difference(size, float(low), float(high), p, float(drawn.std()))


def holm(p: Sequence[float]) -> list[float]:
    """p values corrected for being many (Holm 1979): below 0.05, all such differences are real
    with 95% confidence."""
    order = np.argsort(p)
    factors = np.arange(len(p), 0, -1)
    corrected = np.minimum(1, np.maximum.accumulate(np.asarray(p)[order] * factors))
    out = np.empty(len(p))
    out[order] = corrected
    return out.tolist()
