"""Plots of the demo study's stored runs are written as files for a paper."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from t2t_jax import plotting
from t2t_jax.report import learning, plots
from t2t_jax.runs.results import Run
from t2t_jax.study import collecting, comparison
from t2t_jax.study.statistics import expected_least
from tests import stored


def test_every_plot_is_written_as_png_svg_and_pdf(tmp_path):
    grid = stored.grid(tmp_path)
    made = [("gender", 1, True), ("gender", 12, False), ("omission", 0, True)]
    entries = stored.translated(tmp_path, stored.entries(), "ein Wort")
    lines = comparison.compare_with_base(grid, stored.judged(entries, [[made]] * 3))
    paths = plots.draw(grid, lines, stored.split(tmp_path))
    kinds = ["learning", "cost", "differences", "agreement", "distances", "contrastive"]
    assert paths == [tmp_path / f"table3-demo-{kind}.png" for kind in kinds]
    title = "Variations on the Transformer, preset demo"
    for path in paths:
        assert f"<!-- {title}" in path.with_suffix(".svg").read_text()
        assert path.stat().st_size > 5_000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        svg = path.with_suffix(".svg").read_text()
        texts = re.findall(r"<!-- (.*?) -->", svg)  # matplotlib draws text as outlines
        for line in lines[1:] if "differences" in path.name else lines:
            assert line.row.name in texts, (path, line.row.name)
    assert {"gender: distance, in words", "(number of pairs)", "10 or more", "(1)"} <= {*texts}


def test_a_plot_is_deterministic(tmp_path):
    grid = stored.grid(tmp_path)
    lines = comparison.compare_with_base(grid, stored.entries())
    first, second = (
        plots.costs(grid, lines).with_name("table3-demo-cost.svg").read_text() for _ in range(2)
    )
    assert first == second


@pytest.mark.full
def test_the_plot_of_distances_needs_annotated_dependencies(tmp_path):
    grid = stored.grid(tmp_path)
    split = stored.split(tmp_path)
    Path(f"{split.stem}.extras.jsonl").unlink()
    paths = plots.draw(grid, comparison.compare_with_base(grid, stored.entries()), split)
    assert not any("distances" in path.name for path in paths)


def test_an_empty_study_has_no_plots(tmp_path):
    grid = stored.grid(tmp_path)
    empty = [dataclasses.replace(entry, runs=(), status="") for entry in stored.entries()]
    assert plots.draw(grid, comparison.compare_with_base(grid, empty), None) == []


def test_the_title_of_a_plot_names_fields_set_on_the_command_line(tmp_path):
    grid = dataclasses.replace(stored.grid(tmp_path), changes=dict(alpha=0.6))
    lines = comparison.compare_with_base(
        grid, collecting.collect(dataclasses.replace(grid, home=stored.DEMO))
    )
    svg = plots.costs(grid, lines).with_suffix(".svg").read_text()
    assert "preset demo" in svg
    assert "alpha 0.6" in svg


def test_an_interval_names_what_varies(tmp_path):
    """The interval of a row with one seed is over sentences alone."""

    def differences(lines):
        return [line.difference for line in lines]

    single = comparison.compare_with_base(stored.grid(tmp_path), stored.entries())
    assert plots.interval(differences(single)) == "interval over sentences"
    entries = [
        dataclasses.replace(e, runs=(*e.runs, *stored.entries()[1].runs)) for e in stored.entries()
    ]
    double = comparison.compare_with_base(stored.grid(tmp_path), entries)
    assert plots.interval(differences(double)) == "interval over seeds and sentences"
    assert "dashed: interval over sentences" in plots.interval(differences([single[1], double[2]]))
    path = plots.differences(stored.grid(tmp_path), single)
    assert "95% interval over sentences" in path.with_name(f"{path.name}.svg").read_text()


def test_differences_of_a_study_without_a_split_are_in_perplexity(tmp_path):
    made = stored.grid(tmp_path)
    grid = dataclasses.replace(made, study=dataclasses.replace(made.study, split=""))
    lines = comparison.compare_with_base(grid, stored.entries())
    (path,) = (x for x in plots.draw(grid, lines, None) if "differences" in x.name)
    svg = path.with_suffix(".svg").read_text()
    assert "PPL minus that of base, ours (dots)" in svg
    assert "PPL minus that of base, the paper's (diamonds)" in svg


@pytest.mark.parametrize(
    "groups", ["0" * 40, "0AAABBCCCCCCCD", "0" + "ABCDEFGHIJKLMNOPQ", "0A" * 9]
)
def test_rows_have_a_colour_of_their_group_and_a_marker_of_their_own(groups):
    """The seventh group has the colour of the first; one of 39 rows has several colours."""
    styles = plotting.styles(groups)
    colours = [style["color"] for style in styles]
    assert colours[0] == "black"
    assert colours.count("black") == 1
    assert len({(style["color"], style["marker"]) for style in styles}) == len(groups)
    if len(groups) < 40:
        for group in set(groups[1:]):
            assert len({c for c, g in zip(colours[1:], groups[1:], strict=True) if g == group}) == 1
        assert len(set(colours)) == 1 + min(len(set(groups[1:])), len(plotting.COLOURS))


def test_a_panel_has_one_group_or_several_single_rows():
    names = ["base", *"AABCC", "D", "E", "F", "G", "H", "I", "big"]
    panels = [[names[i] for i in panel] for panel in plotting.facets(names)]
    assert panels == [["A", "A"], ["B"], ["C", "C"], [*"DEFGH"], ["I", "big"]]
    assert plotting.facets(["base"]) == [[]]


def test_labels_are_moved_apart_in_the_order_of_their_points(tmp_path):
    with plotting.figure(tmp_path / "x", 1, 1, size=(3, 3)) as (_, axes):
        heights = [0.5, 0.2, 0.51, 0.49, 0.9]
        axes.set(xlim=(0, 1), ylim=(0, 2))
        plotting.label(axes, [(0.3, 2 * y, f"{y}", "red") for y in heights], 0.1)
        texts = {float(x.get_text()): x.xyann[1] for x in axes.texts}
    expected = {0.2: 0.2, 0.49: 0.4, 0.5: 0.5, 0.51: 0.6, 0.9: 0.9}
    assert texts == pytest.approx(expected)


def test_a_point_that_is_not_finite_has_no_label(tmp_path):
    with plotting.figure(tmp_path / "x", 1, 1, size=(3, 3)) as (_, axes):
        values = {"infinite": np.inf, "undefined": np.nan, "shown": 3.0}
        axes.set(xlim=(1, 10))
        plotting.label(axes, [(x, 0.5, name, "red") for name, x in values.items()])
        assert [x.get_text() for x in axes.texts] == ["shown"]


def test_the_papers_axis_has_its_own_scale_and_the_same_zero(tmp_path):
    with plotting.figure(tmp_path / "x", 1, 1, size=(3, 3)) as (figure, axes):
        axes.plot([-40, 10], [0, 1])
        plots._paper_axis(axes, {0: 1.0, 1: -2.0}, "paper")
        _, above = figure.axes
        (low, high), (below_low, below_high) = above.get_xlim(), axes.get_xlim()
        assert low / high == pytest.approx(below_low / below_high)
        assert low < -2
        assert 1 < high < 1.5
        assert list(above.lines[0].get_xdata()) == [1.0, -2.0]


def record(step, nll, seconds, tokens):
    return {"step": step, "nll": nll, "seconds_per_step": seconds, "tokens_per_second": tokens}


def test_a_run_consumes_evenly_between_its_records_and_its_share_of_a_population():
    result = {"flops": 900.0, "steps": 30, "trained_together": 2}
    run = Run(Path("run"), 0, result)
    records = [record(10, 1.0, 4.0, 100.0), record(20, 1.0, 1.0, 50.0)]
    amounts = learning.amounts(run, records, np.array([5, 10, 16, 30]))
    assert amounts["flops"].tolist() == [150, 300, 480, 900]
    assert amounts["seconds"].tolist() == [10, 20, 23, 30]
    assert amounts["tokens"].tolist() == [1000, 2000, 2150, 2500]


def test_a_band_is_over_the_seeds_at_the_steps_of_all(tmp_path):
    runs = []
    for seed, (first, last) in enumerate([(3.0, 1.0), (1.0, 2.0)]):
        home = tmp_path / str(seed)
        home.mkdir()
        records = [record(10, first, 1.0, 9.0), record(20, last, 1.0, 9.0)]
        records += [{"step": 10 + 5 * seed, "dev_perplexity": 7.0}]
        records += [{"step": 20, "dev_perplexity": 4.0 ** (seed + 1)}]
        lines = "".join(f"{json.dumps(r)}\n" for r in records)
        (home / "metrics.jsonl").write_text(lines)
        runs.append(Run(home, seed, {"flops": 1.0, "steps": 20, "trained_together": 1}))
    training, dev = learning.curves(runs)
    assert training.amounts["steps"].tolist() == [10, 20]
    mean, low, high = training.summary()
    np.testing.assert_allclose(np.log([mean, low, high]), [[2, 1.5], [1, 1], [3, 2]])
    assert dev.amounts["steps"].tolist() == [20]
    np.testing.assert_allclose(np.ravel(dev.summary()), [8, 4, 16])


def test_the_expected_best_is_that_of_all_draws():
    values = np.array([5.0, 2.0, 9.0, 2.5])
    draws = [itertools.product(values, repeat=n) for n in (1, 2, 3, 4)]
    expected = [np.mean([min(draw) for draw in every]) for every in draws]
    np.testing.assert_allclose(expected_least(values), expected)
