"""Tests of significance: Welch's t over seeds, with the variance over sentences added."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

DRAWS = 1000


class Spread(NamedTuple):
    """Mean, sample standard deviation (nan for fewer than two values) and number of values."""

    mean: float
    deviation: float
    n: int


class Difference(NamedTuple):
    """The difference of two rows' means.

    Attributes:
      size: the row's mean minus base's.
      low, high: the ends of its confidence interval. The intervals of `corrected` differences
        contain all true differences with a probability of 95%, and those without 0 have p < 0.05.
      over: what the interval covers, "seeds and sentences"; "sentences" if a row has one seed.
      p: two-sided, of no difference; None if a row has one seed.
      error, freedom: the standard error of the difference and its degrees of freedom; nan if a row
        has one seed, or if neither seeds nor sentences vary, so that p is 1 whatever the size.
      tests: the number of tests that interval and p are corrected for.
      pooled: error and freedom with one variance over seeds for all rows; where it is given, p and
        interval are the wider ones of the two.
    """

    size: float
    low: float
    high: float
    over: str
    p: float | None
    error: float = math.nan
    freedom: float = math.nan
    tests: int = 1
    pooled: tuple[float, float] | None = None

    def corrected(self, tests: int) -> "Difference":
        """Returns the difference with the interval and the p of one of several tests."""
        if self.p is None or math.isnan(self.error):
            return self
        errors, freedoms = self._scales
        half = float((special.stdtrit(freedoms, 1 - 0.025 / tests) * errors).max())
        p = float(2 * special.stdtr(freedoms, -abs(self.size) / errors).max())
        low, high = self.size - half, self.size + half
        return self._replace(low=low, high=high, p=min(1.0, tests * p), tests=tests)

    @property
    def detectable(self) -> float:
        """The least true difference that the test finds with a probability of 80%."""
        errors, freedoms = self._scales
        critical = special.stdtrit(freedoms, 1 - 0.025 / self.tests)
        return float((special.nctdtrinc(freedoms, 0.2, critical) * errors).max())

    @property
    def _scales(self) -> np.ndarray:
        """The standard errors, and their degrees of freedom."""
        return np.array([(self.error, self.freedom), *([self.pooled] if self.pooled else [])]).T


def spread(values: Sequence[float]) -> Spread:
    """Returns the mean and deviation of a metric over seeds.

    Values of runs that nearly diverged, such as a perplexity of 1e200, count as infinite.
    """
    n = len(values)
    try:
        mean = math.fsum(values) / n
        squares = math.fsum((x - mean) ** 2 for x in values)
    except OverflowError:
        mean, squares = math.inf, math.nan
    return Spread(mean, math.sqrt(squares / (n - 1)) if n > 1 else math.nan, n)


def resampled(
    statistics: Sequence[np.ndarray], of_sums: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns a metric of resampled sentences, [seeds, DRAWS]; all rows and seeds share the draws.

    Args:
      statistics: the metric's statistics of the same sentences, [sentences, counts] of each seed.
      of_sums: the metric of sums [..., counts].
    """
    multiplicity = _multiplicity(len(statistics[0]))
    return np.array([of_sums(multiplicity @ counts) for counts in statistics])


@functools.lru_cache(maxsize=1)
def _multiplicity(n: int) -> np.ndarray:
    """Returns how often each draw contains each of n sentences, [DRAWS, n].

    The counts are floats: their matrix product is exact, and faster than a product of integers.
    """
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    return draws.astype(float)


def compare(
    row: Sequence[float],
    base: Sequence[float],
    row_draws: np.ndarray,
    base_draws: np.ndarray,
    pooled: tuple[float, float] | None = None,
) -> Difference:
    """Returns the difference of a row from base in the mean of a metric.

    The variance of the difference is that over seeds (Welch 1947) plus that over sentences (paired
    bootstrap, Koehn 2004). The variance over seeds already contains the interaction of seeds and
    sentences, so that part is subtracted from the bootstrap's variance. With one seed the variance
    over seeds is unknown: there is no p, and the interval is the bootstrap's. If all draws are
    equal, nothing is known about the sentences, and p is 1.

    If one row has more seeds, a difference must also be significant with the pooled variance.
    Welch's t then takes a row whose few seeds happen to be close together for as sure as base: in
    simulated tables of 3 seeds and 12 of base, up to 19% have a false star, and 3% with both
    (experiments/significance.py).

    Args:
      row, base: the metric of each seed.
      row_draws, base_draws: `resampled` of the same seeds.
      pooled: the variance over seeds of all rows of the table, and its degrees of freedom.
    """
    size = float(np.mean(row) - np.mean(base))
    differences = row_draws.mean(axis=0) - base_draws.mean(axis=0)
    n = np.array([len(row), len(base)])
    if n.min() == 1:
        low, high = np.quantile(differences, [0.025, 0.975])
        return Difference(size, float(low), float(high), "sentences", None)
    interaction = sum(_interaction(draws) / len(draws) for draws in (row_draws, base_draws))
    variances = np.array([np.var(row, ddof=1), np.var(base, ddof=1)])
    sentences = max(0.0, differences.var() - interaction)
    error, freedom = standard_error(variances, n, sentences)
    if pooled and n[0] != n[1]:
        variance, of_all = pooled
        pooled = float(standard_error(np.full(2, variance), n, sentences)[0]), of_all
    else:
        pooled = None
    ends, over = (min(0.0, 2 * size), max(0.0, 2 * size)), "seeds and sentences"
    if not (np.ptp(differences) and error):
        return Difference(size, *ends, over, 1.0)
    found = Difference(size, *ends, over, 1.0, float(error), float(freedom), pooled=pooled)
    return found.corrected(1)


def _interaction(draws: np.ndarray) -> float:
    """Returns the part of the variance over sentences that the seeds of a row do not share.

    Args:
      draws: the metric of each seed and draw, [seeds, DRAWS].
    """
    centred = draws - draws.mean(axis=1, keepdims=True)
    return float(centred.var(axis=0, ddof=1).mean())


def standard_error(
    variances: np.ndarray, n: np.ndarray, sentences: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the standard error of the difference of two means, and its degrees of freedom.

    The degrees of freedom are Satterthwaite's (1946). The variance over sentences counts as known,
    but does not raise them above the seeds' own: if few seeds happen to be close together, it
    would hide how uncertain their deviation is.

    Args:
      variances: sample variances over the seeds of both rows, [2, ...].
      n: numbers of seeds of both rows, [2, ...].
      sentences: variance of the difference over sentences [...].
    """
    squares = variances / n
    total = squares.sum(axis=0) + sentences
    with np.errstate(divide="ignore", invalid="ignore"):  # if all seeds are equal
        freedom = total**2 / (squares**2 / (n - 1)).sum(axis=0)
    return np.sqrt(total), np.fmin(freedom, (n - 1).sum(axis=0))


def p_value(size: Any, error: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Returns the two-sided p of a t statistic; 1 if its standard error is 0."""
    t = np.divide(-np.abs(size), error, out=np.zeros_like(error), where=error > 0)
    return 2 * special.stdtr(freedom, t)


def corrected(differences: Sequence[Difference]) -> list[Difference]:
    """Returns differences corrected for the number of those that are tested (Bonferroni).

    A p is multiplied by it, and an interval widened to match. Welch's t is an approximation, which
    Holm's procedure would use at the full 0.05: experiments/significance.py measures false stars.
    """
    tests = sum(x.p is not None for x in differences)
    return [x.corrected(tests) for x in differences]


def expected_least(values: np.ndarray) -> np.ndarray:
    """Returns the expected least of n of the values [N], drawn with replacement, for n of 1 to N.

    This is the expected best validation result of Dodge et al. (2019, "Show Your Work"), for a
    metric of which less is better.
    """
    N = len(values)
    n = np.arange(1, N + 1)[:, None]
    at_least = ((N - np.arange(N + 1)) / N) ** n  # P(least of n >= the i-th smallest), [n, i]
    return (at_least[:, :-1] - at_least[:, 1:]) @ np.sort(values)


def kendall(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns Kendall's tau-b [...] of x and y [..., rows]; nan where either is constant."""
    signs_x, signs_y = _orders(x), _orders(y)
    untied = (signs_x != 0).sum(axis=-1) * (signs_y != 0).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return (signs_x * signs_y).sum(axis=-1) / np.sqrt(untied)


def _orders(x: np.ndarray) -> np.ndarray:
    """Returns 1, 0 or -1 [..., pairs] for each pair of x [..., rows], which may be infinite."""
    first, second = np.triu_indices(x.shape[-1], k=1)
    a, b = x[..., first], x[..., second]
    return (a > b).astype(int) - (a < b)


def over_seeds(draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns means over seeds drawn with replacement, [DRAWS]: one draw per draw of sentences.

    Their deviations over seeds are enlarged by the factor sqrt(n / (n - 1)), without which the
    variance of a mean of few seeds would be too small, by half of it for two seeds.

    Args:
      draws: `resampled` of the seeds of a row, [seeds, DRAWS].
    """
    n, count = draws.shape
    drawn, mean = random.integers(n, size=(n, count)), draws.mean(axis=0)
    means = np.take_along_axis(draws, drawn, axis=0).mean(axis=0)
    return mean + (means - mean) * math.sqrt(n / max(1, n - 1))
