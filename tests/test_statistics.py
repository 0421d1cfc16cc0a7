"""Deviation, bootstrap and significance of differences, against independent computations."""

import math
import statistics as standard

import numpy as np
import pytest
import sacrebleu
from scipy import stats

from experiments import significance
from t2t_jax.evaluation.bleu import of_sums, sentence_statistics
from t2t_jax.study.power import Noise, margins, power
from t2t_jax.study.statistics import (
    DRAWS,
    OWN,
    Difference,
    compare,
    half_width,
    prior,
    resampled,
    spread,
    standard_error,
)

WORDS = "the a cat dog house sees runs , . red old and".split()


def sentences(seed, n=83):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(n)]


def worse(lines, seed, share):
    """Lines with a share of their words replaced."""
    rng = np.random.default_rng(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < share else w for w in line.split())
        for line in lines
    ]


REFERENCES = sentences(0)


def counts(share, seed=1):
    return np.array(sentence_statistics(worse(REFERENCES, seed, share), REFERENCES))


def test_spread():
    values = [24.1, 25.3, 24.9]
    found = spread(values)
    assert found.mean == pytest.approx(standard.mean(values))
    assert found.deviation == pytest.approx(standard.stdev(values))
    assert found.n == 3
    assert math.isnan(spread([1.0]).deviation)
    for values in ([1e200, 5.0], [1e308, 1e308]):  # perplexities of runs that nearly diverged
        assert spread(values).mean == math.inf
        assert math.isnan(spread(values).deviation)


def test_a_draw_is_the_bleu_of_the_sentences_drawn():
    hypotheses = worse(REFERENCES, 3, 0.3)
    drawn = resampled([np.array(sentence_statistics(hypotheses, REFERENCES))], of_sums)
    n = len(REFERENCES)
    times = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)[7]
    h = [x for x, k in zip(hypotheses, times, strict=True) for _ in range(k)]
    r = [x for x, k in zip(REFERENCES, times, strict=True) for _ in range(k)]
    assert drawn[0, 7] == pytest.approx(sacrebleu.corpus_bleu(h, [r]).score)


def difference(row, base):
    scores = [[of_sums(s.sum(axis=0)) for s in seeds] for seeds in (row, base)]
    return compare(*scores, resampled(row, of_sums), resampled(base, of_sums))


def test_large_differences_are_told_from_chance():
    base = [counts(0.2, s) for s in range(3)]
    assert difference([counts(0.2, s) for s in range(3, 6)], base).p > 0.05
    far = difference([counts(0.4, s) for s in range(3, 6)], base)
    assert far.p < 0.01
    assert far.low < far.size < far.high < 0
    assert far.over == "seeds and sentences"


def test_one_seed_has_an_interval_over_sentences_and_no_p():
    one, two = [counts(0.4)], [counts(0.2, s) for s in range(2)]
    for row, base in ((one, one[:]), (one, two), (two, one)):
        found = difference(row, base)
        assert found.p is None
        assert found.over == "sentences"
    drawn = resampled(one, of_sums)[0] - resampled(two, of_sums).mean(axis=0)
    found = difference(one, two)
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]))


def test_without_variance_over_sentences_it_is_welchs_test():
    random = np.random.default_rng(0)
    for n in ((2, 2), (3, 5), (10, 2)):
        row, base = (random.normal(30, s, k) for s, k in zip((0.3, 4), n, strict=True))
        variances = np.array([row.var(ddof=1), base.var(ddof=1)])
        error, freedom = standard_error(variances, np.array(n), 0.0)
        expected = stats.ttest_ind(row, base, equal_var=False)
        scales = ((error, freedom),) * 2
        found = Difference(row.mean() - base.mean(), 0, 0, "", 1.0, scales).corrected(1)
        assert found.p == pytest.approx(expected.pvalue)
        interval = expected.confidence_interval()
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
        assert 2 * half_width(scales, 1) == pytest.approx(interval.high - interval.low)


def test_the_variance_is_that_of_seeds_and_of_what_they_share_of_the_sentences():
    """Of draws with known parts: shared by all rows 2^2, by a row's seeds 0.5^2, by none 0.8^2."""
    random, n = np.random.default_rng(0), (4, 3)
    shared = 2 * random.normal(size=DRAWS)
    draws = [
        shared + 0.5 * random.normal(size=DRAWS) + 0.8 * random.normal(size=(k, DRAWS)) for k in n
    ]
    row, base = random.normal(30, 1, n[0]), random.normal(25, 2, n[1])
    found = compare(row, base, *draws)
    variances = np.array([row.var(ddof=1), base.var(ddof=1)])
    error, freedom = standard_error(variances, np.array(n), 2 * 0.5**2)
    half = stats.t.ppf(0.975, freedom) * error
    assert found.high - found.low == pytest.approx(2 * half, rel=0.02)
    p = 2 * stats.t.sf(abs(found.size) / error, freedom)
    assert found.p == pytest.approx(p, rel=0.1)


def test_draws_that_never_vary_show_no_difference():
    """Nor do seeds without deviation: neither says how large a difference is by chance."""
    row, base = [0.0525, 0.0526, 0.0525], [0.0518, 0.0518, 0.0519]
    still = np.zeros((3, DRAWS))
    found = compare(row, base, still, still + 1)
    assert found.p == 1
    assert found.low <= 0 <= found.high
    drawn = np.random.default_rng(0).normal(size=(3, DRAWS))
    assert compare([5.0] * 3, [9.0] * 3, drawn, drawn[::-1] + still).p == 1


def test_p_and_intervals_are_corrected_for_the_number_of_tests_and_agree():
    one_seed = Difference(9.0, 8.0, 10.0, "sentences", None)
    scales = ((0.5, 3.3), (0.4, 2.9))
    made = [Difference(size, 0, 0, "", 1.0, scales) for size in (-2.2, 0.4, 1.9)]
    assert one_seed.corrected(3) == one_seed
    for x in (x.corrected(3) for x in made):
        p = max(3 * 2 * stats.t.sf(abs(x.size) / error, freedom) for error, freedom in scales)
        assert x.p == pytest.approx(min(1, p))
        half = max(stats.t.ppf(1 - 0.025 / 3, freedom) * error for error, freedom in scales)
        assert (x.low, x.high) == pytest.approx((x.size - half, x.size + half))
    every = [Difference(size, 0, 0, "", 1.0, scales) for size in np.linspace(-4, 4, 400)]
    for x in (x.corrected(400) for x in every):
        assert x.significant == (x.p < 0.05) == (x.low > 0 or x.high < 0)


@pytest.mark.parametrize(("freedom", "tests"), [(2.0, 1), (2.0, 40), (9.5, 40)])
def test_four_of_five_differences_of_the_detectable_size_are_found(freedom, tests):
    rng = np.random.default_rng(0)
    least = Difference(0.0, 0, 0, "", 1.0, ((0.7, freedom), (1e-6, freedom)), tests).detectable
    errors = 0.7 * np.sqrt(rng.chisquare(freedom, 20_000) / freedom)
    sizes = least + 0.7 * rng.normal(size=20_000)
    found = 2 * tests * stats.t.sf(np.abs(sizes) / errors, freedom) < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    "seeds", [(3, 12), *(pytest.param(x, marks=pytest.mark.full) for x in ((3, 3), (5, 20)))]
)
def test_few_tables_without_a_difference_have_a_star(seeds):
    """The rates that experiments/significance.py has more exactly, within 3 standard errors."""
    tables = 1000
    bound = significance.MOST + 3 * math.sqrt(significance.MOST * 0.95 / tables)
    for name, deviations in significance.scenes().items():
        for sentences in significance.SENTENCES:
            drawn = margins(Noise(deviations, sentences), seeds, tables)
            assert significance.false_stars(drawn) < bound, name


def test_more_seeds_of_base_alone_find_more_differences():
    deviations = significance.scenes()["equal"]
    three, more, five = (
        power(margins(Noise(deviations, 0.6), seeds, 300), 3.0)
        for seeds in ((3, 3), (3, 12), (5, 20))
    )
    assert 1.5 * three < more < five


def test_the_prior_is_the_pooled_variance_and_counts_less_where_variances_differ():
    random, n = np.random.default_rng(0), np.array([12, *[3] * 19])
    equal = 0.8**2 * random.chisquare(n - 1, size=(400, 20)) / (n - 1)
    variance, freedom = prior(equal, n)
    pooled = [sum((n - 1) * x) / sum(n - 1) for x in equal]
    assert variance == pytest.approx(pooled)
    assert np.median(freedom) > 4
    _, less = prior(equal * 4.0 ** np.arange(20), n)
    assert np.median(less) < 0.3
    assert prior(np.array([1.0, 0.0, 2.0]), n[:3])[1] == 0


def test_the_prior_makes_few_seeds_surer_and_a_row_that_varies_more_must_stand_its_own_test():
    random = np.random.default_rng(0)
    row, base = random.normal(2, 0.3, 3), random.normal(0, 0.4, 12)
    draws = random.normal(size=DRAWS) + 0.1 * random.normal(size=(12, DRAWS))
    found = compare(row, base, draws[:3], draws, (0.5, 10.0)).corrected(38)
    a, b = (((len(x) - 1) * x.var(ddof=1) + 10 * 0.5) / (len(x) + 9) / len(x) for x in (row, base))
    freedom = (a + b) ** 2 / (a**2 / 12 + b**2 / 21)
    p = 38 * 2 * stats.t.sf(found.size / math.sqrt(a + b), freedom)
    own = stats.ttest_ind(row, base, equal_var=False).pvalue
    assert found.p == pytest.approx(max(p, OWN * own), rel=0.05)
    assert p > OWN * own  # and the other way round with a prior that is too sure
    sure = compare(row, base, draws[:3], draws, (0.001, 1000.0)).corrected(38)
    assert sure.p == pytest.approx(OWN * own, rel=0.05)


def test_perplexity_is_tested_by_its_logarithm():
    row, base = np.log([5.2, 5.3, 5.1]), np.log([4.7, 4.8, 4.75])
    draws = 0.01 * np.random.default_rng(0).normal(size=(3, DRAWS))
    nats = compare(row, base, draws, draws[::-1]).corrected(5)
    found = compare(row, base, draws, draws[::-1]).of_perplexity(np.exp(base.mean())).corrected(5)
    assert found.p == pytest.approx(nats.p)
    geometric = [np.exp(x.mean()) for x in (row, base)]
    assert found.size == pytest.approx(geometric[0] - geometric[1])
    assert found.low == pytest.approx(geometric[1] * (np.exp(nats.low) - 1))
    assert found.detectable == pytest.approx(nats.detectable)
