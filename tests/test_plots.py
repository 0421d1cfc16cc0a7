"""Plots of the demo study's stored runs are written as files for a paper."""

import dataclasses
import re
from pathlib import Path

from t2t_jax import plotting
from t2t_jax.report import plots
from t2t_jax.study import comparison, entries
from tests import stored


def test_every_plot_is_written_as_png_svg_and_pdf(tmp_path):
    grid = stored.grid(tmp_path)
    lines = comparison.compare_with_base(grid, stored.entries())
    paths = plots.draw(grid, lines, stored.split(tmp_path))
    kinds = ["learning", "cost", "differences", "agreement", "distances"]
    assert paths == [tmp_path / f"table3-demo-{kind}.png" for kind in kinds]
    title = "Variations on the Transformer, preset demo"
    for path in paths:
        assert f"<!-- {title}" in path.with_suffix(".svg").read_text()
        assert path.stat().st_size > 15_000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        svg = path.with_suffix(".svg").read_text()
        texts = re.findall(r"<!-- (.*?) -->", svg)  # matplotlib draws text as outlines
        for line in lines[1:] if "differences" in path.name else lines:
            assert line.entry.row.name in texts, (path, line.entry.row.name)


def test_a_plot_is_deterministic(tmp_path):
    grid = stored.grid(tmp_path)
    lines = comparison.compare_with_base(grid, stored.entries())
    first, second = (
        plots.costs(grid, lines).with_name("table3-demo-cost.svg").read_text() for _ in range(2)
    )
    assert first == second


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
        grid, entries.collect(dataclasses.replace(grid, home=stored.DEMO))
    )
    svg = plots.learning(grid, lines).with_suffix(".svg").read_text()
    assert "preset demo" in svg
    assert "alpha 0.6" in svg


def test_an_interval_names_what_varies(tmp_path):
    """The interval of a row with one seed is over sentences alone."""
    single = comparison.compare_with_base(stored.grid(tmp_path), stored.entries())
    assert plots.interval(single) == "interval over sentences"
    entries = [
        dataclasses.replace(e, runs=(*e.runs, *stored.entries()[1].runs)) for e in stored.entries()
    ]
    double = comparison.compare_with_base(stored.grid(tmp_path), entries)
    assert plots.interval(double) == "interval over seeds and sentences"
    assert "dashed: interval over sentences" in plots.interval([single[1], double[2]])
    path = plots.differences(stored.grid(tmp_path), single)
    assert "95% interval over sentences" in path.with_name(f"{path.name}.svg").read_text()


def test_many_rows_have_different_markers_or_colours():
    styles = [plotting.line(i) for i in range(40)]
    assert len({(style["color"], style["marker"]) for style in styles}) == 40
