"""A run of more steps goes on from a finished one, and ends as if it had never been interrupted."""

import json
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path

import jax
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.cli import main
from t2t_jax.commands import running, training
from t2t_jax.data.prepare import open_corpus
from t2t_jax.runs import continuation, names, store
from t2t_jax.runs.loading import load
from tests import stored, toy

FIELDS = dict(schedule="inverse_sqrt", evaluate_every=40, num_buckets=1, max_extra=5)
SHORT, LONG = 120, 150  # averages are of the last two evaluated steps


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


def train(words, directory, steps):
    assert main([*words, "--steps", str(steps), "--run", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def short(words, tmp_path_factory):
    return train(words, tmp_path_factory.mktemp("store") / "base-0", SHORT)


@pytest.fixture
def home(short, tmp_path):
    """A store with a copy of the short run."""
    shutil.copytree(short, tmp_path / "runs" / "base-0")
    return tmp_path / "runs"


def same(directory, other):
    """Checks that two runs are equal to the bit, but for the clock."""
    ours, theirs = store.read_result(directory), store.read_result(other)
    for name in "steps averaged_steps dev_perplexity likelihood scores flops".split():
        assert ours[name] == theirs[name], name
    assert toy.records(directory) == toy.records(other)
    assert (directory / "test.de").read_bytes() == (other / "test.de").read_bytes()
    params, expected = load(directory)[2], load(other)[2]
    jax.tree.map(np.testing.assert_array_equal, params, expected)


@pytest.mark.full
def test_a_continued_run_equals_the_uninterrupted_one_to_the_bit(
    words, home, tmp_path, call, monkeypatch
):
    """It does so even if the process was killed before, while it copied checkpoints."""
    monkeypatch.chdir(tmp_path)
    (home / "base-0" / "study.py").write_text("# what the run uses of a study file\n")
    with monkeypatch.context() as patch:
        patch.setattr(continuation, "write_json", interrupt)
        call(*words, "--steps", LONG, code=75)
    long = Path("runs/base-0-150")
    assert not (long / "config.json").exists()
    shutil.rmtree(long / "checkpoints" / str(SHORT))
    said = call(*words, "--steps", LONG).err
    assert "runs/base-0-150 goes on from base-0 at step 120" in said
    assert "resuming from step 120" in said
    same(long, train(words, tmp_path / "alone" / "run", LONG))
    assert (long / "study.py").read_text() == "# what the run uses of a study file\n"
    (line,) = (x for x in call("list", "runs").out.splitlines() if x.startswith("base-0-150 "))
    assert line.endswith("runs/base-0-150, continued from base-0 at step 120")
    assert "runs/base-0 is finished" in call(*words, "--steps", SHORT).err


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.full
def test_early_stopping_ends_a_continued_run_where_it_would_have_ended(words, tmp_path, call):
    """The evaluation after the last step of the shorter run does not count."""
    words = [*words, "--patience", "2", "--peak_lr", "1e-30"]  # no evaluation beats the first
    train(words, tmp_path / "brief", 110)
    said = call(*words, "--steps", LONG, "--run", tmp_path / "long").err
    assert "goes on from brief at step 80" in said
    same(tmp_path / "long", train(words, tmp_path / "alone" / "run", LONG))
    assert store.read_result(tmp_path / "long")["steps"] == 120


@pytest.mark.full
def test_a_study_of_more_steps_continues_its_runs(words, tmp_path, call):
    """One row in this process, as a task of a job array; its programs are those of `words`."""
    study = ["run", "table3", "--preset", "paper", "--rows", "base", "--task", "0", *words[2:]]
    study += ["--evaluate_every", "10", "--store", tmp_path, "--steps"]
    assert "fewer" not in call(*study, "20").err
    said = call(*study, "30").err
    assert "1 of 1 runs go on from finished runs of fewer steps" in said
    name = next(x for x in said.split() if "steps=30" in x)
    made = store.read_result(names.resolve(name.removesuffix(":"), tmp_path))["environment"]
    assert made["continued"].endswith("/base/0 at step 20")


def test_only_a_finished_run_with_fewer_steps_and_nothing_else_is_continued(home):
    (home / "other").mkdir()
    (home / "other" / "config.json").write_text("[1]")  # is no run
    new, short = home / "new", home / "base-0"

    def begin(steps, **changes):
        c = config.replace(store.read_config(short), steps=steps, **changes)
        return continuation.shorter_runs([(c, new)]).get(new)

    assert begin(LONG)[0] == short
    assert begin(SHORT) is begin(SHORT - 1) is None
    assert begin(LONG, seed=1) is begin(LONG, beam=3) is None
    shutil.copytree(short, new)  # the run is begun
    assert begin(LONG) is None
    shutil.rmtree(new)
    (short / "result.json").unlink()
    assert begin(LONG) is None


def changed(run, name, **changes):
    fields = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps(fields | changes))


def made_with(run, **changes):
    content = store.read_result(run)
    store.write_result(run, content | {"environment": content["environment"] | changes})


NONE = "no checkpoints are at the last multiples of evaluate_every=40"
OF_SCHEDULE = "the learning rate of schedule=linear depends on the number of steps"
OBSTACLES = {
    OF_SCHEDULE: lambda run: changed(run, "config.json", schedule="linear"),
    "this code computes another step": stored.made_by_other_code,
    NONE: lambda run: main(["prune", "--store", str(run.parent)]),
    f"but {NONE}": lambda run: shutil.rmtree(run / "checkpoints" / "80"),
    "the device differ": lambda run: made_with(run, device="1 x H100"),
    "the optax differ": lambda run: made_with(run, optax="0.1"),
    "the data and dtype differ": lambda run: changed(run, "data.json", data="0", dtype="float16"),
}


@pytest.mark.parametrize("reason", OBSTACLES)
def test_what_cannot_be_repeated_is_trained_from_scratch_and_said(reason, words, home):
    OBSTACLES[reason](home / "base-0")
    said, c = [], config.replace(store.read_config(home / "base-0"), steps=LONG)
    dataset = open_corpus(c.data, Path(words[words.index("--cache") + 1]), report=toy.quiet)
    continuation.begin([(c, home / "new")], dataset, said.append)
    (line,) = said
    assert line.startswith("base-0 has 120 of these steps, but ")
    assert line.endswith(f"{reason}: {home / 'new'} is trained from scratch")
    assert not (home / "new").exists()


def test_a_study_says_how_many_runs_are_trained_from_scratch_and_why(home):
    changed(home / "base-0", "config.json", schedule="linear")
    said, c = [], config.replace(store.read_config(home / "base-0"), steps=LONG)
    continuation.announce([(c, home / "x"), (c, home / "y")], said.append)
    why = f"are finished with fewer steps, but {OF_SCHEDULE}: they are trained from scratch"
    assert said == [f"2 of 2 runs {why}"]


def test_a_run_waits_for_a_shorter_one_that_another_process_reads(words, home):
    c = config.replace(store.read_config(home / "base-0"), steps=LONG)
    dataset = open_corpus(c.data, Path(words[words.index("--cache") + 1]), report=toy.quiet)
    with ExitStack() as stack:
        stack.enter_context(toy.held(home / "base-0"))
        threading.Timer(0.5, stack.close).start()
        continuation.begin([(c, home / "new")], dataset, toy.quiet)
    assert (home / "new" / "checkpoints" / "120").exists()


def test_schedules_that_depend_on_the_number_of_steps_are_not_continued():
    """The learning rate of the others is the same whatever the number of steps."""
    from t2t_jax.parts import SCHEDULES
    from t2t_jax.training.optimizer import learning_rate

    for schedule in config.field_type("schedule"):
        rates = {float(learning_rate(*map(np.float32, (50, 1, 9, n)), schedule)) for n in (60, 99)}
        assert (len(rates) == 1) == SCHEDULES[schedule].endless
