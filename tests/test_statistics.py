"""Deviation, paired bootstrap and Holm's correction, against independent computations."""

import math
import statistics as standard

import numpy as np
import pytest
import sacrebleu

from t2t_jax.evaluation.bleu import of_sums, sentence_statistics
from t2t_jax.study.statistics import TIMES, compare, holm, resampled, spread

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


def test_summed_statistics_are_corpus_bleu():
    for share in (0.1, 0.4):
        hypotheses = worse(REFERENCES, 2, share)
        wanted = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
        found = np.array(sentence_statistics(hypotheses, REFERENCES)).sum(axis=0)
        assert of_sums(found) == pytest.approx(wanted, abs=1e-9)


def test_a_draw_is_the_bleu_of_the_sentences_drawn():
    hypotheses = worse(REFERENCES, 3, 0.3)
    drawn = resampled([np.array(sentence_statistics(hypotheses, REFERENCES))], of_sums)
    n = len(REFERENCES)
    times = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=TIMES)[7]
    h = [x for x, k in zip(hypotheses, times, strict=True) for _ in range(k)]
    r = [x for x, k in zip(REFERENCES, times, strict=True) for _ in range(k)]
    assert drawn[0, 7] == pytest.approx(sacrebleu.corpus_bleu(h, [r]).score)


def difference(row, base):
    scores = [[of_sums(s.sum(axis=0)) for s in seeds] for seeds in (row, base)]
    return compare(*scores, resampled(row, of_sums), resampled(base, of_sums))


def test_real_differences_are_told_from_chance():
    base = [counts(0.2)]
    assert difference([counts(0.2, seed=9)], base).p > 0.05
    far = difference([counts(0.4)], base)
    assert far.p < 0.01
    assert far.low < far.size < far.high < 0


def test_p_is_rarely_small_where_nothing_differs():
    p = [difference([counts(0.2, 2 * i)], [counts(0.2, 2 * i + 1)]).p for i in range(20)]
    assert sum(x < 0.05 for x in p) <= 4


def test_seeds_that_differ_much_make_a_difference_less_real():
    close, far = [counts(0.2, s) for s in range(3)], [counts(x) for x in (0.1, 0.2, 0.3)]
    base = [counts(0.26, s) for s in range(3, 6)]
    assert difference(close, base).p < difference(far, base).p


def test_the_interval_is_as_wide_as_the_deviation_of_means():
    """Sentences that never differ leave the seeds alone: K - 1 draws give s^2 / K, unbiased."""
    rng = np.random.default_rng(0)
    row, base = rng.normal(30, 2, 4), rng.normal(25, 2, 4)
    drawn = [np.repeat(x[:, None], TIMES, axis=1) for x in (row, base)]
    found = compare(row, base, *drawn)
    wanted = math.sqrt(row.var(ddof=1) / 4 + base.var(ddof=1) / 4)
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(wanted, rel=0.08)


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []
