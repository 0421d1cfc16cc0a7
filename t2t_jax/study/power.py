"""Power of the tests of a table, by simulated tables that are tested as real ones are."""

from typing import NamedTuple

import numpy as np

from t2t_jax.study.statistics import NO_PRIOR, half_width, prior, standard_error

COLUMNS = 2
CORRELATION = 0.65  # of the seeds of two columns: 0.35 to 0.86 in five stored studies
Margins = tuple[np.ndarray, np.ndarray]


class Noise(NamedTuple):
    """Deviations of a metric in a table."""

    deviations: np.ndarray  # over the seeds of each row, base first
    sentences: float  # of a difference from base, over sentences, which all seeds share


def margins(noise: Noise, seeds: tuple[int, int], tables: int, tests: int = 0) -> Margins:
    """Returns the differences from base in tables without any, and the least that has a star.

    Both have the shape [tables, COLUMNS, rows], base left out. Seeds are of each row, and of base.
    The table is corrected for this number of tests, or with 0 for one of each row in each column.
    """
    random, (row, base), rows = np.random.default_rng(0), seeds, len(noise.deviations)
    n = np.array([base, *[row] * (rows - 1)])

    def correlated(*shape: int) -> np.ndarray:
        shared = random.normal(size=(tables, 1, *shape))
        own = random.normal(size=(tables, COLUMNS, *shape))
        return CORRELATION**0.5 * shared + (1 - CORRELATION) ** 0.5 * own

    scores, drawn = noise.deviations[:, None] * correlated(rows, n.max()), np.arange(n.max())
    drawn = drawn < n[:, None]
    means = (scores * drawn).sum(axis=-1) / n
    variances = ((scores - means[..., None]) ** 2 * drawn).sum(axis=-1) / (n - 1)
    means += noise.sentences / 2**0.5 * correlated(rows)
    variance, freedom = (x[..., None] for x in prior(variances, n))
    both = np.stack([variances[..., 1:], np.broadcast_to(variances[..., :1], means[..., 1:].shape)])
    counts = np.array([row, base]).reshape(2, 1, 1, 1)
    priors = (variance, freedom), NO_PRIOR
    scales = [standard_error(both, counts, noise.sentences**2, x) for x in priors]
    return means[..., 1:] - means[..., :1], half_width(scales, tests or COLUMNS * (rows - 1))


def power(found: Margins, size: float) -> float:
    """Returns the share of differences of a size that have a star."""
    differences, least = found
    return float((abs(differences + size) > least).mean())


def detectable(found: Margins) -> float:
    """Returns the least difference that has a star in 80% of the tables, in the median row."""
    differences, least = found
    return float(np.median(np.quantile(least - differences, 0.8, axis=(0, 1))))
