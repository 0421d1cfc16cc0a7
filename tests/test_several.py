"""Tables of several studies and stores, and the runs of stores as data for other programs."""

import csv
import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from t2t_jax.cli import main
from t2t_jax.commands import shared
from t2t_jax.environment import environment
from t2t_jax.evaluation.metrics import METRICS, Metric
from t2t_jax.runs import published, store
from t2t_jax.study import comparison, formats, requests, tidy
from tests import stored

ROW = "E:positions=learned"
DEPTH = """
from t2t_jax.study import Row, study

@study("Depth", columns="N", split="dev")
def depth():
    return [Row("base")]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A second store of the demo: without a row, and with another score of base."""
    home = stored.unpacked(tmp_path_factory.mktemp("store"))
    for directory in home.iterdir():
        name = (directory / "names.txt").read_text().split("\n")[0]
        if name == f"table3-demo/{ROW}/0":
            shutil.rmtree(directory)
        if name == "table3-demo/base/0":
            base = directory
    result = store.read_result(base)
    store.write_result(base, result | {"dev_perplexity": 3.21, "trained_together": 2})
    stored.made_by_other_code(base, git=result["environment"]["git"])
    return home


def printed(capsys, *words):
    assert main(list(map(str, words))) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "md", "latex"])
def test_each_of_two_stores_has_its_table(form, home, capsys):
    words = ["table", "table3", "--rows", "E", "--format", form, "--store"]
    both = printed(capsys, *words, stored.DEMO, home).replace("\\", "").replace("-{}-", "--")
    both = re.sub(r"mathbf\{(\d+)\}", r"\1", both)
    first, other = both.split(f"preset demo, {home}.")
    assert f"preset demo, {stored.DEMO}." in first
    PPL = {x.row.name: f"{x.runs[0].result['dev_perplexity']:.3f}" for x in stored.entries(None)}
    assert PPL["base"] in first
    assert PPL[ROW] in first
    assert "3.21" in other
    assert PPL[ROW] not in other
    assert f"Missing: {ROW}." in other
    assert f"Missing: {ROW}." not in first
    assert (first + other).count("Cost of a run") == 2
    if form == "latex":  # the label of each table is its own
        labels = [line for line in both.splitlines() if line.startswith("label{")]
        assert len(labels) == len({*labels}) == 4


def test_each_store_has_its_own_best_unless_one_row_stands_alone(home, capsys):
    out = printed(capsys, "table", "table3", "--rows", "E", "--store", stored.DEMO, home)
    assert f"[{stored.entries(1)[0].runs[0].result['dev_perplexity']:.3f}]" in out
    assert " 3.210 " in out  # nothing is worse: the other row is not finished


def test_json_is_that_of_each_store_with_its_name(home, capsys):
    words = ["table", "table3", "--rows", "E", "--format"]
    stores = stored.DEMO, home
    records = json.loads(printed(capsys, *words, "json", "--store", *stores))
    alone = [json.loads(printed(capsys, *words, "json", "--store", place)) for place in stores]
    assert [x.pop("store") for x in records] == [str(place) for place in stores for _ in "12"]
    assert {x.pop("study") for x in records} == {"table3-demo"}
    assert records == [*alone[0], *alone[1]]


def test_a_study_that_a_store_does_not_have_is_left_out(capsys):
    out = printed(capsys, "table", "table2", "table3", "--store", stored.DEMO)
    assert out.startswith("Variations on the Transformer, preset demo.\n")
    assert main(["table", "table2", "table3", "--store", str(stored.DEMO)]) == 0
    assert "left out: " in (said := capsys.readouterr().err)
    assert "has no finished run of table2" in said
    assert main(["table", "table3", "table3"]) == 2
    assert "table3 is named twice" in capsys.readouterr().err


def read(path):
    """Returns the rows of a file as text."""
    return list(csv.DictReader(path.read_text().splitlines()))


def test_data_has_a_row_for_each_run_and_for_each_step(home, tmp_path, capsys):
    words = ["results", "--store", stored.DEMO, home, "--out", tmp_path / "out"]
    paths = tmp_path / "out" / "runs.csv", tmp_path / "out" / "curves.csv"
    assert printed(capsys, *words) == f"{paths[0]}\n{paths[1]}\n"
    runs, curves = map(read, paths)
    assert len(runs) == 20 + 19
    at = {(x["store"], x["row"]): x for x in runs}
    base = at[str(home), "base"]
    kept = json.loads((home / base["directory"] / "result.json").read_text())
    lines = (home / base["directory"] / "metrics.jsonl").read_text().splitlines()
    curve = list(map(json.loads, lines))
    step = float(np.median([x["seconds_per_step"] for x in curve if "seconds_per_step" in x]))
    for name, value in (
        ("name", "table3-demo/base/0"), ("study", "table3"), ("preset", "demo"), ("seed", "0"),
        ("source", "en"), ("source_sha256", kept["environment"]["source"]),
        ("status", "finished"), ("step", "1280"), ("d_model", "64"), ("schedule", "linear"),
        ("PPL", "3.21"), ("dev_bleu", str(kept["scores"]["dev"]["bleu"]["score"])),
        ("parameters", str(kept["parameters"])), ("memory", str(kept["memory"])),
        ("wall_seconds", str(kept["training_seconds"] / 2)),
        ("training_seconds", str(1280 * step / 2)),
        ("git", kept["environment"]["git"]),
        ("scoring_seconds", str(kept["scoring"]["dev"]["seconds"])), ("device", "1 x cpu"),
    ):  # fmt: skip
        assert base[name] == value, name
    assert base["step_program"] == "000000000000"
    comparable = kept["environment"]["jax"] == environment()["jax"]
    assert base["changed_programs"] == "step" * comparable
    assert not at[str(stored.DEMO), "base"]["changed_programs"]
    assert base["finished"].endswith("+00:00")
    assert not at[str(stored.DEMO), "base"]["finished"]  # published results have no date
    assert at[str(home), "D:P_drop=0.0"]["P_drop"] == "0.0"
    lines = (home / base["directory"] / "metrics.jsonl").read_text().splitlines()
    records = list(map(json.loads, lines))
    curve = [x for x in curves if (x["store"], x["row"]) == (str(home), "base")]
    steps = sorted({x["step"] for x in records})
    assert [int(x["step"]) for x in curve] == steps
    evaluated = {str(x["step"]): str(x["dev_perplexity"]) for x in records if len(x) == 3}
    assert {x["step"]: x["dev_perplexity"] for x in curve if x["dev_perplexity"]} == evaluated
    losses = {str(x["step"]): str(x["loss"]) for x in records if "loss" in x}
    assert {x["step"]: x["loss"] for x in curve if x["loss"]} == losses
    assert losses.keys() & evaluated.keys() == {"1280"}  # one row has both


def test_data_of_a_study_alone_and_of_runs_that_studies_share(tmp_path, capsys):
    (directory := tmp_path / "store").mkdir()
    stored.unpacked(directory)
    named = next(x for x in directory.iterdir() if "base/0" in (x / "names.txt").read_text())
    with (named / "names.txt").open("a") as file:
        file.write("depth-demo:steps=9,h=2/base/0\n")
    runs, curves = tidy.tables([directory], ["depth"], pytest.fail, {})
    (run,) = runs
    assert (run["study"], run["preset"], run["changes"], run["row"]) == (
        "depth", "demo", "steps=9,h=2", "base",
    )  # fmt: skip
    assert {x["name"] for x in curves} == {"depth-demo:steps=9,h=2/base/0"}
    assert len(tidy.tables([directory], ["depth", "table3-demo"], pytest.fail, {})[0]) == 21
    (tmp_path / "depth.py").write_text(DEPTH)
    directory.rename(tmp_path / "runs")
    of_file = "results", tmp_path / "depth.py", "--out", tmp_path
    assert printed(capsys, *of_file) == f"{tmp_path}/runs.csv\n{tmp_path}/curves.csv\n"
    assert [x["name"] for x in read(tmp_path / "runs.csv")] == ["depth-demo:steps=9,h=2/base/0"]
    (tmp_path / "runs").rename(directory)
    assert main(["results", "tabel3", "--store", str(directory)]) == 2
    assert "has no run of tabel3: did you mean 'table3'?" in capsys.readouterr().err
    (named / "names.txt").unlink()
    (named / "result.json").unlink()
    (named / "environment.json").unlink()
    runs, _ = tidy.tables([directory], [], pytest.fail, {})
    (alone,) = (x for x in runs if x["name"] == named.name)
    assert (alone["study"], alone["status"], alone["PPL"]) == (None, "stopped", None)


@pytest.mark.parametrize("name", ["table4-treebank", "table3-demo"])
def test_the_recipe_of_the_help_gives_the_means_of_the_table(name, tmp_path, capsys):
    study, folder = name.split("-")[0], stored.DEMO.parent / name
    printed(capsys, "results", study, "--store", folder, "--out", tmp_path)
    runs = read(tmp_path / "runs.csv")
    table = json.loads(printed(capsys, "table", study, "--store", folder, "--format", "json"))
    for row in table:
        for role, of_table in (("chosen", row), ("untuned", row.get("untuned", row))):
            of_role = [x for x in runs if x["row"] == row["row"] and x[role] == "True"]
            mean = sum(float(x["PPL"]) for x in of_role) / len(of_role)
            assert mean == pytest.approx(of_table["PPL"]["mean"])
            assert len(of_role) == of_table["PPL"]["n"]
    rows = [(x["directory"], x["row"]) for x in runs]
    assert len(rows) == len(set(rows))  # though a run that was chosen has two names
    assert len({x["name"] for x in runs}) == len(runs)
    trials = [x for x in runs if x["trial"] == "True"]
    assert len(trials) == sum(len(row.get("trials", ())) for row in table)
    assert not any(x["PPL"] for x in trials if x["chosen"] == x["untuned"] == "False")


def test_data_does_not_say_that_a_table_shows_runs_of_a_study_that_is_not_found(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    for run in stored.unpacked(tmp_path / "runs").iterdir():
        text = (run / "names.txt").read_text()
        (run / "names.txt").write_text(text.replace("table3-", "mine-"))
    requests.remember(tmp_path / "runs", stored.grid(rows=1))
    request = next((tmp_path / "runs" / "studies").iterdir())
    request.write_text(request.read_text().replace('"table3"', '"mine"'))
    words = "results", "--store", tmp_path / "runs", "--out", tmp_path
    printed(capsys, *words)
    assert {x["chosen"] for x in read(tmp_path / "runs.csv")} == {"False"}
    (tmp_path / "mine.py").write_text(DEPTH.replace("depth", "mine"))  # beside the store
    printed(capsys, *words)
    shown = [x["row"] for x in read(tmp_path / "runs.csv") if x["chosen"] == "True"]
    assert shown == ["base"]  # the only row of the study


def test_data_has_the_metrics_that_run_was_given(home, tmp_path, capsys, monkeypatch):
    grid = dataclasses.replace(stored.grid(home), metrics=("PPL", "words"))
    monkeypatch.setitem(METRICS, "words", Metric("words", "words", lambda h, *_: len(h), None))
    requests.remember(home, grid)
    monkeypatch.setattr(shared, "_splits_of", lambda *_: {"dev": stored.split(tmp_path)})
    printed(capsys, "results", "--store", home, "--out", tmp_path)
    at = {x["row"]: x for x in read(tmp_path / "runs.csv")}
    shutil.rmtree(home / "studies")
    assert at["base"]["words"] == str(float(stored.N))
    assert at["D:P_drop=0.0"]["words"] == ""  # is no row of that table


@pytest.mark.parametrize("language", ["json", "jsonl", "py"])
def test_a_language_may_be_called_as_a_format_is(language, tmp_path):
    """Its translations stay text in a run, published, and unpacked again."""
    home = tmp_path / "a" / "run"
    home.mkdir(parents=True)
    (home / "config.json").write_text("{}")
    (home / f"dev.{language}").write_text("7\n8\n")
    published.write(
        tmp_path, {home.name: published.contents(home, ["config.json", f"dev.{language}"])}
    )
    published.unpack(tmp_path, tmp_path / "b")
    for place in (home, tmp_path / home.name, tmp_path / "b" / home.name):
        assert store.read_translations(place, "dev", language) == ["7", "8"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_infinite_perplexity_is_null_in_json(value, tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    entries = stored.entries()
    diverged = [
        dataclasses.replace(x, result=x.result | {"dev_perplexity": value}) for x in entries[1].runs
    ]
    entries[1] = dataclasses.replace(entries[1], runs=tuple(diverged))
    grid = stored.grid(tmp_path)
    text = formats.render([(grid, comparison.compare_with_base(grid, entries))], "json")
    rows = json.loads(text, parse_constant=refuse)
    assert rows[1]["PPL"]["mean"] is rows[1]["runs"][0]["PPL"] is None


def test_no_curves_are_an_empty_file(tmp_path):
    tidy.write(tmp_path / "x.csv", [])
    assert read(tmp_path / "x.csv") == []
    assert (tmp_path / "x.csv").read_text().startswith("name,study,")
