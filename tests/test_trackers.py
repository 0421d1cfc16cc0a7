"""Trackers get the curves of runs, continue with them, and never stop them."""

import json
import struct
import sys
from unittest import mock

import pytest

from t2t_jax.runs import names
from t2t_jax.training import trackers
from t2t_jax.training.records import Metrics, read_metrics
from tests import toy

RECORDS = [{"step": i, "loss": i / 2, "lr": 0.25} for i in (50, 100, 150)]
CURVES = [({"loss": i / 2, "lr": 0.25}, i) for i in (50, 100, 150)]
FIELDS = {"N": 3, "corpus": "grammar"}
GROUP, NAME = "table3-demo:N=3", "A:h=4,d_k=16/1"


@pytest.fixture
def package(monkeypatch):
    """A function that chooses a tracker and returns what stands for its package."""

    def choose(name):
        monkeypatch.setenv(trackers.VARIABLE, name)
        monkeypatch.setitem(sys.modules, name, mock.MagicMock())
        return sys.modules[name]

    return choose


@pytest.fixture
def directory(tmp_path):
    """A run of a store that has begun."""
    home = tmp_path / "store" / "105c230e313b"
    names.add(home, f"{GROUP}/{NAME}")
    (home / "config.json").write_text(json.dumps(FIELDS))
    return home


def train(directory, step, records):
    metrics = Metrics(directory, step)
    for record in records:
        metrics.write(record)
    metrics.close()


def interrupt(directory):
    """Trains a run that is interrupted after two records."""
    train(directory, 0, RECORDS[:2])
    train(directory, 100, RECORDS[2:])
    assert read_metrics(directory / "metrics.jsonl") == RECORDS


def test_a_resumed_run_continues_in_wandb(directory, package):
    wandb = package("wandb")
    run = wandb.init.return_value
    run.id = "key"
    interrupt(directory)
    for key, begun in zip((None, "key"), wandb.init.call_args_list, strict=True):
        facts = dict(group=GROUP, name=NAME, config=FIELDS, id=key, resume="allow")
        assert facts.items() <= begun.kwargs.items()
    assert run.log.call_args_list == [mock.call(*x) for x in CURVES]
    assert run.finish.call_count == 2
    other = directory.parent / "mine"  # a run that has no name
    other.mkdir()
    (other / "config.json").write_text(json.dumps(FIELDS))
    train(other, 0, RECORDS[:1])
    facts = dict(group="t2t_jax", name="mine", id=None)
    assert facts.items() <= wandb.init.call_args.kwargs.items()


def events(home):
    """Returns TensorBoard's events; each is stored as a length, a checksum, itself, a checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    parsed = []
    for path in sorted(home.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            parsed.append(event_pb2.Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return parsed


def test_tensorboard_shows_runs_by_row_and_seed_whatever_the_clock_does(directory, monkeypatch):
    clock = iter(2e9 - 5e6 * i for i in range(99))
    monkeypatch.setattr("time.time", clock.__next__)
    monkeypatch.setenv(trackers.VARIABLE, "tensorboard")
    metrics = Metrics(directory, 0)
    for record in RECORDS:
        metrics.write(record)
    home = directory.parent / "tensorboard" / "table3-demo:N=3" / "A:h=4,d_k=16" / "1"
    _, start, *written = events(home)  # while the file is still open
    metrics.close()
    assert start.step == 1
    assert start.session_log.status == start.session_log.START
    read = [{"step": e.step} | {x.tag: x.simple_value for x in e.summary.value} for e in written]
    assert read == RECORDS == read_metrics(directory / "metrics.jsonl")


def test_nothing_is_tracked_unless_it_is_asked_for(directory, monkeypatch):
    monkeypatch.delenv(trackers.VARIABLE, raising=False)
    before = {path.name for path in directory.iterdir()}
    train(directory, 0, RECORDS)
    assert {path.name for path in directory.iterdir()} == before | {"metrics.jsonl"}
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


@pytest.mark.parametrize("fails", ["init", "init.return_value.log", "init.return_value.finish"])
def test_a_run_goes_on_without_a_tracker_that_fails(fails, directory, package, capsys):
    wandb = package("wandb")
    wandb.init.return_value.id = "key"
    error = ConnectionError("no route to host\nTraceback")
    wandb.configure_mock(**{f"{fails}.side_effect": error})
    train(directory, 0, RECORDS)
    assert read_metrics(directory / "metrics.jsonl") == RECORDS
    said = "t2t-jax: wandb failed (no route to host): training continues without it.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", [["train", "grammar", "--run"], ["run", "table3", "--store"]])
def test_a_tracker_that_is_not_installed_is_refused(words, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = [*words, tmp_path / "new", "--track"]
    refused([*words, "wandb"], "`pip install wandb`")
    refused([*words, "wamdb"], "'wandb'")
    assert not (tmp_path / "new").exists()


@pytest.mark.full
def test_train_tracks_a_run(corpus, tmp_path, monkeypatch, package, call):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "wandb")
    wandb = package("wandb")
    wandb.init.return_value.id = "key"
    words = toy.train(corpus, tmp_path / "cache", steps=2, evaluate_every=2, num_buckets=1)
    call(*words, "--run", tmp_path / "mine", "--track", "wandb")
    begun = wandb.init.call_args.kwargs
    assert (begun["name"], begun["config"]["d_model"]) == ("mine", 32)
    written = [x.args[0] | {"step": x.args[1]} for x in wandb.init.return_value.log.call_args_list]
    assert written == read_metrics(tmp_path / "mine" / "metrics.jsonl")
    assert "dev_perplexity" in written[-1]
