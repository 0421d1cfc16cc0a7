"""The progress of runs: in a store that others fill, in `run`; and what `prune` deletes."""

import io
import json
import os
import shutil
import time

import pytest

from t2t_jax import terminal
from t2t_jax.commands.arguments import TOPICS
from t2t_jax.runs import names, store, view
from t2t_jax.runs.identity import Job
from t2t_jax.runs.view import Standing, seconds_left, summary
from t2t_jax.terminal import Progress
from tests import stored, toy


class Terminal(io.StringIO):
    def isatty(self):
        return True


RUNNING, WAITING, FINISHED = "running", "stopped", "finished"


def standing(status, step, steps, flops=4.0, seconds=None):
    record = {} if seconds is None else {"seconds_per_step": seconds}
    return Standing(status, step, steps, flops, record)


def test_the_time_left_is_that_of_the_remaining_steps_at_the_measured_speed():
    a, b = standing(RUNNING, 30, 100, 4, 0.5), standing(RUNNING, 10, 20, 4, 1.5)
    assert seconds_left([a], 0) == pytest.approx(70 * 0.5)
    assert seconds_left([a, b], 0) == pytest.approx(70 * 0.5)  # the longest is longer than the mean
    done = standing(FINISHED, 50, 50, 8, 2.0)
    waiting = standing(WAITING, 0, 60, 2)  # at (0.5 + 1.5 + 2) seconds for 16 FLOPs
    every = [a, b, done, waiting, waiting]
    remaining = 70 * 0.5 + 10 * 1.5 + 2 * 60 * 2 * 4 / 16
    assert seconds_left(every, 0) == pytest.approx(remaining / 2)
    whole = 100 * 0.5 + 20 * 1.5 + 50 * 2.0 + 2 * 60 * 2 * 4 / 16
    assert seconds_left(every, 3) == pytest.approx((remaining + 3 * whole / 5) / 2)


def test_a_run_that_is_held_but_makes_no_steps_is_not_counted_as_running():
    held = standing(RUNNING, 0, 100)
    assert seconds_left([held], 2) is None
    assert summary([held], 2) == "0 of 3 runs have ended; 0 running; 3 waiting"
    steps = standing(RUNNING, 50, 100, 4, 0.5)
    assert seconds_left([steps, held], 0) == pytest.approx((50 + 100) * 0.5)
    assert summary([steps, held, standing("failed", 3, 9)], 0) == (
        "1 of 3 runs have ended, 1 of them failed; 1 running; 1 waiting; about 1 min 15 s left"
    )


def begin(home, name, step=0):
    """Adds a run of the demo to a store, with a record at a step."""
    grid = stored.grid(home)
    directory = home / name
    directory.mkdir()
    names.add(directory, f"table3-demo/{name}/0")
    fields = dict(corpus="grammar", steps=1280, d_model=grid.config(grid.rows[0]).model.d_model)
    (directory / "config.json").write_text(json.dumps(fields))
    if step:
        record(directory, step)
    return directory


def record(directory, step):
    line = {"step": step, "seconds_per_step": 0.25, "nll": 2.0, "tokens_per_second": 4000.0}
    with (directory / "metrics.jsonl").open("a") as file:
        file.write(f"{json.dumps(line)}\n")


def finish(directory):
    scoring = {"dev_perplexity": 3.0, "steps": 1280, "scores": {}, "scoring": {}}
    store.write_result(directory, scoring)


def test_the_runs_of_a_store_are_listed_with_the_time_left(tmp_path, call):
    """Two are at work, one is not begun, and one is stopped after its first half."""
    first, second, *_ = (begin(tmp_path, n, k) for n, k in zip("abd", (320, 690, 640), strict=True))
    names.add(tmp_path / "c", "table3-demo/c/0")  # not begun: it has no config
    with toy.held(first), toy.held(second):
        out, err = call("list", "runs", "--store", tmp_path)
        # 960, 590 and 640 steps of 0.25 s, and a run of 1,280 for the one that is not begun
        assert err == "0 of 4 runs have ended; 2 running; 2 waiting; about 7 min 14 s left\n"
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["running", "running", "stopped"]
    for run in (first, second):
        finish(run)
    out, err = call("list", "runs", "--store", tmp_path)
    assert err == "2 of 4 runs have ended; 0 running; 2 waiting\n"


@pytest.fixture
def jobs(tmp_path):
    """One done, one failed, one at work, one waiting."""
    grid = stored.grid(tmp_path, 4)
    made = [
        Job(grid.run_name(row, 0), grid.config(row), tmp_path / str(i), ("dev",))
        for i, row in enumerate(grid.rows)
    ]
    scores = {"dev": {"bleu": {"score": 12.345, "name": "BLEU", "signature": ""}}}
    made[0].directory.mkdir()
    scoring = {"dev": {"statistics": store.write_statistics(made[0].directory, "dev", [[1]])}}
    result = {"dev_perplexity": 5.5, "scores": scores, "scoring": scoring}
    store.write_result(made[0].directory, result)
    store.write_failure(made[1].directory, RuntimeError("[boom] it went wrong"))
    made[2].directory.mkdir()
    records = [
        {"step": 320, "nll": 1.5, "tokens_per_second": 12345.0, "seconds_per_step": 0.5},
        {"step": 320, "dev_perplexity": 4.0},
    ]
    lines = "".join(f"{json.dumps(r)}\n" for r in records)
    (made[2].directory / "metrics.jsonl").write_text(lines)
    return made


def seen(jobs, out, monkeypatch, age=-1):
    """What is shown of runs at work whose last record has an age in seconds when it begins."""
    written = time.time() - age
    os.utime(jobs[2].directory / "metrics.jsonl", (written, written))
    monkeypatch.setenv("COLUMNS", "70")
    watched = view.View(jobs, Progress(out))
    watched.shown.clear()  # as if they had not been done when it began
    watched.refresh()
    return out.getvalue()


def test_runs_at_work_done_and_waiting_are_shown_on_a_terminal(jobs, monkeypatch):
    text = seen(jobs, Terminal(), monkeypatch)
    assert "table3-demo/base/0: PPL 5.500  BLEU 12.35  (1 of 4, about 18 min 40 s left)" in text
    assert "failed: RuntimeError('[boom] it went wrong')  (2 of 4" in text
    line = "2 of 4 runs have ended, 1 of them failed; 1 running; 1 waiting; about 18 min 40 s left"
    assert text.endswith(f"\x1b[K{line[:69]}")  # which fills the width, so that it is overwritten
    text = seen(jobs, Terminal(), monkeypatch, age=1)  # its process was killed
    assert "0 running; 2 waiting" in text


def test_a_pipe_gets_a_line_for_each_run_that_ends_and_one_a_minute_with_an_estimate(
    jobs, monkeypatch
):
    """A clock of ten minutes, at the fifth of which the first run ends."""
    now, out = [1000.0], io.StringIO()
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    written = time.time() + 9
    os.utime(jobs[2].directory / "metrics.jsonl", (written, written))
    watched = view.View(jobs, Progress(out))
    watched.shown.remove(jobs[0])
    for second in range(600):
        now[0] += 1
        ended = jobs[:1] if second >= 300 else []
        monkeypatch.setattr(view, "ended", ended.__contains__)
        watched.refresh()
    first, *lines = out.getvalue().splitlines()
    assert first == "2 of 4 runs are done already"
    assert all(line.endswith("left") or "left)" in line for line in lines)
    assert ["PPL 5.500" in line for line in lines].count(True) == 1
    assert len(lines) == 10


def test_what_failed_before_it_was_a_run_is_listed_with_the_log_of_its_worker(tmp_path, call):
    """A row of a study whose code raises an error before its config is written."""
    finish(begin(tmp_path, "done", 60))
    names.add(tmp_path / "lost", "mine-demo/row/0")
    log = tmp_path / "workers" / "worker-1.txt"
    store.write_failure(tmp_path / "lost", ValueError("2 is no shape\nof an array"), log)
    out, err = call("list", "runs", "--store", tmp_path)
    assert err == "2 of 2 runs have ended, 1 of them failed; 0 running; 0 waiting\n"
    _, *lines = out.splitlines()
    line = next(x for x in lines if x.startswith("mine-demo/row/0"))
    assert line.split()[1] == "failed"
    assert line.endswith(
        f"{tmp_path / 'lost'}: ValueError('2 is no shape\\nof an array') (traceback: {log})"
    )
    assert len(lines) == 2


@pytest.mark.parametrize(
    "words",
    [
        *("prune --store {}/none", "list runs --store {}/none", "run table3 --workers 0"),
        *("list {}/empty.py", "run {}/empty.py", "table table2 --store {demo}"),
        *("report table2 --store {demo}", "plot table2 --store {demo}", "help nothing"),
    ],
)
def test_what_is_not_there_is_wrong_use(words, tmp_path, refused):
    text = 'from t2t_jax.study import study\n@study("", columns="", split="")\ndef empty(): {}\n'
    (tmp_path / "empty.py").write_text(text.format("return []"))
    refused(words.format(tmp_path, demo=stored.DEMO).split())


def test_help_alone_lists_its_topics(call):
    lines = call("help").out.splitlines()
    assert [line.split()[0] for line in lines] == TOPICS


@pytest.fixture
def home(tmp_path):
    """Three finished runs, one of them without final parameters, and two that are not finished."""
    for name, size in (("a", 3000), ("b", 50_000), ("only", 7), ("stopped", 9), ("failed", 8)):
        run = begin(tmp_path, name, 60)
        for file in ("checkpoints/320/params/x", "final/params/x"):
            (run / file).parent.mkdir(parents=True)
            (run / file).write_bytes(b"x" * size)
        if name in ("a", "b", "only"):
            finish(run)
    shutil.rmtree(tmp_path / "only" / "final")
    store.write_failure(tmp_path / "failed", RuntimeError("boom"))
    for left in ("damaged-9", "checkpoints.pruned"):  # the second is left by a killed `prune`
        (tmp_path / "b" / left).mkdir()
        (tmp_path / "b" / left / "y").write_bytes(b"y" * 100_000)
    return tmp_path


def files(home):
    return {str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() and p.name != "lock"}


def test_what_finished_runs_no_longer_need_is_pruned(home, call):
    before, words = files(home), ["prune", "--store", home]
    said = call(*words, "--dry-run").out
    assert f"table3-demo/b/0 ({home / 'b'}): 0." in said
    assert "2 unfinished runs are kept" in said
    assert files(home) == before
    with toy.held(home / "b"):
        assert f"table3-demo/b/0 ({home / 'b'}) is in use" in call(*words).out
    assert {x for x in before - files(home) if x.startswith("b/")} == set()
    assert call(*words).out.endswith(" MB freed; 2 unfinished runs are kept as they are\n")
    gone = {f"{run}/checkpoints/320/params/x" for run in "ab"}
    gone |= {"b/damaged-9/y", "b/checkpoints.pruned/y"}
    assert files(home) == before - gone
    assert "0 finished runs: 0.0 MB freed" in call(*words).out
