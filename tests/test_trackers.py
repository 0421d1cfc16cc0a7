"""Trackers get the curves of runs, continue with them, and never stop them."""

import json
import struct
import sys
import types

import pytest

from t2t_jax.runs import names
from t2t_jax.training import trackers
from t2t_jax.training.progress import Metrics, read_metrics
from tests import toy

RECORDS = [{"step": i, "loss": i / 2, "lr": 0.25} for i in (50, 100, 150)]
FIELDS = {"N": 3, "corpus": "grammar"}


class Calls:
    """Stands for the packages of trackers: notes what they are called with."""

    def __init__(self):
        self.runs, self.new = {}, 0

    def begin(self, key, **facts):
        if key is None:
            self.new += 1
            key = f"id{self.new}"
        run = self.runs.setdefault(key, {"curves": [], "begun": 0, "ended": 0})
        run |= facts
        run["begun"] += 1
        return key

    def write(self, key, curves, step):
        self.runs[key]["curves"].append({"step": step, **curves})

    def end(self, key):
        self.runs[key]["ended"] += 1


def fake_wandb(calls):
    def init(project, group, name, config, dir, id, resume, reinit, settings):
        assert (project, resume, reinit) == ("t2t_jax", "allow", "create_new")
        key = calls.begin(id, group=group, name=name, config=config)
        return types.SimpleNamespace(
            id=key,
            log=lambda curves, step: calls.write(key, curves, step),
            finish=lambda: calls.end(key),
        )

    return types.SimpleNamespace(init=init, Settings=lambda console: console)


def fake_mlflow(calls):
    class Client:
        def create_run(self, experiment, run_name):
            key = calls.begin(None, group=experiment, name=run_name)
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=key))

        def update_run(self, key, status):
            assert status == "RUNNING"
            calls.runs[key]["begun"] = calls.runs[key].get("updates", 0) + 1
            calls.runs[key]["updates"] = calls.runs[key]["begun"]

        def log_batch(self, key, metrics=(), params=()):
            if params:
                calls.runs[key]["config"] = {n: {"3": 3}.get(x, x) for n, x in params}
            if metrics:
                steps = {step for _, _, _, step in metrics}
                calls.write(key, {n: x for n, x, _, _ in metrics}, *steps)

        def set_terminated(self, key):
            calls.end(key)

    return types.SimpleNamespace(
        MlflowClient=Client,
        set_experiment=lambda name: types.SimpleNamespace(experiment_id=name),
        entities=types.SimpleNamespace(Param=lambda *x: x, Metric=lambda *x: x),
    )


def fake_aim(calls):
    class Run:
        def __init__(self, run_hash, experiment, system_tracking_interval, capture_terminal_logs):
            self.hash = calls.begin(run_hash, group=experiment)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            if name == "name":
                calls.runs[self.hash]["name"] = value

        def __setitem__(self, name, value):
            calls.runs[self.hash][name] = value

        def track(self, curves, step):
            calls.write(self.hash, curves, step)

        def close(self):
            calls.end(self.hash)

    return types.SimpleNamespace(Run=Run)


FAKES = {"wandb": fake_wandb, "mlflow": fake_mlflow, "aim": fake_aim}


@pytest.fixture
def directory(tmp_path):
    """A run of a store that has begun."""
    home = tmp_path / "store" / "105c230e313b"
    names.add(home, "table3-demo:N=3/A:h=4,d_k=16/1")
    (home / "config.json").write_text(json.dumps(FIELDS))
    return home


def train(directory, step, records):
    metrics = Metrics(directory, step)
    for record in records:
        metrics.write(record)
    metrics.close()


@pytest.mark.parametrize("name", FAKES)
def test_a_resumed_run_continues_its_tracked_run(name, directory, monkeypatch):
    calls = Calls()
    monkeypatch.setitem(sys.modules, name, FAKES[name](calls))
    monkeypatch.setenv(trackers.VARIABLE, name)
    train(directory, 0, RECORDS[:2])
    train(directory, 100, RECORDS[2:])
    (run,) = calls.runs.values()
    assert (run["group"], run["name"]) == ("table3-demo:N=3", "A:h=4,d_k=16/1")
    assert run["config"] == FIELDS
    assert run["curves"] == RECORDS == read_metrics(directory / "metrics.jsonl")
    assert (run["begun"], run["ended"]) == (2, 2)
    other = directory.parent / "mine"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(FIELDS))
    train(other, 0, RECORDS[:1])
    _, run = calls.runs.values()
    assert (run["group"], run["name"]) == ("t2t_jax", "mine")


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


@pytest.mark.parametrize("fails", ["begin", "write", "end"])
def test_a_run_goes_on_without_a_tracker_that_fails(fails, directory, monkeypatch, capsys):
    calls = Calls()

    def fail(*arguments, **facts):
        raise ConnectionError("no route to host\nTraceback")

    monkeypatch.setattr(calls, fails, fail)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb(calls))
    monkeypatch.setenv(trackers.VARIABLE, "wandb")
    train(directory, 0, RECORDS)
    assert read_metrics(directory / "metrics.jsonl") == RECORDS
    said = "t2t-jax: wandb failed (no route to host): training continues without it.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", [["train", "grammar", "--run"], ["run", "table3", "--store"]])
def test_a_tracker_that_is_not_installed_is_refused(words, tmp_path, refused, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = [*words, tmp_path / "new", "--track"]
    refused([*words, "aim"], "`pip install aim`")
    refused([*words, "aimm"], "'aimm'")
    assert not (tmp_path / "new").exists()


def test_train_tracks_a_run(corpus, tmp_path, monkeypatch, call):
    calls = Calls()
    monkeypatch.setenv(trackers.VARIABLE, "")  # restored at the end
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "wandb")
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb(calls))
    words = toy.train(corpus, tmp_path / "cache", steps=2, evaluate_every=2, num_buckets=1)
    call(*words, "--run", tmp_path / "mine", "--track", "wandb")
    (run,) = calls.runs.values()
    assert (run["name"], run["config"]["d_model"], run["ended"]) == ("mine", 32, 1)
    assert run["curves"] == read_metrics(tmp_path / "mine" / "metrics.jsonl")
    assert "dev_perplexity" in run["curves"][-1]
