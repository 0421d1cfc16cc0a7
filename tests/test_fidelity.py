"""experiments/fidelity.py: its grids are valid, and groups that chose a grid do not judge it."""

import re

import numpy as np
import pytest
from scipy import stats

from experiments import fidelity
from t2t_jax.study.sweep import parse
from tests import stored


@pytest.mark.parametrize("name", [n for n, regime in fidelity.GRIDS.items() if not regime.stored])
def test_every_grid_is_valid_and_its_command_names_it(name, tmp_path):
    grid = fidelity.grid(name, tmp_path)
    grid.check()
    words = fidelity.words(name)
    assert words[-2:] == ["--store", str(fidelity.STORE)]
    swept = [word.removeprefix("--sweep=") for word in words if word.startswith("--sweep=")]
    assert parse(swept) == grid.sweep
    fields = [word for word in words[1:-2] if not word.startswith("--sweep=")]
    named = zip(fields[::2], fields[1::2], strict=True)
    shown = {"preset": grid.preset.name} | grid.changes
    assert dict(named) == {f"--{n}": str(x) for n, x in shown.items()}


def test_a_part_has_base_and_its_groups_alone():
    grid = stored.grid(rows=20)
    lines = stored.compared(grid)
    measured = fidelity.agreement_of(grid, lines)
    for part, groups in (("all", "ABCDEbig"), ("C, D", "CD"), ("A, B, E", "ABE")):
        kept = [x for x in lines if x.row.group == "base" or x.row.group in groups]
        rows = [(x.row.paper["PPL"], x.PPL.spread.mean) for x in kept]
        tau = stats.kendalltau(*zip(*rows, strict=True)).statistic
        assert fidelity.tau({"agreement": measured}, part) == pytest.approx(tau)


def test_the_cost_of_a_grid_is_that_of_all_its_runs():
    measured, runs = fidelity.measure("demo", stored.DEMO)
    results = [run["result.json"] for run in runs.values()]
    assert measured["runs"] == len(results) == 20
    assert measured["flops"] == pytest.approx(sum(r["flops"] for r in results))
    seconds = [r["training_seconds"] + r["overhead_seconds"] for r in results]
    scoring = [r["scoring"]["dev"]["seconds"] for r in results]
    assert measured["core_hours"] == pytest.approx((np.sum(seconds) + np.sum(scoring)) / 3600)
    assert not any("dev.de" in run for run in runs.values())


def result(all_rows, chosen, held_out, flops):
    def of(tau):
        return {"tau": tau, "interval": [None, None], "same_sign": 1, "separated": 2}

    parts = dict(zip(fidelity.PARTS, (all_rows, chosen, held_out), strict=True))
    agreement = {part: {"PPL": of(tau), "BLEU": of(tau - 0.2)} for part, tau in parts.items()}
    cost = {"seeds": [1, 3], "runs": 9, "flops": flops, "core_hours": flops / 1e12}
    return cost | {"agreement": agreement}


def test_the_grid_that_one_part_chooses_is_reported_on_the_other():
    results = {
        "demo": result(0.55, 0.9, 0.1, 2e12),
        "half of the steps": result(0.65, 0.2, 0.8, 1e12),
        "twice the steps": result(0.75, 0.8, 0.7, 4e12),
    }
    table = fidelity.table(results)
    assert re.search(r"By groups C, D .* the grid `demo` agrees best;.* its tau is 0\.10\.", table)
    assert "By groups A, B, E (tau of PPL 0.80) the grid `half of the steps`" in table
    for line in (
        "| 0.5 | half of the steps | 1.0e+12 | twice the steps | 4.0e+12 |",
        "| 0.7 | twice the steps | 4.0e+12 | none |  |",
        "| 0.8 | none |  | none |  |",
        "| half of the steps | steps=640 | 1 to 3 | 1.00 | 1.0e+12 |",
    ):
        assert line in table


@pytest.mark.parametrize(("metric", "gap"), [("PPL", 0.1), ("BLEU", 0.3)])
def test_the_attainable_tau_is_that_of_a_random_order_of_close_rows(metric, gap):
    paper = np.array([row.paper[metric] for row in stored.grid(rows=20).rows])
    rng, n = np.random.default_rng(0), len(paper)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    size = np.sqrt(len(pairs) * sum(paper[i] != paper[j] for i, j in pairs))  # tau-b's denominator

    def tau():
        far = (abs(paper[i] - paper[j]) > gap - 1e-6 for i, j in pairs)
        return sum(1 if x else rng.choice([-1, 1]) for x in far) / size

    drawn = [tau() for _ in range(400)]
    assert fidelity.attainable(metric) == pytest.approx(np.mean(drawn), abs=0.01)


@pytest.mark.parametrize("name", ["muP", "tuned"])  # demo's runs are one trial of each tuned row
def test_an_unfinished_grid_is_left_out(name):
    assert fidelity.measure(name, stored.DEMO) is None
