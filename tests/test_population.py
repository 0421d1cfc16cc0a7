"""Runs that share a program equal runs trained alone: to the bit, or to rounding if vectorised."""

import json
import math
import shutil
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.config import OFFSETS, TRACED
from t2t_jax.errors import RunError
from t2t_jax.models import build
from t2t_jax.runs import execution
from t2t_jax.runs.identity import compile_key
from t2t_jax.terminal import Progress
from t2t_jax.training import manifest, trainer
from t2t_jax.training.checkpoints import History
from t2t_jax.training.loop import Member, _resume_points, train
from t2t_jax.training.population import Trained
from t2t_jax.training.records import read_metrics
from t2t_jax.training.sharding import make_mesh
from t2t_jax.training.step import abstract, hyper, make_step
from t2t_jax.training.throughput import compile_for
from tests.test_training import SMALL, V, batch

C = config.replace(SMALL, steps=6, evaluate_every=3, warmup=2, peak_lr=2e-2, average=2)
VARIED = [
    config.replace(C, **changes)
    for changes in ({}, dict(P_drop=0.4, eps_ls=0.3, lr_scale=0.5, warmup=4, seed=1))
]
B, S, T = 8, 6, 5


def stream(c):
    """Returns a stream of batches whose content depends on the seed but whose shapes do not."""

    def batches(epoch, index):
        while True:
            yield (0, index + 1), batch(100 * c.training.seed + index, B, S, T)
            index += 1

    return batches


def members(directory, configs):
    return [Member(c, stream(c), directory / str(i)) for i, c in enumerate(configs)]


def run(directory, configs, evaluate=lambda _: 9.0, vectorised=False):
    population = members(directory, configs)
    results = dict(train(build(C, V), population, evaluate, Progress(), make_mesh(), vectorised))
    return [results[member] for member in population]


def assert_same(actual, expected, vectorised):
    """Compares parameters to the bit, unless XLA has fused members into one computation."""
    bound = dict(rtol=2e-4, atol=2e-6) if vectorised else dict(rtol=0, atol=0)
    for a, b in zip(jax.tree.leaves(actual.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, **bound)


def curve(directory):
    """Returns steps and dev perplexities, in order."""
    records = read_metrics(directory / "metrics.jsonl")
    return [(r["step"], r["dev_perplexity"]) for r in records if "dev_perplexity" in r]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The result of each member trained alone."""
    return [run(tmp_path_factory.mktemp("alone"), [c])[0] for c in VARIED]


@pytest.mark.parametrize("vectorised", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_population_equals_its_members_alone(vectorised, alone, tmp_path):
    together = run(tmp_path / "together", VARIED, vectorised=vectorised)
    for actual, expected in zip(together, alone, strict=True):
        assert actual.averaged == expected.averaged == [3, 6]
        assert (actual.population_size, expected.population_size) == (2 if vectorised else 1, 1)
        assert actual.history.flops == expected.history.flops > 0
        assert actual.history.compiled_flops == pytest.approx(
            expected.history.compiled_flops, rel=0.02
        )
        assert_same(actual, expected, vectorised)
    first = [np.asarray(jax.tree.leaves(r.params)[0]) for r in together]
    assert not np.allclose(first[0], first[1])


@pytest.mark.full
@pytest.mark.parametrize("vectorised", [False, True])
def test_members_that_resume_from_different_steps_end_the_same(vectorised, tmp_path):
    """One member lacks its last checkpoint, as after a kill between two saves."""
    whole = run(tmp_path / "whole", VARIED, vectorised=vectorised)
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    shutil.rmtree(cut / "1" / "checkpoints" / "6")
    copied = (cut / "0" / "checkpoints" / "6").stat().st_ino
    for actual, expected in zip(run(cut, VARIED, vectorised=vectorised), whole, strict=True):
        assert actual.population_size == (2 if vectorised else 1)
        for a, b in zip(
            jax.tree.leaves(actual.params), jax.tree.leaves(expected.params), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    made_again = (cut / "0" / "checkpoints" / "6").stat().st_ino != copied
    assert made_again == vectorised
    assert curve(cut / "1") == curve(tmp_path / "whole" / "1") == [(3, 9.0), (6, 9.0)]


def test_members_resume_together_from_their_common_step():
    assert _resume_points([{3, 6}, {3}, {3, 6}]) == [(3, [0, 1, 2])]
    assert _resume_points([{3, 6}, {3, 6, 7}]) == [(6, [0, 1])]
    assert _resume_points([set(), set()]) == [(0, [0, 1])]
    assert _resume_points([{6}, set(), {6}]) == [(0, [1]), (6, [0, 2])]


@pytest.mark.full
@pytest.mark.parametrize("vectorised", [False, True])
def test_a_member_that_diverges_does_not_affect_others(vectorised, alone, tmp_path):
    wild = config.replace(C, peak_lr=1e30, seed=1)
    bad, good = run(tmp_path / "both", [wild, C], vectorised=vectorised)
    assert isinstance(bad, RunError)
    assert "not finite" in str(bad)
    assert_same(good, alone[0], vectorised)
    assert not [p for p in (tmp_path / "both" / "0" / "checkpoints").iterdir() if p.name == "6"]


def test_a_perplexity_that_is_not_finite_stops_only_its_member(tmp_path):
    perplexities = iter([3.0, math.nan, 4.0, 5.0])
    bad, good = run(tmp_path, VARIED[:2], evaluate=lambda _: next(perplexities))
    assert isinstance(bad, RunError)
    assert good.averaged == [3, 6]


PERPLEXITIES = 9.0, 3.0, 5.0, 2.0, 8.0, 7.0, 9.0


@pytest.mark.full
@pytest.mark.parametrize(
    ("average", "steps"),
    [
        pytest.param(1, [4], marks=pytest.mark.full),
        (2, [3, 4]),
        pytest.param(3, [2, 3, 4], marks=pytest.mark.full),
    ],
)
def test_early_stopping_returns_the_best_parameters(average, steps, tmp_path, capsys):
    """The best of one, two and three checkpoints in a row, also if the run was interrupted."""
    c = config.replace(C, steps=9, evaluate_every=1, patience=3, average=average)
    seen = []

    def evaluate(params):
        seen.append(jax.tree.map(np.asarray, params))
        return PERPLEXITIES[len(seen) - 1]

    (best,) = run(tmp_path / "whole", [c], evaluate)
    assert len(seen) == 7
    assert best.averaged == steps
    expected = [jax.tree.leaves(seen[step - 1]) for step in steps]
    for actual, *leaves in zip(jax.tree.leaves(best.params), *expected, strict=True):
        np.testing.assert_allclose(actual, np.mean(leaves, axis=0), rtol=1e-6, atol=1e-7)
    said = capsys.readouterr().err
    assert "ends at step 7, as 3 evaluations" in said
    assert f"step {steps[0]}" in said
    shutil.rmtree(tmp_path / "whole" / "0" / "checkpoints" / "7")
    seen = seen[:6]
    (resumed,) = run(tmp_path / "whole", [c], evaluate)
    assert resumed.averaged == steps
    assert_same(resumed, best, vectorised=False)


@pytest.mark.full
def test_the_step_reads_traced_fields_from_hyper_alone():
    values = dict(P_drop=0.4, eps_ls=0.3, z_loss=0.1, peak_lr=1e-3, lr_scale=0.5, warmup=4, seed=1)
    assert {*values, *OFFSETS} == {*TRACED}  # offsets are added to the seed

    def program(c):
        state = abstract(build(c, V), c, make_mesh())
        return str(jax.make_jaxpr(make_step(build(c, V), c))(state, batch(0, B, S, T), hyper(C)))

    expected = program(C)
    for name, value in values.items():
        changed = config.replace(C, **{name: value})
        assert hyper(changed) != hyper(C), name
        assert program(changed) == expected, name


def test_configs_share_a_program_only_if_traced_fields_alone_differ():
    assert len({compile_key(c) for c in VARIED}) == 1
    assert len({compile_key(config.replace(c, z_loss=z)) for c in VARIED for z in (0.1, 2)}) == 1
    others = dict(d_ff=15), dict(steps=7), dict(beam=3), dict(smoothing="others"), dict(z_loss=0.1)
    for change in others:
        assert compile_key(config.replace(C, **change)) != compile_key(C), change
    stops = [config.replace(c, patience=2) for c in VARIED]
    assert len({compile_key(c) for c in stops}) == 2


@pytest.mark.full
@pytest.mark.parametrize("vectorised", [False, pytest.param(True, marks=pytest.mark.full)])
def test_compiling_and_evaluating_are_not_charged_as_training(vectorised, tmp_path, monkeypatch):
    """The clock advances by 1000 s for compiling and by 100 s for an evaluation."""
    clock, passed = time.monotonic, [0.0]

    def compile_slowly(*arguments):
        passed[0] += 1000
        return compile_for(*arguments)

    def evaluate(_):
        passed[0] += 100
        return 9.0

    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed[0])
    monkeypatch.setattr(trainer, "compile_for", compile_slowly)
    first, second = (x.history for x in run(tmp_path, VARIED[:2], evaluate, vectorised=vectorised))
    assert max(first.seconds, second.seconds) < 100
    for x, overhead in ((first, 1200), (second, 200)):  # together, they share it
        assert 0 <= x.overhead - (700 if vectorised else overhead) < 100
    records = read_metrics(tmp_path / "0" / "metrics.jsonl")
    assert max(r["seconds"] for r in records) < 100
    shutil.rmtree(tmp_path / "0" / "checkpoints" / "6")
    third = tmp_path / "0" / "checkpoints" / "3"
    standing = third / "standing" / "metadata"
    older = json.loads(standing.read_text()) | {"population_size": 7}  # as they once were
    standing.write_text(json.dumps(older))
    manifest.write(third)
    (alone,) = run(tmp_path, VARIED[:1], evaluate)  # goes on with its share of the time
    assert 0 <= alone.history.overhead - ((600 if vectorised else 1100) + 1100) < 100


def test_a_result_has_the_time_of_all_runs_that_were_trained_together(tmp_path, monkeypatch):
    clock, passed = time.monotonic, [0.0]

    def likelihoods(_):
        passed[0] += 100
        return np.ones((4, 2))

    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed[0])
    history = History(seconds=10.0, overhead=3.0, evaluations=[(6, 9.0)])  # the share of one of two
    trained = Trained({"w": jnp.ones(3)}, [6], history, 2)
    context = SimpleNamespace(
        likelihoods=likelihoods, scored=(), mesh=make_mesh(), model=SimpleNamespace(c=C.model),
        origin=lambda c: {"programs": {}},
    )  # fmt: skip
    result = execution._save(context, Member(C, None, tmp_path), trained)
    assert result["training_seconds"] == 20
    assert 206 <= result["overhead_seconds"] < 216
