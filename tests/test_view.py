"""What a person sees of a grid that runs: on a terminal, and in a pipe."""

import io
import json
import os
import time

import pytest

from t2t_jax.runs import store, view
from t2t_jax.runs.job import Job
from t2t_jax.training.progress import Progress
from tests import stored


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def cells(tmp_path):
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


def seen(cells, out, monkeypatch, age=-1):
    """What is shown of runs at work whose last record has an age in seconds when it begins."""
    written = time.time() - age
    os.utime(cells[2].directory / "metrics.jsonl", (written, written))
    monkeypatch.setenv("COLUMNS", "120")
    before, after = cells[:1], cells[1:]
    with view.View(after, 2, Progress(out)) as watched:
        watched.shown.clear()  # as if they had not been done when it began
        watched.jobs = [*before, *after]
        watched.costs |= {before[0]: 1.0}
        watched.refresh()
    return out.getvalue()


def test_a_terminal_shows_runs_at_work_done_and_waiting(cells, monkeypatch):
    text = seen(cells, Terminal(), monkeypatch)
    assert "table3-demo/base/0: PPL 5.500  BLEU 12.35  (1 of 4)" in text
    assert "failed: RuntimeError('[boom] it went wrong')  (2 of 4)" in text
    assert "2 of 4 runs are done, 1 of them failed" in text
    row = next(line for line in text.splitlines() if "320/1,280" in line)
    for part in ("table3-demo/A:h=4,d_k=128,d_v=128/0", "4.48", "12,345", "8 min 00 s"):
        assert part in row
    assert "waiting: table3-demo/A:h=16,d_k=32,d_v=32/0" in text


def test_a_pipe_shows_plain_lines(cells, monkeypatch):
    text = seen(cells, io.StringIO(), monkeypatch)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "2/4 runs  table3-demo/A:h=4,d_k=128,d_v=128/0 320/1,280" in text
    assert "table3-demo/base/0: PPL 5.500  BLEU 12.35  (1 of 4)" in text


@pytest.mark.parametrize("out", [Terminal, io.StringIO])
def test_a_run_that_was_stopped_is_not_at_work(cells, out, monkeypatch):
    text = seen(cells, out(), monkeypatch, age=1)
    assert "320/1,280" not in text
    if out is Terminal:
        assert "waiting: table3-demo/A:h=4,d_k=128,d_v=128/0, table3-demo/A:h=16" in text
