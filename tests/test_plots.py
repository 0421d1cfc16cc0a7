"""Charts of the demo study's stored runs are written as files for a paper."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from t2t_jax import plotting
from t2t_jax.report import charts, differences, learning
from t2t_jax.report.study import study_page
from t2t_jax.runs.results import Run
from t2t_jax.study import comparison
from tests import stored


def texts(path):
    """Returns every text of a chart's SVG file."""
    return re.findall(r">([^<>]+)<", path.with_suffix(".svg").read_text())


@pytest.fixture
def lines(tmp_path):
    return comparison.compare_with_base(stored.grid(tmp_path), stored.entries())


def test_every_chart_is_written_as_png_svg_and_pdf(tmp_path):
    grid = dataclasses.replace(stored.grid(tmp_path), changes=dict(alpha=0.6))
    made = [("gender", 1, True), ("gender", 12, False), ("omission", 0, True)]
    entries = stored.translated(tmp_path, stored.entries(), "ein Wort")
    lines = comparison.compare_with_base(grid, stored.judged(entries, [[made]] * 3))
    paths = charts.draw(grid, lines, split := stored.split(tmp_path))
    kinds = ["learning", "cost", "differences", "agreement", "distances", "contrastive"]
    assert paths == [tmp_path / f"table3-demo-{kind}.png" for kind in kinds]
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        shown = texts(path)
        assert shown.count(grid.title) == 1
        assert any("alpha 0.6" in text for text in shown)  # set on the command line
        for line in lines[1:] if "differences" in path.name else lines:
            assert line.row.name in shown, (path, line.row.name)
    assert {"gender: distance, in words", "10 or more", "(1)"} <= {*shown}
    assert "Contrastive accuracy." in study_page(grid, lines, None, [])
    Path(f"{split.stem}.extras.jsonl").unlink()  # the dependencies of each sentence
    drawn = charts.charts(grid, lines, dataclasses.replace(split))
    assert "distances" not in {chart.name for chart in drawn}


def test_a_chart_is_deterministic(tmp_path, lines):
    grid = stored.grid(tmp_path)
    (cost,) = (chart for chart in charts.charts(grid, lines, None) if chart.name == "cost")
    assert len({plotting.picture(plotting.chart(cost.body, ["base"])) for _ in range(2)}) == 1


def test_an_empty_study_has_no_charts(tmp_path):
    grid = stored.grid(tmp_path)
    empty = [dataclasses.replace(entry, runs=(), status="") for entry in stored.entries()]
    assert charts.draw(grid, comparison.compare_with_base(grid, empty), None) == []


def test_a_row_has_one_style_in_every_chart(tmp_path):
    grid, lines = stored.attention()
    styles = {}

    def collect(node):
        if isinstance(node, dict):
            if "row" in node and "colour" in node:
                styles.setdefault(node["row"], set()).add((node["colour"], node["shape"]))
            node = list(node.values())
        if isinstance(node, list):
            for part in node:
                collect(part)

    for chart in charts.charts(grid, lines, None):
        collect(chart.body)
    assert styles.keys() == {line.row.name for line in lines}
    assert {len(x) for x in styles.values()} == {1}
    few = [lines[0], *lines[5:]]  # with other rows on the page
    (cost,) = (x for x in charts.charts(grid, few, None) if x.name == "cost")
    collect(cost.body)
    assert {len(x) for x in styles.values()} == {1}


def test_a_group_has_one_colour_in_all_studies():
    """Its rows have shades of it, with red, green and blue in one order, and differ in shape."""
    names, groups = ["base", "a", "b", "c", "d"], ["base", "C", "C", "C", "word"]
    first = plotting.styles(names, groups)
    second = plotting.styles(["first", "d", "x", "a"], ["first", "word", "D", "C"])
    for name in ("a", "d"):
        assert first[name]["colour"] == second[name]["colour"] != first["b"]["colour"]
    rgb = [[int(first[n]["colour"][i : i + 2], 16) for i in (1, 3, 5)] for n in "abc"]
    assert len({tuple(np.argsort(x)) for x in rgb}) == 1
    assert len({first[n]["shape"] for n in "abc"}) == 3
    assert first["base"]["colour"] == second["first"]["colour"] == plotting.INK


def test_intervals_over_sentences_alone_are_dashed(tmp_path):
    """The interval of a row with one seed is over sentences alone."""
    grid = stored.grid(tmp_path)
    single = comparison.compare_with_base(grid, stored.entries())
    entries = stored.entries()
    twice = [dataclasses.replace(e, runs=(*e.runs, *entries[1].runs)) for e in entries]
    double = comparison.compare_with_base(grid, [*twice[:2], entries[2]])
    styles = plotting.styles([line.row.name for line in single])
    for lines, dashed in ((single, 2), (double, 1)):
        values = differences.values(grid, lines, styles)
        body = differences.chart(grid, values, "base")
        svg = plotting.picture(plotting.chart(body, list(styles)))
        assert len(re.findall(r'<line[^>]*stroke-dasharray="4,3"', svg)) == dashed


def test_differences_of_a_study_without_a_split_are_in_perplexity(tmp_path, lines):
    made = stored.grid(tmp_path)
    grid = dataclasses.replace(made, study=dataclasses.replace(made.study, split=""))
    styles = plotting.styles([line.row.name for line in lines])
    values = differences.values(grid, lines, styles)
    for value, line in zip(values, lines[1:], strict=True):
        assert value["size"] == line.PPL.difference.size
        row = line.row
        assert value["paper"] == pytest.approx(row.paper["PPL"] - lines[0].row.paper["PPL"])


def test_the_papers_axis_has_its_own_scale_and_the_same_zero(tmp_path, lines):
    grid = stored.grid(tmp_path)
    row = {"low": -41, "high": 11, "seeds": [], "untuned": None, "over": "", "p": None}
    values = [row | {"size": -40, "paper": 1.0}, row | {"size": 10, "paper": -2.0}]
    ours, paper = differences.chart(grid, values, "base")["layer"]
    (low, high), (ours_low, ours_high) = (
        layer["encoding"]["x"]["scale"]["domain"] for layer in (paper, ours["layer"][1])
    )
    assert low / high == pytest.approx(ours_low / ours_high)
    assert low < -2
    assert 1 < high < 1.5


@pytest.mark.parametrize(("far", "kind"), [(-48.0, "symlog"), (-4.0, "linear")])
def test_one_row_does_not_stretch_the_axis_of_all(far, kind, tmp_path):
    row = {"seeds": [], "untuned": None, "over": "", "p": None, "paper": None}
    values = [row | {"low": x - 1, "high": x + 1, "size": x} for x in (0.5, -1.0, 1.5, far)]
    drawn = differences.chart(stored.grid(tmp_path), values, "base")["layer"][0]["layer"]
    scales = [layer["encoding"]["x"]["scale"] for layer in drawn[1:]]
    assert {scale["type"] for scale in scales} == {kind}


@pytest.mark.parametrize("n", [1, 7, 39])
def test_rows_of_one_colour_differ_in_dash_and_shape(n):
    styles = [*plotting.styles([str(i) for i in range(n)]).values()]
    assert [x["colour"] for x in styles].count("currentColor") == 1
    for channels in (["dash"], ["shape"], ["dash", "shape"]):
        if n < 4 * len(plotting.COLOURS) or len(channels) == 2:
            assert len({(x["colour"], *(str(x[c]) for c in channels)) for x in styles}) == n


def test_a_panel_has_one_group_or_several_single_rows():
    groups = ["base", *"AABCC", "D", "E", "F", "G", "H", "I", "big"]
    panels = plotting.facets([*zip("0123456789abc", groups, strict=True)])
    assert panels == [["0", *row] for row in ("12", "3", "45", "6789a", "bc")]
    assert plotting.facets([("base", "base")]) == [["base"]]


def label_slots(points, height=200.0):
    """Returns the height of the label of each row."""
    ends = [(y, {"row": name, "colour": "red", "shape": "circle"}) for name, y in points.items()]
    layers = plotting.labels(ends, 100.0, height)
    return {v["row"]: v["slot"] for v in layers[0]["data"]["values"]} if layers else {}


def test_labels_are_moved_apart_in_the_order_of_their_points():
    heights = {"a": 100, "b": 40, "c": 102, "d": 98, "e": 180, "none": np.nan, "far": np.inf}
    slots = {"a": 100, "b": 40, "c": 111, "d": 89, "e": 178, "none": 189, "far": 200}
    assert label_slots(heights) == slots
    assert label_slots({}) == {}


def test_labels_stay_beside_the_panel_and_do_not_overlap():
    heights = np.random.default_rng(0).uniform(0, 200, 15).tolist()
    slots = label_slots({str(i): y for i, y in enumerate(heights)})
    assert all(0 <= slot <= 200 for slot in slots.values())
    assert np.diff(sorted(slots.values())).min() > 10.8
    assert (
        np.argsort([*slots.values()]).tolist()
        == np.argsort([heights[int(name)] for name in slots]).tolist()
    )


def test_a_scale_places_its_ends_at_those_of_the_axis():
    values = [3.0, np.nan, 48.0, np.inf, -1.0, 12.0]
    scale = plotting.Axis.over("x", "X", values, log=True)
    low, middle, high = scale.pixels([scale.low, 12.0, scale.high], 90)
    assert (low, middle, high) == pytest.approx((0, 45, 90))
    assert 1 < 3 / scale.low == pytest.approx(scale.high / 48)


CPU = {"device": "1 x cpu"}


def record(step, nll, seconds):
    return {"step": step, "nll": nll, "seconds_per_step": seconds}


def test_a_run_consumes_evenly_and_its_share_of_a_population():
    result = {"flops": 900.0, "steps": 30, "trained_together": 2, "environment": CPU}
    run = Run(Path("run"), 0, result)
    records = [record(10, 1.0, 4.0), record(20, 1.0, 1.0), record(25, 1.0, 2.0)]
    assert learning.rates(run, records) == {"steps": 1, "flops": 30, "seconds": 1}
    untimed = learning.rates(run, [])
    assert untimed["flops"] == 30
    assert np.isnan(untimed["seconds"])


def test_a_curve_has_the_seeds_at_the_steps_of_all(tmp_path):
    runs = []
    for seed, (first, last) in enumerate([(3.0, 1.0), (1.0, 2.0)]):
        home = tmp_path / str(seed)
        home.mkdir()
        records = [record(10, first, 1.0), record(20, last, 1.0)]
        records += [{"step": 10 + 5 * seed, "dev_perplexity": 7.0}]
        records += [{"step": 20, "dev_perplexity": 4.0 ** (seed + 1)}]
        lines = "".join(f"{json.dumps(r)}\n" for r in records)
        (home / "metrics.jsonl").write_text(lines)
        runs.append(
            Run(home, seed, {"flops": 1.0, "steps": 20, "trained_together": 1, "environment": CPU})
        )
    training, dev = learning.curves(runs)
    assert training.amounts["steps"].tolist() == [10, 20]
    np.testing.assert_allclose(np.log(training.PPL), [[3, 1], [1, 2]])
    np.testing.assert_allclose(np.log(training.mean), [2, 1.5])
    assert dev.amounts["steps"].tolist() == [20]
    np.testing.assert_allclose(dev.PPL, [[4], [16]])
    np.testing.assert_allclose(dev.mean, [8])
