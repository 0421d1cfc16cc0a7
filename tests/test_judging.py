"""Contrastive accuracy as a metric: it is kept in runs, compared by pairs and shown by error."""

import dataclasses
import json
import math
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.commands import shared
from t2t_jax.data import synthetic
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import contrastive
from t2t_jax.evaluation.contrastive import Judgement
from t2t_jax.runs import judging, loading, store
from t2t_jax.study import comparison, distances, metric, notes, publish, requests, tidy
from t2t_jax.study.measuring import judged, measure
from t2t_jax.study.presets import preset
from tests import stored

PAIRS = 900
ROWS = ["base", "A:h=1,d_k=512,d_v=512", "A:h=4,d_k=128,d_v=128"]


def right(seed, p=0.7, n=PAIRS):
    return np.random.default_rng(seed).random(n) < p


def pairs(values):
    return [Judgement("a", 1 + i % 3, bool(x)) for i, x in enumerate(values)]


@pytest.fixture
def grid(tmp_path):
    """Three rows of the demo, in a store that can be written to."""
    made = stored.grid(stored.unpacked(tmp_path))
    return dataclasses.replace(made, metrics=("BLEU", "contrastive"))


@pytest.fixture
def entries(grid):
    return stored.collecting.collect(grid)


def three_seeds(entries):
    """Each run three times, in directories of their own."""
    out = []
    for entry in entries:
        (run,) = entry.runs
        homes = [run.directory.with_name(f"{run.directory.name}-{i}") for i in range(3)]
        for home in homes:
            home.mkdir()
        runs = (dataclasses.replace(run, seed=i, directory=x) for i, x in enumerate(homes))
        out.append(dataclasses.replace(entry, runs=tuple(runs)))
    return out


def compared(grid, entries):
    return comparison.compare_with_base(grid, entries, measure(grid, entries, None))


def test_a_table_judges_runs_once_and_compares_the_same_pairs(grid, monkeypatch, call):
    monkeypatch.setattr(shared, "_splits_of", lambda *_: {})
    values = {name: right(i, 0.6 + i / 10) for i, name in enumerate(ROWS)}
    made, rows = [], {e.runs[0].directory: e.row.name for e in stored.collecting.collect(grid)}

    def score(directory, cache, report):
        made.append(rows[directory])
        found = pairs(values[made[-1]])
        score = 100 * values[made[-1]].mean()
        return dict(name="contrastive", score=score, signature="grade:g|set:7"), found

    monkeypatch.setattr(judging, "score", score)
    for directory, name in rows.items():
        if name != ROWS[2]:
            (directory / "final").mkdir()
    words = ["table", "table3", "--store", grid.home, "--metrics", "BLEU,contrastive"]
    words += ["--rows", *ROWS, "--format"]
    requests.remember(grid.home, dataclasses.replace(grid, metrics=("BLEU", "contrastive")))
    said = call("table", "table3", "--store", grid.home)
    assert not made  # the columns of `run` are shown, but nothing is judged without being asked
    assert "contrastive needs `--metrics` or `run`, and parameters." in said.out
    assert "judging" not in said.err
    said = call(*words, "json")
    assert "judging 2 of 3 runs" in said.err
    base, row, blank = json.loads(said.out)
    assert base["contrastive"]["mean"] == pytest.approx(100 * values["base"].mean())
    assert row["runs"][0]["contrastive"] == pytest.approx(100 * values[ROWS[1]].mean())
    assert blank["contrastive"] is None
    differences = values[ROWS[1]].astype(float) - values["base"]
    difference, half = row["contrastive_difference"], 196 * differences.std() / math.sqrt(PAIRS)
    assert difference["size"] == pytest.approx(100 * differences.mean())
    for end, sign in (("low", -1), ("high", 1)):
        assert difference[end] == pytest.approx(difference["size"] + sign * half, abs=half / 5)
    printed = call(*words, "text").out
    assert made == ROWS[:2]  # judged once
    assert f"{100 * values['base'].mean():.2f}" in printed
    assert "grade:g|set:7;" in printed
    assert f"contrastive needs `--metrics` or `run`, and parameters for {ROWS[2]}." in printed
    data = {x["row"]: x for x in tidy.tables([grid.home], ["table3"], pytest.fail, {})[0]}
    assert data["base"]["contrastive"] == base["contrastive"]["mean"]
    assert data["base"]["contrastive_signature"] == "grade:g|set:7"
    assert data[ROWS[2]]["contrastive"] is None


SLOW_JUDGE = """
import sys
from pathlib import Path
from t2t_jax.evaluation.contrastive import Judgement
from t2t_jax.runs import judging, store

def score(*_):
    print("judging", flush=True)
    sys.stdin.readline()
    judgements = [Judgement("a", 1, True), Judgement("a", 1, False)]
    return dict(name="contrastive", score=50.0, signature="grade:g"), judgements

judging.score, directory = score, Path(sys.argv[1])
judging.judged(directory, store.read_result(directory), directory, print)
"""


def test_a_run_that_another_process_judges_is_waited_for(entries, monkeypatch):
    """Two processes that end a study together both print its table."""
    directory = entries[0].runs[0].directory
    (directory / "final").mkdir()
    monkeypatch.setattr(judging, "score", pytest.fail)
    words = [sys.executable, "-c", SLOW_JUDGE, str(directory)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "judging\n"
        before = store.read_result(directory)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(judging.judged, directory, before, directory, print)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            other.communicate("\n", timeout=60)
            result = waiting.result(timeout=60)
    assert result == store.read_result(directory) != before
    assert [x.right for x in judging.kept(directory, result)] == [True, False]


def test_judgements_are_published_and_count_as_missing_if_they_are_edited(grid, entries):
    entries = stored.judged(entries, [[pairs(right(i))] for i in range(3)])
    contents = publish.runs_of(grid, compared(grid, entries))
    for i, entry in enumerate(entries):
        kept = contents[entry.runs[0].directory.name]["contrastive.statistics.json"]
        assert [x for *_, x in kept] == right(i).tolist()
    run = entries[0].runs[0]
    assert [x for *_, x in judging.kept(run.directory, run.result)] == right(0).tolist()
    path = run.directory / "contrastive.statistics.json"
    path.write_text(path.read_text().replace("false", "true", 1))
    assert judging.kept(run.directory, run.result) == []


def test_rows_are_tested_over_seeds_and_pairs(grid, entries):
    """The third row has base's judgements, by other seeds."""
    values = [[right(10 * i + seed, p) for seed in range(3)] for i, p in enumerate((0.6, 0.8))]
    values.append(values[0][::-1])
    made = [[pairs(x) for x in of_row] for of_row in values]
    base, better, equal = compared(grid, stored.judged(three_seeds(entries), made))
    assert base.measure("contrastive").spread.mean == pytest.approx(100 * np.mean(values[0]))
    assert base.measure("contrastive").difference is None
    assert better.measure("contrastive").significant
    assert equal.measure("contrastive").difference.size == pytest.approx(0)
    assert not equal.measure("contrastive").significant


def test_a_row_that_was_judged_on_another_set_is_not_tested(grid, entries):
    made = [[pairs(right(i))] for i in range(3)]
    entries = [
        *stored.judged(entries[:2], made[:2]),
        *stored.judged(entries[2:], [[pairs(right(2, n=700))]], "set:2"),
    ]
    lines = compared(grid, entries)
    assert lines[1].measure("contrastive").difference
    assert lines[2].measure("contrastive").difference is None
    assert lines[2].measure("contrastive").values == (100 * right(2, n=700).mean(),)
    said = notes.notes(grid, lines)
    assert any(x.startswith("contrastive is not tested") and ROWS[2] in x for x in said)
    assert any("set:1; set:2" in x for x in said)
    assert list(distances.contrastive_accuracies(lines)) == ROWS[:2]


def test_a_row_whose_runs_were_judged_on_several_sets_is_not_shown_by_error(grid, entries):
    entries = three_seeds(entries)
    made = stored.judged(entries, [[pairs(right(i)) for i in range(3)]] * 3)
    alone = dataclasses.replace(entries[0], runs=entries[0].runs[:1])
    (other,) = stored.judged([alone], [[pairs(right(3))]], "set:2")
    mixed = dataclasses.replace(made[0], runs=(*other.runs, *made[0].runs[1:]))
    assert list(distances.contrastive_accuracies([mixed, *made[1:]])) == ROWS[1:]


def test_a_sweep_on_dev_leaves_no_pairs_out(grid, entries, monkeypatch):
    """Every other sentence of dev chooses the values, and the rest is scored."""
    made = stored.judged(entries, [[pairs(right(i))] for i in range(3)])
    results = {run.directory: run.result for entry in made for run in entry.runs}
    monkeypatch.setattr(judging, "judged", lambda directory, *_: results[directory])
    swept = [dataclasses.replace(entry, untuned=entry) for entry in entries]
    lines = compared(grid, judged(grid, swept, grid.home, pytest.fail))
    for i, line in enumerate(lines):
        for x in (line, line.untuned):
            assert x.measure("contrastive").values == (100 * right(i).mean(),)


def test_accuracy_by_error_and_distance_is_the_mean_over_seeds(grid, entries):
    """Wilson's interval is over pairs: its ends solve (p - x)^2 = z^2 x (1 - x) / n."""
    entries = three_seeds(entries)
    kinds = [("gender", 1), ("gender", 1), ("omission", 0), ("gender", 8), ("gender", 8)]
    seeds = [[1, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0]]
    made = [[[(*kind, bool(x)) for kind, x in zip(kinds, seed, strict=True)] for seed in seeds]]
    some = [*stored.judged(entries[:2], made * 2), entries[2]]
    rows = distances.contrastive_accuracies(compared(grid, some))
    assert list(rows) == ROWS[:2]  # the third has not been judged
    expected = {
        ("gender", ""): (5 / 12, 4), ("gender", "1 to 2"): (4 / 6, 2),
        ("gender", "7 to 9"): (1 / 6, 2), ("omission", ""): (2 / 3, 1),
    }  # fmt: skip
    assert {(x.type, x.distance): (x.share, x.n) for x in rows[ROWS[1]]} == {
        key: (pytest.approx(100 * p), n) for key, (p, n) in expected.items()
    }
    for x in rows[ROWS[0]]:
        for end in (x.low / 100, x.high / 100):
            left, squared = (x.share / 100 - end) ** 2, 1.96**2 * end * (1 - end) / x.n
            assert math.isclose(left, squared, abs_tol=1e-12)
    (curve,) = distances.contrastive_curves(rows)
    assert curve.parts == [("1 to 2", 2), ("7 to 9", 2)]
    assert curve.rows == {name: [pytest.approx(200 / 3), pytest.approx(50 / 3)] for name in rows}
    gender, omission = distances.contrastive_table(rows).groups[1]
    assert gender[:3] == (ROWS[1], "gender", "4")
    assert [x.split()[0] for x in gender[3:]] == ["41.7", "66.7", "16.7"]
    assert omission[1:3] == ("omission", "1")
    assert omission[4:] == ("", "")


def test_a_study_of_another_corpus_is_refused(grid):
    grid.check()
    with pytest.raises(UsageError, match="of grammar, but table3 reads multi30k: leave it out"):
        dataclasses.replace(grid, preset=preset("multi30k")).check()
    with pytest.raises(UsageError, match="cannot be called 'contrastive'"):
        metric("contrastive", signature="")


def test_a_run_is_judged_on_new_pairs_of_its_grade(monkeypatch, tmp_path):
    """Its training pairs are a sample of the corpus, of which the set has none."""
    c = config.replace(config.Config(), corpus="grammar", grade="hard", pairs=50)
    sizes, drawn = [], []

    def opened(data, cache, report):
        sizes.append(data.pairs)
        vocabulary = types.SimpleNamespace(decode=lambda rows: [str(x) for x in rows])
        split = types.SimpleNamespace(source=["x", "y"])
        return types.SimpleNamespace(vocabulary=vocabulary, splits={"train": split})

    def draw(grade, known):
        drawn.append((grade, known))
        return [{"source": "s", "reference": "r", "errors": []}]

    found = [Judgement("a", 1, True), Judgement("a", 2, False), Judgement("b", 0, True)]
    monkeypatch.setattr(store, "read_config", lambda directory: c)
    monkeypatch.setattr(store, "open_dataset", lambda *_: None)
    monkeypatch.setattr(judging, "open_corpus", opened)
    monkeypatch.setattr(synthetic, "_drawn", draw)
    monkeypatch.setattr(loading, "load", lambda directory, report: [None] * 4)
    monkeypatch.setattr(judging, "judge", lambda *_: found)
    score, judgements = judging.score(tmp_path, tmp_path, lambda line: None)
    assert judgements == found
    assert score["score"] == pytest.approx(200 / 3)
    assert score["signature"].startswith("grade:hard|pairs:3|set:")
    assert drawn == [("hard", {"x", "y"})]
    c = config.replace(c, pairs=70_000)
    judging.score(tmp_path, tmp_path, lambda line: None)
    assert sizes == [0, 70_000]
    c, decide = config.replace(c, pairs=50), contrastive.decide
    monkeypatch.setattr(contrastive, "decide", lambda e, right, wrong: decide(e, wrong, right * 2))
    assert judging.score(tmp_path, tmp_path, print)[0]["signature"] != score["signature"]
