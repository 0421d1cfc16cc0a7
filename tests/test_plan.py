"""`plan`: what a study would cost and find, against known deviations and counts of runs."""

import dataclasses
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from t2t_jax.study import plan, power, presets, statistics
from t2t_jax.study.statistics import Measure
from tests import stored

HOUR = stored.DEMO.parent / "table3-hour"


def test_a_detectable_difference_is_found_in_four_of_five_tables_in_the_median_row():
    noise = power.Noise(np.array([0.4, *[0.7] * 4, *[1.1] * 6]), 0.3)
    differences, least = power.margins(noise, (5, 11), 4000)
    size = power.detectable((differences, least))
    by_row = (np.abs(differences + size) > least).mean(axis=(0, 1))
    assert np.median(by_row) == pytest.approx(0.8, abs=0.01)
    assert power.power((differences, least), 30.0) > 0.99


@pytest.mark.parametrize("name", ["PPL", "BLEU"])
def test_noise_is_over_seeds_and_sentences_apart(name):
    """Of rows whose NLL, or BLEU, has known deviations; sentences are shared by the seeds."""
    random, over, sentences = np.random.default_rng(0), 0.05, 0.01
    scale = np.exp if name == "PPL" else np.asarray
    values = 1 + over * random.normal(size=(15, 60))
    draws = values[..., None] + sentences / math.sqrt(2) * random.normal(size=(15, 1, 1000))
    lines = []
    for x, drawn in zip(values, draws, strict=True):
        tested = statistics.compare(x, values[0], drawn, draws[0]) if lines else None
        measure = Measure(statistics.spread([*scale(x)]), (*scale(x),), difference=tested)
        lines.append(SimpleNamespace(measure={name: measure}.get))
    found = plan.noise(lines, name)
    assert np.median(found.deviations) == pytest.approx(over, rel=0.05)
    assert found.sentences == pytest.approx(sentences, rel=0.1)
    assert plan.noise(lines[:1], name) is None


def test_a_study_is_planned_from_published_results(call, refused, tmp_path):
    words = "plan", "table3", "--preset", "hour"
    lines = call(*words, "--from", HOUR, "--detect", "0.05").out.splitlines()
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines if re.match(r"\d+ ", line)]
    assert [x[:3] for x in cells] == [
        ["1", "1", "20"],
        ["3", "12", "69"],
        ["5", "20", "115"],
        ["10", "40", "230"],
        ["20", "80", "460"],
    ]
    assert len(cells[0]) == 4  # one seed finds nothing
    nats, BLEU, share = ([float(x[i].rstrip("%")) for x in cells[1:]] for i in (4, 5, 6))
    assert nats == sorted(nats, reverse=True)
    assert sorted(BLEU, reverse=True) == BLEU
    assert share == sorted(share)
    swept = call(*words, "--from", HOUR, "--sweep", "lr_scale=0.5,1").out
    assert re.search(r"^3 +12 +178 ", swept, re.M)  # 20 rows x 2 trials, and 2 x 69
    for flag in ("--base-seeds", "--from"):
        refused([*words, flag, "0"], "0")
    for home in (stored.DEMO, tmp_path):
        refused([*words, "--from", home], home, "no two rows with several seeds")
    for size in ("0", "-1", "nan"):
        refused([*words, "--detect", size], "--detect", "above 0")


@pytest.mark.parametrize(("device", "named"), [("1 x cpu", "a core"), ("1 x H200", "1 x H200")])
def test_the_time_is_of_the_device_of_the_stored_runs(device, named):
    grid, lines = stored.attention(3)
    moved = []
    for line in lines:
        result = line.runs[0].result
        environment = {"environment": result["environment"] | {"device": device}}
        moved.append(stored.changed(line, result=result | environment))
    assert ("", f"time of {named}") in plan.plan(grid, moved, "a store").header


def test_swept_values_cost_what_they_take():
    grid, _ = stored.attention(3)
    steps = grid.config(grid.rows[0]).training.steps
    swept = dataclasses.replace(grid, sweep={"steps": (steps // 2, 2 * steps, 5 * steps)})
    untuned = plan._flops(grid, grid.rows[0], 5)
    trials_and_tuned = (3 + 5) * (0.5 + 2 + 5) / 3
    assert plan._flops(swept, swept.rows[0], 5) == pytest.approx(
        untuned * (1 + trials_and_tuned / 5)
    )


def test_a_small_study_is_planned_with_the_median_row_and_not_the_first(call):
    words = "plan", "table3", "--preset", "hour", "--from", HOUR, "--base-seeds", "3", "--rows"
    found = []
    for row in ("A:h=1,d_k=512,d_v=512", "A:h=4,d_k=128,d_v=128"):
        lines = call(*words, row).out.splitlines()
        found.append(next(x for x in lines if x.startswith("3 ")).split()[-2:])
    hour = dataclasses.replace(stored.grid(HOUR, 20), preset=presets.preset("hour"))
    noise = plan.noise(stored.compared(hour), "BLEU")
    median = noise._replace(deviations=np.r_[noise.deviations[0], np.median(noise.deviations[1:])])
    least = power.detectable(power.margins(median, (3, 3), plan._TABLES, 2))
    assert float(found[0][1]) == pytest.approx(least, rel=0.1)


@pytest.mark.full
def test_a_study_without_seeds_is_planned_from_the_stored_table(call, tmp_path):
    words = "plan", "table3", "--preset", "hour"
    for home in (stored.DEMO, tmp_path):
        assert call(*words, "--store", home).out == call(*words, "--from", HOUR).out
