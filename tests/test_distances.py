"""Curves of quality against distance, on the demo's stored runs."""

import dataclasses
import itertools

import numpy as np
import pytest

from t2t_jax.study import distances
from tests import stored


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
    by_dependency, by_length = distances.curves(lines, split)
    assert [n for _, n in by_length.parts] == [500, 500]
    assert sum(n for _, n in by_dependency.parts) == stored.N
    halves = [np.arange(500), np.arange(500, 1000)]
    for line in lines:
        assert by_length.rows[line.row.name] == distances.curve(line, halves)
    assert len({tuple(values) for values in by_dependency.rows.values()}) == len(lines)
    lines[1] = dataclasses.replace(lines[1], score=None)
    (by_dependency, _) = distances.curves(lines, split)
    assert list(by_dependency.rows) == [lines[0].row.name, lines[2].row.name]
