"""Factorial studies: their rows, and their effects against formulas of a 2 x 2 table."""

import dataclasses

import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.errors import UsageError
from t2t_jax.report.study import study_page
from t2t_jax.study import comparison, cross, factorial, formats, presets, study
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import Measure, Spread, spread
from tests import stored


@study("Heads and width", columns="h d_model", split="dev", V=9)
def heads():
    return cross(h=[4, 8], d_model=[512, 256])


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return Grid(heads, presets.preset("demo"), heads.rows, {}, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def lines(grid):
    """The rows with the runs of four rows of the demo; the second has those of two seeds."""
    runs = [entry.runs for entry in stored.entries(rows=5)]
    runs = [runs[0], (*runs[1], *runs[4]), runs[2], runs[3]]
    entries = [RowResult(r, grid.config(r), x, "") for r, x in zip(grid.rows, runs, strict=True)]
    return comparison.compare_with_base(grid, entries)


def test_rows_are_every_combination_with_base_first():
    rows = cross(h=[1, 4, 8], d_model=[256, 512])
    assert rows[0].name == "base"
    assert rows[0].changes == {"h": 8, "d_model": 512}
    assert [row.name for row in rows[1:]] == [
        *(f"A:h={h},d_model={d}" for h, d in [(1, 256), (1, 512), (4, 256), (4, 512), (8, 256)])
    ]
    first, *_ = cross(norm=["rms_norm", "none"], P_drop=[0.3, 0.1, 0.2])
    assert first.changes == {"norm": "rms_norm", "P_drop": 0.1}


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"h": [1]}, "two values or more"),
        ({"h": [1, 8, 1]}, "each once"),
        ({"hh": [1, 2]}, "no config field 'hh'"),
    ],
)
def test_a_field_needs_different_values(levels, message):
    with pytest.raises(UsageError, match=message):
        cross(**levels)


def test_a_field_may_follow_from_the_others():
    width = lambda row: row["d_model"] // row["h"]  # noqa: E731
    rows = cross(d_k=width, h=[1, 8], d_model=[256, 512], d_v=lambda row: 2 * width(row))
    assert rows[0].changes == dict(h=8, d_model=512, d_k=64, d_v=128)
    assert {(*row.changes.values(),) for row in rows} == {
        (1, 256, 256, 512), (1, 512, 512, 1024), (8, 256, 32, 64), (8, 512, 64, 128)
    }  # fmt: skip


def test_only_fields_that_do_not_follow_from_others_are_factors(grid, lines):
    """Here d_ff and the number of parameters follow from d_model."""

    def wider(x):
        d_ff = 4 * config.flatten(x.c)["d_model"]
        row = dataclasses.replace(x.row, changes={**x.row.changes, "d_ff": d_ff})
        results = ({**run.result, "parameters": d_ff} for run in x.runs)
        runs = [dataclasses.replace(a, result=b) for a, b in zip(x.runs, results, strict=True)]
        return dataclasses.replace(x, row=row, c=config.replace(x.c, d_ff=d_ff), runs=runs)

    wide = [*map(wider, lines)]
    crossed = factorial.factorial(grid, wide)
    assert [*crossed.levels] == ["h", "d_model"]
    assert "follow d_ff" in crossed.note
    assert crossed.note.endswith("The number of parameters changes with d_model.")


def test_the_cells_are_the_rows_in_the_order_of_the_levels(grid, lines):
    crossed = factorial.factorial(grid, lines)
    assert crossed.levels == {"h": [4, 8], "d_model": [32, 64]}
    means = {
        tuple(config.flatten(x.c)[n] for n in ("h", "d_model")): x.score.spread.mean for x in lines
    }
    expected = [[means[h, d] for d in (32, 64)] for h in (4, 8)]
    np.testing.assert_array_equal(crossed.means, expected)


def test_effects_of_two_by_two_are_half_and_quarter_differences(grid, lines):
    crossed = factorial.factorial(grid, lines)
    (a, b), (c, d) = crossed.means
    effects = factorial.effects(crossed)
    assert [(x.source, x.level) for x in effects] == [
        *(("h", x) for x in ("4", "8")),
        *(("d_model", x) for x in ("32", "64")),
        *(("h × d_model", x) for x in ("4, 32", "4, 64", "8, 32", "8, 64")),
    ]
    rows, columns, both = (a + b - c - d) / 4, (a + c - b - d) / 4, (a + d - b - c) / 4
    expected = [rows, -rows, columns, -columns, both, -both, -both, both]
    np.testing.assert_allclose([x.size for x in effects], expected)
    for effect in effects:
        assert effect.low < effect.size < effect.high


def test_three_fields_have_three_interactions_and_a_sum_has_none():
    """A metric that is a sum of a term for each field has these terms as effects."""
    terms = np.array([-1.0, 1.0]), np.array([-4.0, 1.0, 3.0]), np.array([2.0, -2.0])
    sums = terms[0][:, None, None] + terms[1][:, None] + terms[2]
    cells = np.empty(sums.shape, dtype=object)
    for place in np.ndindex(sums.shape):
        cells[place] = Measure(Spread(50 + sums[place], np.nan, 1), (50 + sums[place],))
    levels = {"h": [1, 2], "norm": ["a", "b", "c"], "N": [1, 6]}
    effects = factorial.effects(factorial.Factorial("BLEU", levels, cells))
    sizes = {}
    for effect in effects:
        assert (effect.low, effect.high) == (None, None)
        sizes.setdefault(effect.source, []).append(effect.size)
    assert [*sizes] == ["h", "norm", "N", "h × norm", "h × N", "norm × N"]
    for name, term in zip(levels, terms, strict=True):
        np.testing.assert_allclose(sizes[name], term, atol=1e-12)
    for name in list(sizes)[3:]:
        np.testing.assert_allclose(sizes[name], 0, atol=1e-12)


@pytest.mark.parametrize("interaction", [False, True])
def test_intervals_cover_the_effects_with_few_seeds(interaction):
    """Two seeds in each of four cells of which no effect is true.

    Args:
      interaction: whether all of the variance over seeds is their interaction with sentences.
    """
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        cells = np.empty((2, 2), dtype=object)
        for place in np.ndindex(2, 2):
            values = rng.normal(size=2)
            draws = values[:, None] + interaction * rng.normal(size=(2, 1000))
            cells[place] = Measure(spread(values), tuple(values), draws)
        levels = {"h": [1, 2], "N": [1, 2]}
        effect, *_ = factorial.effects(factorial.Factorial("BLEU", levels, cells))
        covered += effect.low <= 0 <= effect.high
    assert covered / 400 == pytest.approx(0.95, abs=0.03)


def test_a_table_is_followed_by_the_effects(grid, lines):
    out = formats.render([(grid, lines)], "latex", costs=False)
    assert out.count(r"\begin{tabular}") == 2
    assert r"\label{tab:heads-demo-effects}" in out
    assert out.count("$h$ $\\times$ $d_{\\mathrm{model}}$ &") == 1
    text = formats.render([(grid, lines)], "text", costs=False)
    assert "Effects on BLEU" in text
    assert "over sentences, by" in text
    partial = [lines[0], dataclasses.replace(lines[1], measures={}), *lines[2:]]
    assert factorial.factorial(grid, partial) is None
    assert factorial.factorial(grid, lines[:3]) is None
    others = stored.compared(stored.grid(rows=4))
    assert factorial.factorial(stored.grid(rows=4), others) is None


def test_the_page_has_the_table_of_effects(grid, lines):
    text = study_page(grid, lines, None, ["heads"])
    assert "Effects on BLEU" in text
    effects = factorial.effects(factorial.factorial(grid, lines))
    assert len(effects) == 8
    for effect in effects:
        assert f"<td>{effect.level}</td><td>{effect.size:+.2f}</td>" in text
    alone = study_page(grid, lines[:2], None, ["heads"])
    assert "Effects on BLEU" not in alone
