"""What runs are called, in lists and where a person names one."""

import json

import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.runs import names, store
from t2t_jax.runs.names import resolve
from tests import stored, toy

NAMES = {
    "1a": ["table3-demo/base/0", "attention-demo/scaled dot product/0"],
    "2b": ["table3-multi30k/base/0"],
    "3c": ["table3-demo/big/0"],
    "4d": ["table3-demo:peak_lr=1e-3/E:positions=learned/1"],
    "5e": ["table3-demo:steps=60/base/0"],
    "grammar-0": [],
}


@pytest.fixture
def home(tmp_path):
    """A store of runs that are begun."""
    for directory, called in NAMES.items():
        made = tmp_path / directory
        made.mkdir()
        fields = config.flatten(config.replace(Config(), steps=640, corpus="grammar"))
        (made / "config.json").write_text(json.dumps(fields))
        for name in called:
            names.add(made, name)
    return tmp_path


MEANT = {
    "table3-demo/base/0": "1a",
    "attention/scaled dot product/0": "1a",
    "table3-multi30k/base/0": "2b",
    "table3/big/0": "3c",
    "table3/E:positions=learned/1": "4d",
    "table3-demo:peak_lr=1e-3/E:positions=learned/1": "4d",
    "grammar-0": "grammar-0",
    "2b": "2b",
}


@pytest.mark.parametrize(("text", "directory"), MEANT.items())
def test_a_name_means_a_run(text, directory, home):
    assert resolve(text, home) == home / directory
    assert resolve(str(home / "2b"), home / "none") == home / "2b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "table3/base/0",
            "'table3-demo/base/0', 'table3-multi30k/base/0' or 'table3-demo:steps=60/",
        ),
        ("table3-demo/bse/0", "are 'table3-demo/base/0', "),
        ("table/big/0", "{} has no run called 'table/big/0'"),
        ("table3", "{} has no run called 'table3'"),
        ("grammar", "are 'grammar-0'"),
    ],
)
def test_a_name_of_no_run_or_of_several_has_the_nearest_choices(text, said, home):
    with pytest.raises(UsageError) as refused:
        resolve(text, home)
    assert said.format(home) in str(refused.value)
    assert len(str(refused.value)) < 250 + 2 * len(str(home))


def test_runs_of_one_name_are_told_apart_by_their_directories(home):
    names.add(home / "3c", "table3-demo/base/0")
    with pytest.raises(UsageError, match=f"choose '{home}/1a' or '{home}/3c'"):
        resolve("table3-demo/base/0", home)


def test_a_name_is_written_down_once(home):
    for _ in range(2):
        names.add(home / "1a", "table2-demo/Transformer base/0")
    expected = [*NAMES["1a"], "table2-demo/Transformer base/0"]
    assert (home / "1a" / "names.txt").read_text().splitlines() == expected
    assert names.names(home / "1a") == expected
    assert names.names(home / "grammar-0") == ["grammar-0"]
    with (home / "1a" / "names.txt").open("a") as file:  # as another process may at that moment
        file.write("table2-demo/Transformer base/0\n")
    assert names.names(home / "1a") == expected


def test_a_list_tells_how_every_run_stands(home, call):
    scores = {"dev": {"bleu": {"score": 12.345, "name": "BLEU", "signature": ""}}}
    result = {"dev_perplexity": 5.5, "steps": 600, "scores": scores, "scoring": {}}
    store.write_result(home / "1a", result)
    store.write_failure(home / "3c", RuntimeError("boom"))
    records = '{"step": 1320, "dev_perplexity": 4.25}\n{"step": 1321, "nll": 1.5}\n'
    (home / "2b" / "metrics.jsonl").write_text(records)
    with toy.held(home / "2b"):
        _, *lines = call("list", "runs", "--store", home).out.splitlines()
    called = [*(name for of_run in NAMES.values() for name in of_run), "grammar-0"]
    assert len(lines) == len(called)
    shown = {n: next(x for x in lines if x.startswith(f"{n}  ")) for n in called}
    shown = {name: line.removeprefix(name).split() for name, line in shown.items()}
    finished = ["finished", "600/640", "5.500", "BLEU", "dev", "12.35", str(home / "1a")]
    assert shown["table3-demo/base/0"] == finished
    assert shown["attention-demo/scaled dot product/0"] == finished
    where = str(home / "2b")
    assert shown["table3-multi30k/base/0"] == ["running", "1,321/640", "4.250", where]
    failed = ["failed", "0/640", f"{home / '3c'}:", "RuntimeError('boom')"]
    assert shown["table3-demo/big/0"] == failed
    assert shown["grammar-0"] == ["stopped", "0/640", str(home / "grammar-0")]


def test_a_list_of_published_runs(call):
    lines = call("list", "runs", "--store", stored.DEMO).out.splitlines()
    assert len(lines) == 21
    (base,) = (line.split() for line in lines if line.startswith("table3-demo/base/0 "))
    file = str(stored.DEMO / "runs.jsonl.xz")
    assert base[1:] == ["finished", "1,280/1,280", "2.189", "BLEU", "dev", "61.97", file]


def test_a_store_without_runs_lists_none(tmp_path, call, refused):
    assert call("list", "runs", "--store", tmp_path).out == f"{tmp_path} has no runs.\n"
    refused(["list", "runs", "--store", tmp_path / "none"], "there is no store")
    refused(["list", "presets", "--store", tmp_path], "--store is for the runs")


@pytest.mark.parametrize("words", ["translate", "evaluate", "export", "attend"])
def test_every_command_takes_a_name(words, home, refused):
    more = ["a sentence"] * (words == "attend") + ["--store", home]
    known = f"table3-demo/big/0 ({home / '3c'}) has no vocabulary"
    refused([words, "table3-demo/big/0", *more], known)
    refused([words, "table3-demo/bog/0", *more], "nearest are 'table3-demo/big/0'")


def test_the_default_store_is_runs(home, call, refused, monkeypatch):
    (home / "runs").mkdir()
    monkeypatch.chdir(home)
    assert call("list", "runs").out == "runs has no runs.\n"
    unknown = "'nothing/base/0' is neither a directory nor the name of a run"
    refused(["translate", "nothing/base/0"], unknown, "the store runs has no runs")


def test_a_title_is_a_name_and_a_place(home):
    assert names.title(home / "2b") == f"table3-multi30k/base/0 ({home / '2b'})"
    assert names.title(home / "grammar-0") == str(home / "grammar-0")
    kept = stored.DEMO.parent / "grammar"
    assert names.title(kept / "grammar-0") == f"grammar-0 ({kept / 'runs.jsonl.xz'})"
