"""A study as a person runs it: shared out, killed, repeated, and its table."""

import dataclasses
import html
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t2t_jax import config, files
from t2t_jax.cli import main
from t2t_jax.config import Config
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.prepare import prepare
from t2t_jax.errors import Busy
from t2t_jax.runs import claim, store
from t2t_jax.runs.execution import execute
from t2t_jax.study import declaration, tables
from t2t_jax.study.grid import Grid
from t2t_jax.study.presets import preset
from t2t_jax.terminal import Progress
from tests import stored, toy

STEPS, ROWS = 60, 4


@pytest.fixture(scope="module")
def words(corpus):
    """What follows `run` or `table`, but for the store: base, half of (D), and (E) on a toy."""
    changes = toy.fields(corpus, num_buckets=1, average=1, steps=STEPS, evaluate_every=STEPS // 2)
    return ["table3", "--rows", "D:P_drop=0.0", "D:eps_ls=0.2", "E", *toy.options(changes)]


@pytest.fixture(scope="module")
def run_words(words, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    seeds = ["--seeds", "2", "--base-seeds", "2"]
    return ["run", *words, *seeds, "--workers", "2", "--cache", str(cache)]


@pytest.fixture(scope="module")
def grid(run_words, tmp_path_factory):
    """A finished store."""
    home = tmp_path_factory.mktemp("store")
    assert main([*run_words, "--store", str(home)]) == 0
    return home


@pytest.fixture
def home(grid, tmp_path):
    """A copy of the finished store."""
    return Path(shutil.copytree(grid, tmp_path / "copy"))


def results(home):
    return {p.parent.name: p for p in home.glob("*/result.json")}


@pytest.fixture
def table(words, call):
    """A function that returns what `table` prints of a store."""
    return lambda home, *more: call("table", *words, "--store", home, *more).out


@pytest.fixture
def numbers(table):
    """A function that returns row, seed, perplexity and BLEU of every run of a store."""

    def read(home):
        rows = json.loads(table(home, "--format", "json"))
        return {(x["row"], r["seed"]): (r["PPL"], r["BLEU"]) for x in rows for r in x["runs"]}

    return read


@pytest.fixture
def attention(words, run_words):
    """What follows `run attention` for a row whose runs are those of base."""
    changes, cache = words[words.index("E") + 1 :], run_words[run_words.index("--cache") :]
    return ["--rows", "scaled dot product", *changes, *cache]


def test_every_row_has_one_result_under_every_seed(grid, numbers):
    read = [json.loads(p.read_text()) for p in results(grid).values()]
    assert len(read) == len(numbers(grid)) == 2 * ROWS
    assert all(r["flops"] > 0 < r["memory"] for r in read)
    assert all(0.8 < r["compiled_flops"] / r["flops"] < 3 for r in read)
    for kind in ("png", "svg"):
        assert (grid / f"table3-demo-learning.{kind}").stat().st_size > 10_000
    logs = "".join(p.read_text() for p in (grid / "workers").iterdir())
    assert logs.count("compiling for") == 2  # of learned positions, and of the others


@pytest.mark.usefixtures("undrawn")
def test_what_is_done_is_not_done_again(grid, run_words, call):
    before = {p: p.stat().st_mtime_ns for p in results(grid).values()}
    logs = {p: p.read_text() for p in (grid / "workers").iterdir()}
    out = call(*run_words, "--store", grid).out
    assert {p: p.read_text() for p in (grid / "workers").iterdir()} == logs  # no worker began
    assert {p: p.stat().st_mtime_ns for p in results(grid).values()} == before
    assert "base" in out


def test_the_table_is_that_of_the_runs(grid, table):
    rows = json.loads(table(grid, "--format", "json"))
    assert [r["row"] for r in rows][:2] == ["base", "D:P_drop=0.0"]
    for row in rows:
        values = [run["PPL"] for run in row["runs"]]
        assert row["PPL"]["n"] == len(values) == 2
        assert row["PPL"]["mean"] == pytest.approx(statistics.mean(values))
        assert row["PPL"]["deviation"] == pytest.approx(statistics.stdev(values))
        for run in row["runs"]:
            result = json.loads((Path(run["directory"]) / "result.json").read_text())
            assert run["BLEU"] == result["scores"]["dev"]["bleu"]["score"]
    assert rows[0]["BLEU_difference"] is None
    assert rows[1]["BLEU_difference"]["size"] == pytest.approx(
        rows[1]["BLEU"]["mean"] - rows[0]["BLEU"]["mean"]
    )
    text = table(grid)
    best = min(r["PPL"]["mean"] for r in rows)
    assert f"[{best:.3f} ± " in text
    assert "24.6" in text.split("(D)")[1]  # the paper's BLEU of P_drop 0
    markdown = table(grid, "--format", "md").splitlines()
    cells = [line.count("|") for line in markdown if line.startswith("|")]
    assert len(set(cells[: ROWS + 2])) == 1


def test_a_table_without_flags_has_the_settings_of_run(grid, call, table):
    asked = table(grid, "--format", "json")
    out, err = call("table", "table3", "--store", grid, "--format", "json")
    assert out == asked
    assert f" --steps {STEPS} " in err
    assert len(list((grid / "studies").iterdir())) == 1  # which workers did not add to


def test_metrics_are_computed_from_the_translations_of_finished_runs(grid, run_words, table):
    before = {p: p.stat().st_mtime_ns for p in results(grid).values()}
    cache = run_words[-2:]
    form = "--metrics", "BLEU,chrF2,PPL", "--format"
    rows = json.loads(table(grid, *form, "json", *cache))
    for row in rows:
        read = [json.loads((Path(r["directory"]) / "result.json").read_text()) for r in row["runs"]]
        kept = [result["scores"]["dev"]["chrf"]["score"] for result in read]
        assert [run["chrF2"] for run in row["runs"]] == pytest.approx(kept)
        assert row["chrF2"]["mean"] == pytest.approx(statistics.mean(kept))
        assert row["chrF2_difference"] is None or row["chrF2_difference"]["p"] > 0
    assert rows[1]["chrF2_difference"]["over"] == "seeds and sentences"
    text = table(grid, *form, "text", *cache)
    assert text.index("BLEU") < text.index("chrF2") < text.index("PPL")
    assert "chrF2 on dev: nrefs:1|case:mixed|" in text
    assert {p: p.stat().st_mtime_ns for p in results(grid).values()} == before


def start(run_words, home):
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_jax.cli", *run_words, "--store", str(home)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.full
def test_a_killed_grid_ends_as_one_left_alone(grid, run_words, tmp_path, numbers):
    for made in ("metrics.jsonl", "result.json"):
        process = start(run_words, tmp_path)
        while not list(tmp_path.glob(f"*/{made}")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert main([*run_words, "--store", str(tmp_path)]) == 0
    assert numbers(tmp_path) == numbers(grid)


@pytest.mark.full
def test_two_who_begin_together_share_a_grid(grid, run_words, tmp_path, numbers):
    processes = [start([*run_words, "--workers", "1"], tmp_path) for _ in range(2)]
    for process in processes:
        error = process.communicate(timeout=300)[1].decode()
        assert process.returncode == 0, error
    logs = "".join(p.read_text() for p in (tmp_path / "workers").iterdir())
    assert logs.count("translating dev") == 2 * ROWS  # none was run twice
    assert numbers(tmp_path) == numbers(grid)


def test_a_population_whose_first_run_is_held_is_left_whole(corpus, tmp_path):
    fields = toy.fields(corpus, steps=2, evaluate_every=2)
    fields |= {name: str(fields[name]) for name in ("train", "dev", "test")}
    c = config.replace(Config(), **fields)
    dataset = open_dataset(prepare(c.data, tmp_path / "cache"))
    runs = [(config.replace(c, seed=seed), tmp_path / str(seed)) for seed in (0, 1)]
    with toy.held(tmp_path / "0"):
        outcomes = execute(runs, dataset, lambda _: False, Progress())
    assert [type(outcome) for outcome in outcomes] == [Busy, Busy]
    assert not list(tmp_path.rglob("metrics.jsonl"))


def test_workers_end_with_who_started_them(run_words, tmp_path):
    """The grid can go on at once: nothing is left behind that holds its runs."""
    process = start(run_words, tmp_path)
    while not list(tmp_path.glob("*/lock")):  # a worker is at work on a run
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.kill()
    process.communicate()
    for _ in range(600):
        try:
            for lock in tmp_path.glob("*/lock"):
                with claim.lock(lock.parent):
                    pass
            break
        except Busy:
            time.sleep(0.1)
    else:
        pytest.fail("a worker is still at work a minute after the grid was killed")


def of_row(home, row, seed=0):
    """The directory of a row's run."""
    fields = {"positions": "learned"} if row == "E" else {"P_drop": 0.0}
    for path in home.glob("*/config.json"):
        c = json.loads(path.read_text())
        if c["seed"] == seed and fields.items() <= c.items():
            return path.parent
    raise AssertionError(row)


def is_base(result):
    c = json.loads((result.parent / "config.json").read_text())
    return (c["seed"], c["positions"], c["P_drop"], c["eps_ls"]) == (0, "sinusoid", 0.06, 0.1)


def other_data(directory):
    path = directory / "data.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data": "another"}))
    return "begun with data another"


def no_file(directory):
    (directory / "dev.de").unlink()
    (directory / "dev.de").mkdir()
    return "Is a directory"


@pytest.mark.full
def test_rows_that_fail_are_named_and_the_others_go_on(grid, home, run_words, numbers, call):
    harms = {of_row(home, "E"): other_data, of_row(home, "D", 1): no_file}
    others = [of_row(home, "E", 1), of_row(home, "D")]
    messages = [harm(directory) for directory, harm in harms.items()]
    for directory in (*harms, *others):
        (directory / "result.json").unlink()
    out, err = call(*run_words, "--store", home, code=1)
    assert f"2 of {2 * ROWS} runs failed" in err
    assert "E:positions=learned: seed 0 failed: " in out
    assert "D:P_drop=0.0: seed 1 failed: " in out
    assert all(message in out for message in messages)
    assert all((directory / "result.json").exists() for directory in others)
    for directory in harms:
        assert not (directory / "result.json").exists()
        shutil.rmtree(directory)
    assert main([*run_words, "--store", str(home)]) == 0
    assert numbers(home) == numbers(grid)


def test_what_is_kept_gives_the_same_table(
    grid, words, run_words, tmp_path, monkeypatch, table, numbers, call, refused
):
    monkeypatch.setenv("T2T_JAX_CACHE", run_words[-1])
    (kept,) = map(Path, call("publish", *words, "--store", grid, "--to", tmp_path).out.splitlines())
    assert kept.parent == tmp_path
    assert numbers(kept) == numbers(grid)
    for home in (grid, kept):  # the likelihoods of sentences give PPL an interval
        rows = json.loads(table(home, "--format", "json"))[1:]
        assert all(row["PPL_difference"]["over"] == "seeds and sentences" for row in rows)
    kinds = "agreement", "cost", "differences", "learning"
    plots = [f"table3-demo-{kind}.png" for kind in kinds]
    assert sorted(path.name for path in kept.iterdir()) == [
        "runs.jsonl.xz",
        "studies",
        "table.md",
        *plots,
    ]
    text = lzma.decompress((kept / "runs.jsonl.xz").read_bytes()).decode()
    runs = [json.loads(line) for line in text.splitlines()]
    assert [run["config.json"]["seed"] for run in runs if "dev.de" in run] == [0] * ROWS
    assert {run["directory"] for run in runs} == results(grid).keys()
    assert runs[0]["config.json"]["train"] == ""  # where the corpus lay
    text = table(grid, "--format", "md", "--notes")
    assert (kept / "table.md").read_text() == text == table(kept, "--format", "md", "--notes")
    begun = shutil.copytree(grid, tmp_path / "begun")
    results(begun).popitem()[1].unlink()  # a run that has not ended is not published
    call("publish", *words, "--store", begun, "--to", tmp_path)
    assert (kept / "table.md").read_text() == table(kept, "--format", "md", "--notes")
    (tmp_path / "none").mkdir()
    empty = ["publish", *words, "--store", tmp_path / "none", "--to", tmp_path]
    refused(empty, "no finished run")


@pytest.mark.full
def test_plots_and_a_page_are_made_of_results(
    grid, home, words, run_words, tmp_path, call, refused, monkeypatch
):
    monkeypatch.setenv("T2T_JAX_CACHE", run_words[-1])

    def report(home, *more):
        page, said = call("report", *words, "--store", home, *more)
        return Path(page.strip()), said

    for plot in home.glob("*.png"):
        plot.unlink()
    page, _ = report(home)
    assert page == home / "table3-demo.html"
    assert 'id="samples"' in page.read_text()
    shown = html.unescape(page.read_text().split("<pre>t2t-jax")[-1].split("</pre>")[0])
    _, *others = f"t2t-jax{shown}".splitlines()  # `run`, the first, has no more to do
    assert len(others) == 3
    printed = "".join(call(*shlex.split(line, comments=True)[1:]).out for line in others)
    made = [line for line in printed.splitlines() if line.endswith(".png")]
    assert len(made) == 4
    assert all(Path(path).exists() for path in made)
    page, said = report(home, "--test", "other")
    assert "without the sentences of text" in said
    assert 'id="samples"' not in page.read_text()
    (tmp_path / "none").mkdir()
    refused(
        ["report", *words, "--store", grid, "--out", "/dev/null/x"], "cannot write to /dev/null"
    )
    for command in ("plot", "report"):
        refused([command, *words, "--store", tmp_path / "none"], "no finished run")


@pytest.mark.full
def test_a_task_is_one_run_alone(grid, run_words, tmp_path, table, call, refused):
    home = tmp_path / "store"
    shutil.copytree(grid, home)
    rows = json.loads(table(home, "--format", "json"))
    for run in (*rows[1]["runs"], *rows[3]["runs"]):
        shutil.rmtree(run["directory"])
    before = set(results(home))
    task = ["--store", str(home), "--task"]
    call(*run_words, *task, "7")
    [made] = set(results(home)) - before
    assert made == Path(rows[3]["runs"][1]["directory"]).name
    refused([*run_words, *task, "8"], "0 to 7")


def test_a_job_array_has_a_task_for_every_run(run_words, tmp_path, call):
    assert call(*run_words, "--store", tmp_path, "--tasks").out == f"{2 * ROWS}\n"
    assert not any(tmp_path.iterdir())


def test_an_edited_result_counts_as_missing(home, words, call, numbers):
    path = next(iter(results(home).values()))
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"dev_perplexity": 1.0}))
    assert len(numbers(home)) == 2 * ROWS - 1
    out, err = call("table", *words, "--store", home)
    assert re.search(rf"result.json of table3-demo:.*N=1.*/\d \({path.parent}\) was edited", err)
    assert f"stopped at step {STEPS} of {STEPS}" in out
    path.write_text(path.read_text()[:50])
    assert len(numbers(home)) == 2 * ROWS - 1


def test_results_of_other_code_are_not_mixed_in_silence(home, words, call, table):
    old, *others = (path.parent for path in results(home).values())
    stored.made_by_other_code(old)
    mixed = table(home, "--notes")
    assert "†, not compared with other rows: code 0123456789ab" in mixed
    assert "0123456789ab" in mixed.partition("Made by code ")[2].partition(".")[0]
    for directory in others:
        stored.made_by_other_code(directory)
    text, said = call("table", *words, "--store", home, "--notes")
    assert "8 of 8 runs compute something else than this code (step)\n" in said
    assert "†" not in text
    assert text.count("Made by code 0123456789ab.\n") == 1
    stored.made_by_other_code(of_row(home, "E"), "likelihood")
    (home / "programs.json").unlink()  # nothing was compared
    text, said = call("table", *words, "--store", home)
    assert "†" in text
    assert "8 of 8 runs are not compared with this code" in said


@pytest.mark.usefixtures("undrawn")
@pytest.mark.full
def test_run_says_what_was_made_by_other_code_and_makes_it_again_if_asked(
    grid, home, run_words, numbers, call
):
    old = of_row(home, "E")
    stored.made_by_other_code(old)
    edited = (old / "result.json").read_text()
    out, err = call(*run_words, "--store", home)
    assert f"this code computes another step in 1 of {2 * ROWS} runs: " in err
    assert "they are kept" in err
    assert "†" in out
    assert (old / "result.json").read_text() == edited
    out, err = call(*run_words, "--store", home, "--rerun", "--workers", "1")
    assert "they are made again; the old ones are in" in err
    assert "†" not in out
    assert (home / "replaced" / f"{old.name}-0" / "result.json").read_text() == edited
    assert numbers(home) == numbers(grid)


@pytest.mark.parametrize(
    ("file", "change", "name"),
    [
        ("data.json", {"dtype": "bfloat16"}, "dtype bfloat16"),
        ("environment", {"device": "1 x NVIDIA H200"}, "device NVIDIA H200"),
        ("environment", {"jax": "0.11.2"}, "libraries jax 0.11.2"),
    ],
)
def test_what_else_a_number_comes_from_is_not_mixed_in_silence(file, change, name, home, table):
    directory = of_row(home, "E")
    if file == "environment":
        result = store.read_result(directory)
        store.write_result(directory, result | {file: result[file] | change})
    else:
        facts = json.loads((directory / file).read_text())
        files.write_json(directory / file, facts | change)
    rows = json.loads(table(home, "--format", "json"))
    assert [row["BLEU_difference"] is None for row in rows] == [True, False, False, True]
    assert f"†, not compared with other rows: {name}" in table(home)


def test_a_table_says_what_was_trained_at_once(home, table):
    assert "at once with others" not in table(home).split("Cost of a run")[0]
    for seed in (0, 1):
        directory = of_row(home, "E", seed)
        store.write_result(directory, store.read_result(directory) | {"trained_together": 2})
    assert "one vectorised program" not in table(home)
    assert "one vectorised program: E:positions=learned." in table(home, "--notes")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.full
def test_a_run_serves_every_study_that_shares_its_config(
    grid, home, attention, numbers, call, refused
):
    """It is scored on another split from its parameters, and not trained again."""
    base = next(p.parent for p in results(home).values() if is_base(p))
    trained = (base / "metrics.jsonl").stat().st_mtime_ns
    table, run = (["attention", *attention, "--store", home], ["--workers", "1"])
    assert "is trained, but not scored on test: `run` scores it" in call("table", *table).out
    out = call("run", *table, *run).out
    assert "not scored" not in out.split("seed 1")[0]
    both = call("table", *table, "--metrics", "BLEU,BLEU@dev", "--format", "json")
    of_base = json.loads(both.out)[0]["runs"][0]
    scores = json.loads((base / "result.json").read_text())["scores"]
    for name, split in (("BLEU", "test"), ("BLEU@dev", "dev")):
        assert of_base[name] == scores[split]["bleu"]["score"]
    refused(["run", *table, *run, "--metrics", "BLEU@dve"], "did you mean 'dev'?")
    assert (base / "metrics.jsonl").stat().st_mtime_ns == trained
    assert len(results(home)) == 2 * ROWS
    for name in (base, "table3/base/0", "attention/scaled dot product/0"):
        evaluated = call("evaluate", name, "--store", home, "--split", "test", *attention[-2:])
        assert f"{scores['test']['bleu']['score']:6.2f}  BLEU " in evaluated.out
    listed = call("list", "runs", "--store", home).out.splitlines()
    lines = [line for line in listed if str(base) in line]
    assert [line.split(":")[0] for line in lines] == ["attention-demo", "table3-demo"]
    assert all("BLEU dev" in line and "test" in line for line in lines)
    assert numbers(home) == numbers(grid)


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_parameters_cannot_be_scored_and_says_so(
    grid, home, attention, numbers, call
):
    for path in results(home).values():
        shutil.rmtree(path.parent / "final")
    words = ["run", "attention", *attention, "--task", "0", "--store", home]
    assert "has no parameters (final/)" in "".join(call(*words, code=1))
    assert numbers(home) == numbers(grid)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.full
def test_edited_statistics_are_made_again_without_training(grid, home, run_words, numbers):
    directory = of_row(home, "E")
    path = directory / "dev.statistics.json"
    before, trained = path.read_text(), (directory / "metrics.jsonl").stat().st_mtime_ns
    path.write_text(before.replace("[", "[1", 2).replace("[1[", "[[", 1))
    assert len(numbers(home)) == 2 * ROWS - 1
    assert main([*run_words, "--store", str(home), "--workers", "1"]) == 0
    assert path.read_text() == before
    assert (directory / "metrics.jsonl").stat().st_mtime_ns == trained
    assert numbers(home) == numbers(grid)


def test_a_table_of_other_settings_is_wrong_use_and_names_those_that_the_store_holds(
    grid, words, call
):
    err = call("table", *words, "--steps", "30", "--store", grid, code=2).err
    assert "has no finished run of table3 with these settings" in err
    assert re.search(rf"or give --preset demo .*--steps {STEPS}\b", err)


RESULTS = Path(__file__).parent.parent / "experiments" / "results"
SMALL = "table3-demo", "table2-hour", "table4-treebank", "language_model-hour"


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(kept.name, marks=[] if kept.name in SMALL else pytest.mark.full)
        for kept in sorted(home.parent for home in RESULTS.glob("*-*/table.md"))
    ],
)
def test_the_stored_tables_are_those_of_the_stored_runs(kept, call):
    home = RESULTS / kept
    study, _ = kept.split("-")
    shown = call("table", study, "--store", home, "--format", "md", "--notes").out
    assert shown == (home / "table.md").read_text()


def test_language_models_among_rows_that_are_scored_have_a_perplexity_alone():
    """As in a study whose rows have both architectures, or with --architecture decoder."""
    study = dataclasses.replace(declaration.find("language_model"), split="dev")
    home = RESULTS / "language_model-hour"
    grid = Grid(study, preset("hour"), study.rows, {}, home)
    found = stored.compared(grid)
    note = tables.quality(grid, found).notes
    assert [line.PPL is not None for line in found] == [False, True, True, True]
    assert any("PPL per subword on dev; mean" in x for x in note)


@pytest.mark.parametrize("command", ["table table3", "plot table3", "report table3", "prune"])
def test_a_store_that_does_not_exist_is_refused(command, tmp_path, refused):
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "none", tmp_path / "file"):
        refused([*command.split(), "--store", home], f"there is no store {home}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def timed(directory, run, device, seconds):
    """Returns a run of 60 steps, three at once, that was timed five times."""
    directory.mkdir()
    lines = (json.dumps({"step": i, "nll": 2.0, "seconds_per_step": x}) for i, x in seconds)
    (directory / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    result = {**run.result, "trained_together": 3, "steps": 60, "peak_flops": 1e12}
    result["environment"] = result["environment"] | {"device": device}
    return dataclasses.replace(run, directory=directory, result=result)


def test_a_pause_of_the_machine_costs_nothing(tmp_path):
    """Four of five records say 0.6 s a step and one contains a pause; three runs share a step."""
    entry, seconds = stored.entries(1)[0], [(i, 0.6) for i in range(4)] + [(4, 900.0)]
    run = timed(tmp_path / "0", entry.runs[0], "1 x cpu", seconds)
    assert run.costs["training_seconds"] == pytest.approx(60 * 0.2)
    assert run.costs["wall_seconds"] == entry.runs[0].result["training_seconds"] / 3
    column = cost_columns(entry, [run])
    assert column["on 1 x cpu", "training (min)"] == "0.2"
    assert column["on 1 x cpu", "a step (ms)"] == "200"
    assert column["on 1 x cpu", "time x peak FLOP/s"] == "1.20e+13"
    untimed = timed(tmp_path / "1", entry.runs[0], "1 x cpu", [])
    assert untimed.costs["training_seconds"] is None
    assert ("on 1 x cpu", "a step (ms)") not in cost_columns(entry, [untimed])


def test_times_on_two_devices_have_columns_of_their_own(tmp_path):
    entry, both = stored.entries(1)[0], []
    both.append(timed(tmp_path / "0", entry.runs[0], "1 x cpu", [(1, 0.6)]))
    both.append(timed(tmp_path / "1", entry.runs[0], "1 x H200", [(1, 0.03)]))
    moved = timed(tmp_path / "2", entry.runs[0], "1 x H200, then 1 x cpu", [(1, 0.03)])
    column = cost_columns(entry, [*both, moved])
    steps = {upper: text for (upper, lower), text in column.items() if lower == "a step (ms)"}
    assert steps == {"on 1 x cpu": "200", "on 1 x H200": "10"}


def cost_columns(entry, runs):
    table = tables.costs([dataclasses.replace(entry, runs=tuple(runs))])
    return dict(zip(table.header, table.groups[0][0], strict=True))


def test_a_pseudo_perplexity_is_not_compared_with_a_perplexity():
    study, folder = declaration.find("language_model"), stored.DEMO.parent / "language_model-hour"
    lines = stored.compared(Grid(study, preset("hour"), study.rows, {}, folder))
    tested = [line.row.name for line in lines if line.PPL.difference]
    assert tested == ["decoder, causal"]


def test_a_name_of_several_lines_is_refused(tmp_path, refused):
    rows = 'return [Row("base"), Row("two\\nlines", dict(h=4))]'
    lines = ["from t2t_jax.study import Row, study", '@study("S", columns="h", split="dev")']
    (tmp_path / "s.py").write_text("\n".join([*lines, "def s():", f"    {rows}", ""]))
    refused(["run", tmp_path / "s.py"], "write its name on one line")


def test_bad_words_are_refused(words, tmp_path, refused):
    refused(["run", "tabel3"], "'table3'")
    refused(["run", "table3", "--preset", "demmo"], "'demo'")
    refused(["run", "table3", "--rows", "C:N=3"], "did you mean 'C:N=")
    refused(
        ["run", "table3", "--positions", "learned"],
        "row E:positions=learned of table3 sets positions itself",
    )
    refused(["run", "table3", "--seed", "4"], "--seeds")
    refused(["run", "table3", "--seeds", "0"], "--seeds")
    few, store = ["--encoder_attention", "linformer:n=40"], ["--store", tmp_path / "s"]
    refused(["run", "table3", *few, *store, "--rows", "base"], "n to 64 or more")
    refused(["train", "grammar", *few, "--run", tmp_path / "r"], "has 40 positions")
    sweep = ["--sweep", "encoder_attention=linear;linformer:n=40", *store, "--rows", "base"]
    refused(["run", "table3", *sweep], "has 40 positions")
    (tmp_path / "file").write_text("")
    refused(["run", *words, "--store", tmp_path / "file" / "x"], "cannot write")
