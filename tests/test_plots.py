"""Plots of the demo's stored runs, as files for a paper."""

import dataclasses
import re
from pathlib import Path

import pytest

from t2t_jax.report import plots
from t2t_jax.study import entries, tables
from tests import stored


def test_every_plot_is_a_picture_and_two_drawings(tmp_path):
    grid = stored.grid(tmp_path)
    found = tables.lines(grid, stored.entries())
    paths = plots.draw(grid, found, stored.split(tmp_path))
    kinds = ["learning", "cost", "differences", "distances"]
    assert paths == [tmp_path / f"table3-demo-{kind}.png" for kind in kinds]
    title = "Variations on the Transformer, preset demo"
    for path in paths:
        assert f"<!-- {title}" in path.with_suffix(".svg").read_text()
        assert path.stat().st_size > 15_000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        drawn = path.with_suffix(".svg").read_text()
        texts = re.findall(r"<!-- (.*?) -->", drawn)  # that matplotlib draws as outlines
        for line in found[1:] if "differences" in path.name else found:
            assert line.entry.row.name in texts, (path, line.entry.row.name)


def test_a_plot_is_the_same_file_each_time(tmp_path):
    grid = stored.grid(tmp_path)
    found = tables.lines(grid, stored.entries())
    drawn = [plots.costs(grid, found).with_name("table3-demo-cost.svg").read_text() for _ in "12"]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("known", [False, True])
def test_without_dependencies_nothing_is_drawn_against_them(known, tmp_path):
    grid = stored.grid(tmp_path)
    split = stored.split(tmp_path)
    if not known:
        Path(f"{split.stem}.extras.jsonl").unlink()
    drawn = plots.draw(grid, tables.lines(grid, stored.entries()), split)
    assert any("distances" in path.name for path in drawn) == known


def test_an_empty_study_has_no_plots(tmp_path):
    grid = stored.grid(tmp_path)
    none = [entry.__class__(entry.row, entry.c, (), "") for entry in stored.entries()]
    assert plots.draw(grid, tables.lines(grid, none), None) == []


def test_a_plots_title_says_what_the_command_line_changed(tmp_path):
    grid = dataclasses.replace(stored.grid(tmp_path), changes=dict(alpha=0.6))
    found = tables.lines(grid, entries.collect(dataclasses.replace(grid, home=stored.DEMO)))
    drawn = plots.learning(grid, found).with_suffix(".svg").read_text()
    assert "preset demo" in drawn
    assert "alpha 0.6" in drawn


def test_an_interval_says_what_it_covers(tmp_path):
    """Of rows with one seed it is over sentences."""
    one = tables.lines(stored.grid(tmp_path), stored.entries())
    assert plots.interval(one) == "interval over sentences"
    entries = [
        dataclasses.replace(e, runs=(*e.runs, *stored.entries()[1].runs)) for e in stored.entries()
    ]
    two = tables.lines(stored.grid(tmp_path), entries)
    assert plots.interval(two) == "interval over seeds and sentences"
    assert "dashed: interval over sentences" in plots.interval([one[1], two[2]])
    path = plots.differences(stored.grid(tmp_path), one)
    assert "95% interval over sentences" in path.with_name(f"{path.name}.svg").read_text()
