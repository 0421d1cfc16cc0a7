"""What `run` was asked for in a store is what `table` and others show there."""

import shlex

import pytest

from t2t_jax.cli import _parse, main
from t2t_jax.commands.shared import grid_of, grid_shown
from t2t_jax.errors import UsageError
from t2t_jax.study import requests

HOUR = "--preset hour --P_drop 0.08 --sweep lr_scale=0.25,0.5,1 --rows base A"


def run(home, flags=""):
    """Remembers a request as `run` does, without running it."""
    grid = grid_of(_parse(["run", "table3", "--store", str(home), *shlex.split(flags)]))
    requests.remember(home, grid)
    return grid


def shown(home, flags=""):
    return grid_shown(_parse(["plot", "table3", "--store", str(home), *shlex.split(flags)]))


def same(grid, other):
    return grid.title == other.title and all(
        getattr(grid, name) == getattr(other, name)
        for name in ("study", "rows", "changes", "sweep", "home")
    )


SETTINGS = [
    HOUR,
    "--preset multi30k --directory some/where --encoder_attention sparse_fixed:l=8,c=2 --steps 90",
    "--rows E A:h=1,d_k=512,d_v=512",
    "--sweep encoder_attention=local:w=4;sparse_fixed:l=8,c=2 --sweep peak_lr=1e-4..1e-2:3",
    "",
]


@pytest.mark.parametrize("flags", SETTINGS)
def test_a_study_is_shown_with_the_settings_it_was_run_with(flags, tmp_path, capsys):
    ran = run(tmp_path, flags)
    run(tmp_path, flags)
    assert same(shown(tmp_path), ran)
    said = capsys.readouterr().err
    assert said.count("\n") == bool(flags)
    for name in ("plot", "report"):
        assert same(grid_shown(_parse([name, "table3", "--store", str(tmp_path)])), ran)


def test_the_line_says_the_flags_and_they_show_the_same(tmp_path, capsys):
    ran = run(tmp_path, HOUR)
    shown(tmp_path)
    said = capsys.readouterr().err
    flags = "--preset hour --P_drop 0.08 --sweep lr_scale=0.25,0.5,1.0 --rows base A"
    assert said == (
        f"table3 is shown as it was run in {tmp_path}: {flags}; other flags show other runs.\n"
    )
    assert same(shown(tmp_path, flags), ran)
    assert not capsys.readouterr().err


def test_what_is_asked_for_is_shown_as_it_is_asked_for(tmp_path, capsys):
    run(tmp_path, HOUR)
    for flags in ("--preset hour", "--P_drop 0.1", "--sweep lr_scale=1,2"):
        asked = grid_of(_parse(["run", "table3", "--store", str(tmp_path), *flags.split()]))
        assert same(shown(tmp_path, flags), asked)
    rows = shown(tmp_path, "--rows B")  # rows are a choice among those that were run
    assert rows.preset.name == "hour"
    assert [row.group for row in rows.rows] == ["base", "B", "B"]


def test_rows_that_were_run_in_parts_are_shown_together(tmp_path):
    run(tmp_path, "--preset hour --rows A")
    run(tmp_path, "--preset hour --rows B")
    assert {row.group for row in shown(tmp_path).rows} == {"base", "A", "B"}
    run(tmp_path, "--preset hour")
    assert shown(tmp_path).rows == shown(tmp_path).study.rows


def test_one_of_several_settings_must_be_chosen(tmp_path, capsys):
    run(tmp_path, HOUR)
    run(tmp_path, "--preset night")
    with pytest.raises(UsageError) as error:
        shown(tmp_path)
    choices = "--preset hour --P_drop 0.08 --sweep lr_scale=0.25,0.5,1.0 or --preset night"
    assert str(error.value) == (f"table3 was run in {tmp_path} with 2 settings: choose {choices}.")
    assert shown(tmp_path, "--preset night").preset.name == "night"
    plain = run(tmp_path)  # what the command without flags means comes first
    assert same(shown(tmp_path), plain)
    assert capsys.readouterr().err == (
        f"table3 was run in {tmp_path} with other settings, too: choose {choices}.\n"
    )
    for steps in range(8, 80, 8):
        run(tmp_path, f"--steps {steps}")
    assert same(shown(tmp_path), plain)


def test_another_study_and_another_store_are_not_concerned(tmp_path, capsys):
    run(tmp_path, HOUR)
    assert requests.recall(tmp_path, "table2", pytest.fail) is None
    assert requests.recall(tmp_path / "none", "table3", pytest.fail) is None
    (tmp_path / "studies" / "table3-x.json").write_text("{}")
    assert main(["table", "table3", "--store", str(tmp_path)]) == 2
    assert "table3-x.json is not a request of `run`: remove it." in capsys.readouterr().err
