"""Agreement with the paper, as tau and signs of rows; and quality against distance."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from t2t_jax.study import agreement, comparison, distances, statistics
from t2t_jax.study.declaration import Row
from tests import stored


@pytest.mark.parametrize("seed", range(5))
def test_kendalls_tau_is_scipys_with_and_without_ties(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 9, (3, 4, 11)).astype(float), rng.integers(0, 7, 11).astype(float)
    actual = statistics.kendall(x, y)
    for i, j in np.ndindex(3, 4):
        assert actual[i, j] == pytest.approx(stats.kendalltau(x[i, j], y).statistic)
    assert np.isnan(statistics.kendall(np.ones(11), y))


def test_means_over_seeds_are_of_seeds_drawn_with_replacement():
    draws = np.array([[0.0], [10.0], [20.0]]).repeat(20_000, axis=1)
    means = statistics.over_seeds(draws, np.random.default_rng(0))
    assert means.mean() == pytest.approx(10, abs=0.1)
    assert means.std() == pytest.approx(np.std([0, 10, 20], ddof=1) / np.sqrt(3), rel=0.02)


ROWS = (  # the paper's PPL, and ours of two seeds
    (Row("base", {}, dict(PPL=5.0)), (5.00, 5.02)),
    (Row("A", dict(h=1), dict(PPL=5.3)), (6.00, 6.02)),
    (Row("A", dict(h=4), dict(PPL=5.05)), (7.00, 7.02)),  # the paper does not separate it from base
    (Row("C", dict(N=2), dict(PPL=6.1)), (4.00, 4.02)),  # the wrong sign
    (Row("C", dict(N=8), dict(PPL=4.9)), (4.99, 5.05)),  # no significant difference
    (Row("big", dict(h=16), dict(PPL=4.3)), (3.00, 3.02)),
    (Row("E", dict(h=2)), (1.00, 1.02)),  # no value in the paper
)


def lines(sentences=True, seeds=2):
    made = []
    for row, values in ROWS:
        runs = [run_of(value, seed, sentences) for seed, value in enumerate(values[:seeds])]
        made.append(dataclasses.replace(ENTRY, row=row, runs=tuple(runs)))
    return made


ENTRY = stored.entries(1)[0]


def run_of(PPL, seed=0, sentences=True):
    likelihood = [[float(np.log(PPL)), 1]] * 50 if sentences else ()
    result = ENTRY.runs[0].result | {"dev_perplexity": PPL}
    return dataclasses.replace(ENTRY.runs[0], seed=seed, result=result, likelihood=likelihood)


def agreements(entries, metrics=()):
    grid = dataclasses.replace(stored.grid(), metrics=metrics)
    return agreement.agreements(grid, comparison.compare_with_base(grid, entries))


def jittered(entries):
    """Sentences differ, so that draws do: without any spread nothing is known about them."""
    rng, noise = np.random.default_rng(0), None
    for entry in entries:
        runs = []
        for run in entry.runs:
            likelihood = np.array(run.likelihood)
            noise = rng.normal(0, 1e-3, len(likelihood)) if noise is None else noise
            likelihood[:, 0] += noise * likelihood[:, 0]
            runs.append(dataclasses.replace(run, likelihood=likelihood.tolist()))
        yield dataclasses.replace(entry, runs=tuple(runs))


PAPER = [row.paper["PPL"] for row, _ in ROWS[:-1]]


def test_tau_is_of_the_rows_that_have_a_value_in_both_tables():
    found, *_ = agreements(list(jittered(lines())))
    ours = [np.mean(values) for _, values in ROWS[:-1]]
    assert found.metric == "PPL"
    assert found.tau == pytest.approx(stats.kendalltau(PAPER, ours).statistic)
    assert found.low <= found.tau <= found.high


def simulated(rng, n, noise, rows=20):
    """Returns points of a table with n seeds, the paper's values and the tau without any noise."""
    paper = rng.normal(size=rows)
    true = 0.8 * paper + 0.6 * rng.normal(size=rows)
    values = true + 0.2 * rng.normal(size=rows) + noise * rng.normal(size=(n, rows))
    sentences = 0.2 * rng.normal(size=(1, 200, rows))
    made = zip(values.T, sentences.transpose(2, 0, 1), strict=True)
    measures = [statistics.Measure(statistics.spread(x), (*x,), x[:, None] + y) for x, y in made]
    points = [agreement.Point(None, measure, 0, 0) for measure in measures]
    return points, paper, stats.kendalltau(true, paper).statistic


def test_the_interval_of_tau_covers_the_tau_of_a_table_without_noise():
    rng, covered = np.random.default_rng(0), {2: 0, 3: 0}
    for n in covered:
        for _ in range(60):
            points, paper, tau = simulated(rng, n, 0.5)
            low, high = agreement._interval(points, paper)
            covered[n] += low <= tau <= high
    assert min(covered.values()) >= 56  # of 60; over seeds and sentences alone about 40
    alone, paper, _ = simulated(rng, 1, 0.5)
    assert agreement._interval(alone, paper) == (None, None)


def test_accuracies_agree_with_those_of_a_paper():
    entries = [
        dataclasses.replace(entry, row=Row("x", paper=dict(accuracy=accuracy)))
        for entry, accuracy in zip(stored.entries(3), (90.0, 80.0, 70.0), strict=True)
    ]
    made = comparison.compare_with_base(stored.grid(), entries)
    column = [(line, line.score, line.row.paper["accuracy"]) for line in made]
    assert agreement._agreement("accuracy", column).pairs == 3


def test_signs_and_pairs_are_of_rows_that_both_tables_separate():
    found, *_ = agreements(list(jittered(lines())))
    assert [p.line.row.group for p in found.separated] == ["A", "C", "big"]
    assert [p.line.row.name for p in found.same_sign] == ["A:h=1", "big"]
    assert "(not C:N=2)" in agreement.sentence(found)
    values = [(row.paper["PPL"], np.mean(ours)) for row, ours in ROWS[:-1]]
    pairs = [(a, b) for i, a in enumerate(values) for b in values[:i] if abs(a[0] - b[0]) > 0.09]
    ordered = [1 for a, b in pairs if (a[0] > b[0]) == (a[1] > b[1])]
    assert (found.pairs, found.ordered) == (len(pairs), len(ordered)) == (14, 8)


def test_runs_without_the_likelihoods_of_sentences_have_a_tau_without_an_interval():
    found, *_ = agreements(lines(sentences=False, seeds=1))
    assert (found.low, found.high) == (None, None)
    text = agreement.sentence(found)
    assert "interval" not in text
    assert "; 3 of 4 rows" in text


def test_tables_without_values_of_the_paper_or_differences_have_no_agreement():
    without = [dataclasses.replace(e, row=dataclasses.replace(e.row, paper={})) for e in lines()]
    assert agreements(without) == []
    base, *others = lines()
    assert {x.metric for x in agreements(lines(), ("PPL",))} == {"PPL"}
    other = [dataclasses.replace(run, origins={"vocabulary": "another"}) for run in others[0].runs]
    found, *_ = agreements([base, dataclasses.replace(others[0], runs=tuple(other)), *others[1:]])
    assert len(found.points) == len(PAPER) - 1  # without the row of other subwords
    unusual = tuple(dataclasses.replace(run, unusual="data another") for run in base.runs)
    assert agreements([dataclasses.replace(base, runs=unusual), *others]) == []
    equal = [dataclasses.replace(entry, runs=(run_of(2.5),)) for entry in lines()]
    assert "PPL" not in [x.metric for x in agreements(equal)]


def test_rows_that_diverged_have_a_rank_but_no_interval():
    entries = list(jittered(lines()))
    for i in (2, 5):  # they are equal to each other
        entries[i] = dataclasses.replace(entries[i], runs=(run_of(np.inf), run_of(np.inf, 1)))
    found, *_ = agreements(entries)
    ours = [1e9 if i in (2, 5) else np.mean(values) for i, (_, values) in enumerate(ROWS[:-1])]
    assert found.tau == pytest.approx(stats.kendalltau(PAPER, ours).statistic)
    assert found.low is None


def test_parts_are_ordered_by_value_and_keep_equal_values_together():
    values = np.array([5, 1, 1, 9, 1, 1, 1, 1, 2, 7, 30, 2])
    divided = distances.parts(values)
    assert sorted(np.concatenate(divided)) == list(range(12))
    tops = [values[part].max() for part in divided]
    assert tops == sorted(set(tops))
    for part, after in itertools.pairwise(divided):
        assert values[part].max() < values[after].min()
    assert set(values[divided[0]]) == {1}


def test_a_curve_over_all_sentences_equals_the_score():
    entry = stored.entries()[0]
    everything = np.arange(len(entry.runs[0].statistics))
    assert distances.curve(entry, [everything])[0] == pytest.approx(entry.runs[0].score, abs=1e-6)
    halves = distances.curve(entry, [everything[:500], everything[500:]])
    assert min(halves) < entry.runs[0].score < max(halves)


def test_every_row_has_a_curve_of_its_own(tmp_path):
    lines, split = stored.compared(stored.grid()), stored.split(tmp_path)
    by_dependency, by_length = distances.curves(lines, split, comparison.ALL)
    assert [n for _, n in by_length.parts] == [500, 500]
    assert sum(n for _, n in by_dependency.parts) == stored.N
    halves = [np.arange(500), np.arange(500, 1000)]
    for line in lines:
        assert by_length.rows[line.row.name] == distances.curve(line, halves)
    assert len({tuple(values) for values in by_dependency.rows.values()}) == len(lines)
    tuned = dataclasses.replace(stored.grid(), sweep={"lr_scale": (1.0, 2.0)})
    by_dependency, by_length = distances.curves(lines, split, comparison.scored_part(tuned))
    assert [n for _, n in by_length.parts] == [250, 250]
    odd = [np.arange(1, 500, 2), np.arange(501, 1000, 2)]  # the others chose the values
    assert by_length.rows[lines[1].row.name] == distances.curve(lines[1], odd)
    lines[1] = dataclasses.replace(lines[1], measures={})
    short = dataclasses.replace(lines[2].runs[0], statistics=lines[2].runs[0].statistics[:9])
    (by_dependency, _) = distances.curves(
        [*lines, dataclasses.replace(lines[2], runs=(short,))], split, comparison.ALL
    )
    assert list(by_dependency.rows) == [lines[0].row.name, lines[2].row.name]
