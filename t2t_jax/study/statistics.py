"""Tests of significance: a moderated t over seeds, with the variance over sentences added.

A row differs from base if two tests say so (`Difference.corrected`). The first is a moderated t
(Smyth 2004): the variance over a row's few seeds is shrunk towards the variance of all rows. It is
corrected for all tests of the table (Bonferroni). As a row may vary more than the others, Welch's t
(1947), which knows the row and base alone, must agree, corrected for at most `OWN` tests.
experiments/significance.py measures false stars and power.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

DRAWS = 1000
OWN = 5
LEVEL = 0.05  # significance level of the corrected p
Prior = tuple[Any, Any]  # a variance and its degrees of freedom: numbers or arrays
NO_PRIOR: Prior = (0.0, 0.0)


class Spread(NamedTuple):
    """Mean, sample standard deviation (nan for fewer than two values) and number of values."""

    mean: float
    deviation: float
    n: int


class Difference(NamedTuple):
    """The difference of two rows' means, and its confidence interval.

    The intervals of `corrected` differences contain all true differences with a probability of 95%,
    and those without 0 have p < 0.05.
    """

    size: float  # the row's mean minus base's
    low: float
    high: float
    over: str  # what the interval covers, "seeds and sentences"; "sentences" if a row has one seed
    p: float | None  # two-sided, of no difference; None if a row has one seed
    # The standard error of the difference and its degrees of freedom, by the moderated t and by
    # Welch's; empty if a row has one seed, or if neither seeds nor sentences vary, so that p is 1
    # whatever the size.
    scales: tuple[tuple[float, float], ...] = ()
    tests: int = 1  # for which interval and p are corrected
    # None, or base's PPL (its geometric mean) if size and interval are of PPL. What is tested is
    # then the difference of its logarithm, in nats per token.
    base: float | None = None

    def corrected(self, tests: int) -> "Difference":
        """Returns the difference with the interval and the p of one of several tests."""
        if not self.scales:
            return self
        half = float(half_width(self.scales, tests))
        size = self.size if self.base is None else math.log1p(self.size / self.base)
        p = max(
            2 * k * special.stdtr(freedom, -abs(size) / error)
            for (error, freedom), k in zip(self.scales, _counts(tests), strict=True)
        )
        found = self._replace(size=size, low=size - half, high=size + half, p=min(1.0, float(p)))
        found = found._replace(tests=tests, base=None)
        return found if self.base is None else found.of_perplexity(self.base)

    def of_perplexity(self, base: float) -> "Difference":
        """Returns a difference of NLL per token as one of PPL, where base has this PPL."""
        size, low, high = (base * math.expm1(x) for x in self[:3])
        return self._replace(size=size, low=low, high=high, base=base)

    def reversed(self) -> "Difference":
        """Returns base's mean minus the row's."""
        return self._replace(size=-self.size, low=-self.high, high=-self.low)

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < LEVEL

    @property
    def detectable(self) -> float:
        """The least true difference that the tests find in 80% of the cases; of PPL in nats."""
        errors, freedoms = np.array(self.scales).T
        critical = special.stdtrit(freedoms, 1 - 0.025 / np.array(_counts(self.tests)))
        return float((special.nctdtrinc(freedoms, 0.2, critical) * errors).max())


@dataclass(frozen=True)
class Measure:
    """A metric of a row.

    There are no draws if the statistics of sentences were not kept or the model diverged, and there
    is no difference of base and of rows that are not comparable.
    """

    spread: Spread  # of the values
    values: tuple[float, ...]  # of each seed
    draws: np.ndarray | None = None  # of `resampled` sentences, [seeds, DRAWS]
    difference: Difference | None = None  # from base, corrected for all tests of the table

    @property
    def p(self) -> float | None:
        return self.difference.p if self.difference else None

    @property
    def significant(self) -> bool:
        return self.difference is not None and self.difference.significant


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
    """Returns how often each draw contains each of n sentences, [DRAWS, n]."""
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)
    return draws.astype(float)  # whose matrix product is exact, and faster than one of integers


def compare(
    row: Sequence[float],
    base: Sequence[float],
    row_draws: np.ndarray,
    base_draws: np.ndarray,
    prior: Prior = NO_PRIOR,
) -> Difference:
    """Returns the difference of a row from base in the mean of a metric.

    The variance of the difference is that over seeds plus that over sentences (paired bootstrap,
    Koehn 2004). The variance over seeds already contains the interaction of seeds and sentences, so
    that part is subtracted from the bootstrap's variance. With one seed the variance over seeds is
    unknown: there is no p, and the interval is the bootstrap's. If all draws are equal, nothing is
    known about the sentences, and p is 1.

    Args:
      row, base: the metric of each seed.
      row_draws, base_draws: `resampled` of the same seeds.
      prior: `prior` of the rows of the table; without one, both tests are Welch's.
    """
    size = float(np.mean(row) - np.mean(base))
    differences = row_draws.mean(axis=0) - base_draws.mean(axis=0)
    n = np.array([len(row), len(base)])
    if n.min() == 1:
        low, high = np.quantile(differences, [0.025, 0.975])
        return Difference(size, float(low), float(high), "sentences", None)
    centred = [x - x.mean(axis=1, keepdims=True) for x in (row_draws, base_draws)]
    interaction = sum(x.var(axis=0, ddof=1).mean() / len(x) for x in centred)
    variances = np.array([np.var(row, ddof=1), np.var(base, ddof=1)])
    sentences = max(0.0, differences.var() - interaction)
    found = Difference(size, min(0.0, 2 * size), max(0.0, 2 * size), "seeds and sentences", 1.0)
    if not (np.ptp(differences) and variances.any() | (sentences > 0)):
        return found
    scales = [standard_error(variances, n, sentences, x) for x in (prior, NO_PRIOR)]
    return found._replace(scales=tuple((float(x), float(y)) for x, y in scales)).corrected(1)


def prior(variances: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the variance that rows have in common [...], and its degrees of freedom for each.

    The variance is pooled. Its degrees of freedom d follow from how far the logarithms of the
    variances are apart (Smyth 2004, section 6.2): trigamma(d / 2) is their variance minus what the
    few seeds explain. Its upper bound is taken here, with a confidence of 75%: few rows do not show
    well how much they differ, and too large a d would mark differences that do not exist. It is 0
    if a row's seeds are all equal.

    Args:
      variances: sample variances over the seeds of each row, [..., rows].
      n: numbers of seeds, [rows].
    """
    d, rows = n - 1, len(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(variances) - special.digamma(d / 2) + np.log(d / 2)
        bound = logs.var(axis=-1) * rows / special.chdtri(rows - 1, 0.75)
        apart = np.fmax(bound - special.polygamma(1, d / 2).mean(), 0.02)
    freedom = (1 + np.sqrt(1 + 2 * apart)) / apart  # trigamma(x) is about 1 / x + 1 / (2 x^2)
    return np.average(variances, axis=-1, weights=d), np.where(variances.all(-1), freedom, 0)


def standard_error(
    variances: np.ndarray, n: np.ndarray, sentences: float | np.ndarray, prior: Prior = NO_PRIOR
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the standard error of the difference of two means, and its degrees of freedom.

    The degrees of freedom over seeds are Satterthwaite's (1946). The variance over sentences counts
    as known and raises them, but only in proportion, and not above the seeds' own. By Satterthwaite
    they would grow with its square: if few seeds happen to be close together, that would hide how
    uncertain their deviation is.

    Args:
      variances: sample variances over the seeds of both rows, [2, ...].
      n: numbers of seeds of both rows, [2, ...].
      sentences: variance of the difference over sentences [...].
      prior: a variance towards which the rows' variances are shrunk, and its degrees of freedom.
    """
    d = n - 1 + prior[1]
    squares = ((n - 1) * variances + prior[1] * prior[0]) / d / n
    seeds = squares.sum(axis=0)
    total = seeds + sentences
    with np.errstate(divide="ignore", invalid="ignore"):  # if all seeds are equal
        freedom = seeds * total / (squares**2 / d).sum(axis=0)
    return np.sqrt(total), np.fmin(freedom, d.sum(axis=0))


def _counts(tests: int) -> tuple[int, int]:
    """Returns the number of tests that each of the two tests is corrected for."""
    return tests, min(tests, OWN)


def half_width(scales: Sequence[Any], tests: int) -> np.ndarray:
    """Returns half the width of corrected intervals: the least difference that is significant."""
    both = zip(scales, _counts(tests), strict=True)
    widths = [special.stdtrit(freedom, 1 - 0.025 / k) * error for (error, freedom), k in both]
    return np.asarray(np.max(widths, axis=0))


def kendall(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns Kendall's tau-b [...] of x and y [..., rows]; nan where either is constant."""
    i, j = np.triu_indices(y.shape[-1], k=1)
    signs_x, signs_y = (
        (z[..., i] > z[..., j]).astype(int) - (z[..., i] < z[..., j]) for z in (x, y)
    )
    untied = (signs_x != 0).sum(axis=-1) * (signs_y != 0).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return (signs_x * signs_y).sum(axis=-1) / np.sqrt(untied)


def over_seeds(draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns means over seeds drawn with replacement, [DRAWS]: one draw per draw of sentences.

    Their deviations over seeds are enlarged by the factor sqrt(n / (n - 1)), without which the
    variance of a mean of few seeds would be too small, by half of it for two seeds. `draws` are
    `resampled` of the seeds of a row, [seeds, DRAWS].
    """
    n, count = draws.shape
    drawn, mean = random.integers(n, size=(n, count)), draws.mean(axis=0)
    means = np.take_along_axis(draws, drawn, axis=0).mean(axis=0)
    return mean + (means - mean) * math.sqrt(n / max(1, n - 1))
