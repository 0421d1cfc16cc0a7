"""Rows of every combination of the values of some fields."""

import pytest

from t2t_jax.errors import UsageError
from t2t_jax.study import cross


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
