"""A run of more steps goes on from a finished one, and ends as if it had never been interrupted."""

import json
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments.tools.faults import flip
from t2t_jax import config
from t2t_jax.cli import main
from t2t_jax.commands import running, training
from t2t_jax.data.prepare import open_corpus
from t2t_jax.runs import continuation, names, store
from t2t_jax.runs.loading import load
from tests import stored, toy

EVERY = 40
FIELDS = dict(schedule="inverse_sqrt", evaluate_every=EVERY, num_buckets=1, max_extra=5)
# Steps are recorded at multiples of 50, and averages are of the last two evaluated ones.
SHORT, LONGER, LONG = 120, 130, 150


@pytest.fixture(scope="module", autouse=True)
def programs():
    """Keeps short compilations, too, in the cache of the session."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (training, running):
            patch.setattr(module, "cache_programs", toy.quiet)
        yield


@pytest.fixture(scope="module")
def words(corpus, tmp_path_factory):
    """`train` without the steps and the run's directory."""
    return toy.train(corpus, tmp_path_factory.mktemp("cache"), **FIELDS)


def train(words, directory, steps, *more):
    assert main([*words, "--steps", str(steps), "--run", str(directory), *map(str, more)]) == 0
    return directory


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """The longest run, uninterrupted."""
    return train(words, tmp_path_factory.mktemp("whole") / "run", LONG)


@pytest.fixture(scope="module")
def home(words, tmp_path_factory):
    """A store with the shortest run."""
    home = tmp_path_factory.mktemp("store")
    train(words, home / "short", SHORT)
    return home


@pytest.fixture
def copy(home, tmp_path):
    shutil.copytree(home / "short", tmp_path / "short")
    return tmp_path


@pytest.fixture
def longer(words, copy):
    """The config of a longer run than the short one, and its data."""
    c = config.replace(store.read_config(copy / "short"), steps=LONG)
    cache = Path(words[words.index("--cache") + 1])
    return SimpleNamespace(c=c, dataset=open_corpus(c.data, cache, report=toy.quiet))


def result(directory):
    return json.loads((directory / "result.json").read_text())


def same(directory, other):
    """Checks that two runs are equal to the bit, but for the clock."""
    assert toy.records(directory) == toy.records(other)
    ours, theirs = result(directory), result(other)
    for name in FACTS:
        assert ours[name] == theirs[name], name
    assert (directory / "test.de").read_bytes() == (other / "test.de").read_bytes()
    _, _, params, _ = load(directory)
    _, _, expected, _ = load(other)
    jax.tree.map(np.testing.assert_array_equal, params, expected)


FACTS = "steps averaged_steps dev_perplexity likelihood scores flops compiled_flops".split()


@pytest.mark.full
def test_a_run_continued_twice_equals_the_uninterrupted_one_to_the_bit(
    words, whole, copy, call, monkeypatch
):
    """First in a directory that `train` chooses, and then in one whose copy was cut short."""
    monkeypatch.chdir(copy.parent)
    copy.rename("runs")
    Path("runs/short").rename("runs/base-0")
    Path("runs/base-0/study.py").write_text("# what the run uses of a study file\n")
    said = call(*words, "--steps", LONGER).err
    assert "runs/base-0-130 goes on from base-0 at step 120" in said
    long = Path("runs/long")
    with monkeypatch.context() as patch:  # it ends while it copies checkpoints; one is lost
        patch.setattr(continuation, "write_json", interrupt)
        call(*words, "--steps", LONG, "--run", long, code=75)
    assert not (long / "config.json").exists()
    shutil.rmtree(long / "checkpoints" / str(SHORT))
    said = call(*words, "--steps", LONG, "--run", long).err
    assert "runs/long goes on from base-0-130 at step 120" in said
    assert "resuming from step 120" in said
    same(long, whole)
    assert (long / "study.py").read_text() == "# what the run uses of a study file\n"
    assert result(long)["environment"]["continued"] == "from base-0-130 at step 120"
    assert "continued" not in result(whole)["environment"]
    (line,) = (x for x in call("list", "runs").out.splitlines() if x.startswith("long "))
    assert line.endswith("runs/long, continued from base-0-130 at step 120")
    for steps, name in ((SHORT, "base-0"), (LONGER, "base-0-130")):  # nothing is trained again
        assert f"runs/{name} is finished" in call(*words, "--steps", steps).err


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.full
def test_early_stopping_ends_a_continued_run_where_it_would_have_ended(words, copy, call):
    """The evaluation after the last step of the shorter run does not count."""
    words = [*words, "--patience", "2", "--peak_lr", "0.3"]  # no evaluation beats the first
    train(words, copy / "brief", 110)
    said = call(*words, "--steps", LONG, "--run", copy / "long").err
    assert "goes on from brief at step 80" in said
    same(copy / "long", train(words, copy / "alone" / "run", LONG))
    assert result(copy / "long")["steps"] == 120


def test_only_a_finished_run_with_fewer_steps_and_nothing_else_is_continued(copy):
    (copy / "other").mkdir()
    (copy / "other" / "config.json").write_text("[1]")  # is no run
    new, short = copy / "new", store.read_config(copy / "short")

    def begin(steps, **changes):
        c = config.replace(short, steps=steps, **changes)
        return continuation.shorter_runs([(c, new)]).get(new)

    shorter = begin(LONG)
    assert shorter.directory == copy / "short"
    assert list(shorter.checkpoints) == [80, 120]  # as many as are averaged
    assert begin(SHORT) is begin(SHORT - 1) is None
    assert begin(LONG, seed=1) is begin(LONG, beam=3) is None
    (copy / "short" / "result.json").rename(copy / "short" / "kept")
    assert begin(LONG) is None
    (copy / "short" / "kept").rename(copy / "short" / "result.json")
    new.mkdir()
    shutil.copy(copy / "short" / "config.json", new)  # the run is begun
    assert not continuation.shorter_runs([(short, new)])


def linear(run):
    fields = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(fields | {"schedule": "linear"}))
    return "the learning rate of schedule=linear depends on the number of steps"


def other_code(run):
    stored.made_by_other_code(run)
    return "this code computes another step"


def pruned(run):
    assert main(["prune", "--store", str(run.parent)]) == 0
    return "there are no checkpoints at the last multiples of evaluate_every=40"


def one_checkpoint_less(run):
    shutil.rmtree(run / "checkpoints" / "80")
    return "there are no checkpoints at the last multiples of evaluate_every=40"


@pytest.mark.parametrize("spoil", [linear, other_code, pruned, one_checkpoint_less])
def test_what_cannot_be_repeated_is_trained_from_scratch_and_said(spoil, copy):
    said, reason = [], spoil(copy / "short")
    c = config.replace(store.read_config(copy / "short"), steps=LONG)
    continuation.announce([("a/b/0", c, copy / "x"), ("a/b/1", c, copy / "y")], said.append)
    assert said == [
        f"2 of 2 runs are finished with fewer steps, but {reason}: they are trained from scratch "
        "(a/b/0, a/b/1)"
    ]
    continuation.begin([(c, copy / "x")], None, said.append)
    assert said[1:] == [
        f"{copy / 'short'} has 120 of these steps, but {reason}: {copy / 'x'} is trained from "
        "scratch."
    ]
    assert not (copy / "x").exists()


def made_with(run, **changes):
    content = store.read_result(run)
    store.write_result(run, content | {"environment": content["environment"] | changes})


def other_device(run):
    made_with(run, device="1 x H100")
    return "the software or the device differs (device 1 x H100 there, 1 x cpu here)"


def other_library(run):
    made_with(run, optax="0.1")
    return "the software or the device differs (optax 0.1 there, "


def other_data(run):
    fields = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(fields | {"data": "0", "dtype": "bfloat16"}))
    return "the data and dtype differ"


def damaged(run):
    flip(next(p for p in (run / "checkpoints" / "120" / "params").rglob("d/*") if p.is_file()))
    return "the checkpoint of step 120 is damaged"


@pytest.mark.parametrize("spoil", [other_device, other_library, other_data, damaged])
def test_what_differs_on_this_machine_is_trained_from_scratch_and_said(spoil, longer, copy):
    reason, said = spoil(copy / "short"), []
    continuation.begin([(longer.c, copy / "x")], longer.dataset, said.append)
    (line,) = said
    assert line.startswith(f"{copy / 'short'} has 120 of these steps, but {reason}")
    assert line.endswith(f"{copy / 'x'} is trained from scratch.")
    assert not (copy / "x").exists()


def test_a_run_waits_for_a_shorter_one_that_another_process_reads(longer, copy):
    with ExitStack() as stack:
        stack.enter_context(toy.held(copy / "short"))
        threading.Timer(0.5, stack.close).start()
        continuation.begin([(longer.c, copy / "x")], longer.dataset, toy.quiet)
    assert (copy / "x" / "checkpoints" / "120").exists()


@pytest.mark.full
def test_a_study_of_more_steps_continues_its_runs(words, tmp_path, call):
    """One row in this process, as a task of a job array; its programs are those of `words`."""
    study = ["run", "table3", "--preset", "paper", "--rows", "base", "--task", "0", *words[2:]]
    study += ["--evaluate_every", "10", "--store", tmp_path, "--steps"]
    assert "fewer" not in call(*study, "20").err
    said = call(*study, "30").err
    name = next(x for x in said.split() if "steps=30" in x)
    assert f"1 of 1 runs go on from finished runs of fewer steps: {name} from step 20" in said
    run = names.resolve(name, tmp_path)
    assert result(run)["environment"]["continued"].endswith("/base/0 at step 20")
    assert result(run)["averaged_steps"] == [20, 30]


def test_schedules_that_depend_on_the_number_of_steps_are_not_continued():
    """The learning rate of the others is the same whatever the number of steps."""
    from t2t_jax.parts import SCHEDULES
    from t2t_jax.training.optimizer import learning_rate

    for schedule in config.field_type("schedule"):
        rates = {float(learning_rate(*map(np.float32, (50, 1, 9, n)), schedule)) for n in (60, 99)}
        assert (len(rates) == 1) == SCHEDULES[schedule].endless
