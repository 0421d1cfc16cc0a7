"""What `run` was asked for in a store is what `table` and others show there."""

import argparse
import re
import shlex

import pytest

from t2t_jax.cli import _parse
from t2t_jax.commands.shared import grid_shown, request
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import metrics
from t2t_jax.study import requests

HOUR = "--preset hour --P_drop 0.08 --sweep lr_scale=0.25,0.5,1 --rows base A"


def run(home, flags=""):
    """Remembers a request as `run` does, without running it."""
    grid = asked(home, flags)
    requests.remember(home, grid)
    return facts(grid)


def asked(home, flags):
    arguments = _parse(["run", "table3", "--store", str(home), *shlex.split(flags)])
    study, request_of_run = request(arguments)
    return request_of_run.grid(study, home)


def facts(grid):
    return grid.title, grid.study, grid.rows, grid.changes, grid.sweep, grid.home, grid.metrics


def shown(home, flags="", command="plot"):
    several = ["table3", "--store", str(home)]
    arguments = _parse([command, *several, *shlex.split(flags)])
    return grid_shown(argparse.Namespace(**{**vars(arguments), "study": "table3", "store": home}))


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
    for command in ("plot", "report"):
        assert facts(shown(tmp_path, command=command)) == ran
        said = capsys.readouterr().err
        assert said.count("\n") == bool(flags)
    if flags:  # the line says the flags, which show the same
        flags = said.partition(f"in {tmp_path}: ")[2].partition("; other flags")[0]
        assert facts(shown(tmp_path, flags)) == ran
        assert not capsys.readouterr().err


def test_the_metrics_of_run_are_shown_until_others_are_asked_for(tmp_path, monkeypatch, capsys):
    run(tmp_path, "--metrics PPL,BLEU@test_long --preset hour")
    assert shown(tmp_path).metrics == ("PPL", "BLEU@test_long")
    assert shown(tmp_path, "--preset hour").metrics == ("PPL", "BLEU@test_long")
    assert not shown(tmp_path, "--preset multi30k").metrics
    assert shown(tmp_path, "--metrics exact", "table").metrics == ("exact",)
    run(tmp_path, "--metrics exact --preset hour")
    assert shown(tmp_path).metrics == ("PPL", "BLEU@test_long", "exact")
    monkeypatch.delitem(metrics.METRICS, "exact")  # of a file that is not imported here
    assert shown(tmp_path).metrics == ("PPL", "BLEU@test_long")
    assert "without exact" in capsys.readouterr().err


def test_the_own_metrics_of_a_study_are_shown_after_others(tmp_path):
    run(tmp_path, f"{HOUR} --metrics chrF2")
    run(tmp_path, HOUR)
    assert not shown(tmp_path).metrics


def test_what_is_asked_for_is_shown_as_it_is_asked_for(tmp_path):
    run(tmp_path, HOUR)
    for flags in ("--preset hour", "--P_drop 0.1", "--sweep lr_scale=1,2"):
        assert facts(shown(tmp_path, flags)) == facts(asked(tmp_path, flags))
    rows = shown(tmp_path, "--rows B")  # rows are a choice among those that were run
    assert rows.preset.name == "hour"
    assert [row.group for row in rows.rows] == ["base", "B", "B"]


def test_rows_that_were_run_in_parts_are_shown_together(tmp_path):
    run(tmp_path, "--preset hour --rows A")
    run(tmp_path, "--preset hour --rows B")
    assert {row.group for row in shown(tmp_path).rows} == {"base", "A", "B"}
    run(tmp_path, "--preset hour")
    assert shown(tmp_path).rows == shown(tmp_path).study.rows


@pytest.mark.full
def test_one_of_several_settings_must_be_chosen(tmp_path, capsys):
    run(tmp_path, HOUR)
    run(tmp_path, "--preset multi30k")
    choices = "--preset hour --P_drop 0.08 --sweep lr_scale=0.25,0.5,1.0 or --preset multi30k"
    with pytest.raises(UsageError, match=f"2 settings: choose {re.escape(choices)}"):
        shown(tmp_path)
    assert shown(tmp_path, "--preset multi30k").preset.name == "multi30k"
    plain = run(tmp_path)  # what the command without flags means comes first
    assert facts(shown(tmp_path)) == plain
    assert f"choose {choices}" in capsys.readouterr().err
    for steps in range(8, 80, 8):
        run(tmp_path, f"--steps {steps}")
    assert facts(shown(tmp_path)) == plain


def test_another_study_and_another_store_are_not_concerned(tmp_path, refused):
    run(tmp_path, HOUR)
    assert requests.recall(tmp_path, "table2", pytest.fail) is None
    assert requests.recall(tmp_path / "none", "table3", pytest.fail) is None
    (tmp_path / "studies" / "table3-x.json").write_text("{}")
    refused(["table", "table3", "--store", tmp_path], "table3-x.json is not a request of `run`")
