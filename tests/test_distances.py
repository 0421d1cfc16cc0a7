"""Quality against distance, on the demo's stored runs."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from t2t_jax.data.cache import Split
from t2t_jax.study import distances, grid, presets, registry, results

DEMO = Path(__file__).parents[1] / "experiments" / "results" / "table3-demo"


def stored():
    study = registry.find("table3")
    return grid.Grid(study, presets.preset("demo"), study.rows[:3], {}, DEMO)


def test_parts_are_by_size_and_keep_equals_together():
    values = np.array([5, 1, 1, 9, 1, 1, 1, 1, 2, 7, 30, 2])
    divided = distances.parts(values)
    assert sorted(np.concatenate(divided)) == list(range(12))
    tops = [values[part].max() for part in divided]
    assert tops == sorted(set(tops))
    for part, after in itertools.pairwise(divided):
        assert values[part].max() < values[after].min()
    assert set(values[divided[0]]) == {1}


def test_a_curve_over_all_sentences_is_the_score():
    entry = results.collect(stored())[0]
    everything = np.arange(len(entry.runs[0].statistics))
    assert distances.curve(entry, [everything])[0] == pytest.approx(entry.runs[0].score, abs=1e-6)
    halves = distances.curve(entry, [everything[:500], everything[500:]])
    assert min(halves) < entry.runs[0].score < max(halves)


def test_the_plot_is_drawn_where_dependencies_are_known(tmp_path, monkeypatch):
    split = Split(None, None, tmp_path / "dev")
    n = 1000
    (tmp_path / "dev.target.txt").write_text(
        "ein Wort\n" * (n // 2) + "noch ein Wort mehr\n" * (n // 2)
    )
    assert distances.draw(stored(), split, report=print) is None
    (tmp_path / "dev.extras.jsonl").write_text(
        "".join(f'{{"dependency": {i % 9}}}\n' for i in range(n))
    )
    split = Split(None, None, tmp_path / "dev")
    found = results.collect(stored())
    monkeypatch.setattr(results, "collect", lambda *_, **__: found)
    here = grid.Grid(
        *(getattr(stored(), x) for x in ("study", "preset", "rows", "changes")), tmp_path
    )
    path = distances.draw(here, split, report=print)
    assert path == tmp_path / "table3-demo-distances.png"
    assert path.stat().st_size > 20_000
    assert path.with_suffix(".svg").exists()
