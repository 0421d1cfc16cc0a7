"""Optimizers of files train, are divided over devices, resume and train in populations."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t2t_jax import config
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.parts import OPTIMIZERS
from t2t_jax.runs import study_file
from t2t_jax.study.declaration import EXPERIMENTS
from t2t_jax.terminal import Progress
from t2t_jax.training import sharding
from t2t_jax.training.loop import Member, train
from t2t_jax.training.optimizer import learning_rate
from t2t_jax.training.step import hyper, initialise, make_step
from tests.eight import on_eight_devices
from tests.test_training import SMALL, V, batch, run

TEXT = """
import optax

from t2t_jax.study import optimizer


@optimizer("sign_momentum", mup=True)
def sign_momentum(beta1, beta2):
    return optax.scale_by_lion(beta1, beta2)


@optimizer("sgd")
def sgd(momentum=None):
    return optax.trace(momentum) if momentum else optax.identity()
"""
OWN = "sign_momentum", "sgd", "adafactor", "muon"
STUDY = EXPERIMENTS / "optimizers.py"
C = config.replace(SMALL, steps=6, evaluate_every=3, warmup=2, peak_lr=1e-2, P_drop=0.2)


@pytest.fixture(scope="module", autouse=True)
def own_file(tmp_path_factory):
    study_file.load(STUDY)
    path = tmp_path_factory.mktemp("mine") / "own.py"
    path.write_text(TEXT)
    study_file.load(path)
    return path


def direction(c, steps=1):
    """Returns parameters before and after steps on one batch."""
    mesh = sharding.make_mesh()
    with sharding.use_mesh(mesh):
        state, b = initialise(build(c, V), c, mesh), sharding.put_batch(batch(0), mesh)
        before, step = jax.device_get(state.params), jax.jit(make_step(build(c, V), c))
        for _ in range(steps):
            state, metrics = step(state, b, hyper(c))
    return before, jax.device_get(state.params), metrics


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=[pytest.mark.full] * (x not in ("adam", "sgd")))
        for x in (*OPTIMIZERS, *OWN)
    ],
)
def test_every_optimizer_descends(name):
    c = config.replace(C, optimizer=name, P_drop=0.0, schedule="wsd", steps=99, peak_lr=2e-2)
    losses = [float(m.nll) for _, m in run(c, [batch(0)] * 30)]
    assert losses[-1] < losses[0] - (0.05 if name == "sgd" else 0.7)


@pytest.mark.parametrize(
    "architecture", [pytest.param("transformer", marks=pytest.mark.full), "recurrent"]
)
def test_weight_decay_is_adamws_on_matrices_alone(architecture):
    """The oracle is optax's AdamW, after a first step, and no decay of biases and scales.

    The bias of an LSTM has an axis for its gates.
    """
    c = config.replace(C, warmup=1, peak_lr=0.3, weight_decay=0.2, P_drop=0.0)
    if architecture == "recurrent":
        c = config.replace(c, architecture=architecture, attention_feeding="none")
    before, plain, _ = direction(config.replace(c, weight_decay=0.0))
    _, decayed, _ = direction(c)
    solver = optax.adamw(0.3, 0.9, 0.98, 1e-9, weight_decay=0.2)
    for (path, x), a, b in zip(
        jax.tree_util.tree_leaves_with_path(before),
        jax.tree.leaves(plain),
        jax.tree.leaves(decayed),
        strict=True,
    ):
        if x.ndim == 1 or path[-1].key == "b":
            np.testing.assert_array_equal(a, b, err_msg=str(path))
            continue
        sign = np.where(a < x, 1.0, -1.0)  # that of the gradient, and of Adam's first update
        updates, _ = solver.update(jnp.float32(sign), solver.init(x), x)
        moved = np.abs(a - x) > 0.29  # where the gradient is not tiny
        np.testing.assert_allclose((b - x)[moved], np.asarray(updates)[moved], atol=2e-4)
        assert moved.mean() > 0.5


@pytest.mark.full
def test_clipping_bounds_the_norm_of_the_gradient():
    """Plain SGD moves the parameters by the learning rate times the clipped gradient."""
    c = config.replace(C, optimizer="sgd", warmup=1, peak_lr=1.0, P_drop=0.0)
    norms = []
    for clip_norm in (0.0, 1e6, 0.125):
        before, after, metrics = direction(config.replace(c, clip_norm=clip_norm))
        difference = jax.tree.map(np.subtract, after, before)
        norms.append(float(optax.tree.norm(difference)))
    assert norms[0] == norms[1] == pytest.approx(float(metrics.grad_norm), rel=1e-3)
    assert norms[2] == pytest.approx(0.125, rel=1e-3)


def test_a_schedule_of_a_file_is_the_whole_curve():
    steps = 1, 5, 10, 80, 90, 100
    rates = [float(learning_rate(jnp.int32(s), 2.0, 10, 100, "wsd")) for s in steps]
    np.testing.assert_allclose(rates, [0.2, 1, 2, 2, 1, 0], atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["muon", *(pytest.param(x, marks=pytest.mark.full) for x in ("sgd", "adafactor"))]
)
def test_a_resumed_run_equals_an_uninterrupted_one(name, tmp_path):
    """Two members, so that the state is also taken apart and stacked."""
    configs = [config.replace(C, optimizer=name, seed=seed, weight_decay=0.1) for seed in (0, 1)]

    def stream(c):
        def batches(epoch, index):
            while True:
                yield (0, index + 1), batch(100 * c.training.seed + index)
                index += 1

        return batches

    def trained(directory, steps):
        members = [
            Member(config.replace(c, steps=steps), stream(c), directory / str(c.training.seed))
            for c in configs
        ]
        arguments = lambda _: 3.0, Progress(), sharding.make_mesh()
        return [x.params for _, x in train(build(C, V), members, *arguments, vectorised=True)]

    whole = trained(tmp_path / "whole", 6)
    trained(tmp_path / "cut", 3)
    for a, b in zip(
        jax.tree.leaves(trained(tmp_path / "cut", 6)), jax.tree.leaves(whole), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def losses(c, described):
    """Returns the losses of three steps on eight devices, and the optimizer's first state."""
    mesh, model, out = sharding.make_mesh(described), build(c, 24), []
    step = jax.jit(make_step(model, c))
    with sharding.use_mesh(mesh):
        first = state = initialise(model, c, mesh)
        for i in range(3):
            state, metrics = step(state, sharding.put_batch(batch(i), mesh), hyper(c))
            out.append(float(metrics.loss))
    return out, first.optimizer


def check_division():
    with tempfile.TemporaryDirectory() as directory:
        (path := Path(directory) / "own.py").write_text(TEXT)
        study_file.load(path)
        study_file.load(STUDY)
    for name, moments in (("adam", 2), ("sign_momentum", 1), ("muon", 1), ("adafactor", 0)):
        c = config.replace(C, optimizer=name, d_ff=16, d_k=4, d_v=4, P_drop=0.0, eps_ls=0.0)
        expected, _ = losses(c, "data=8")
        actual, state = losses(c, "data=2,fsdp=2,tensor=2")
        np.testing.assert_allclose(actual, expected, rtol=2e-4, err_msg=name)
        leaves = {
            jax.tree_util.keystr(path, simple=True, separator="/"): tuple(x.sharding.spec)
            for path, x in jax.tree_util.tree_leaves_with_path(state)
        }
        of_matrix = [spec for n, spec in leaves.items() if n.endswith("encoder_0/attention/W_Q")]
        assert of_matrix.count(("fsdp", "tensor", None)) == moments, (name, leaves)
        assert all(spec == () for n, spec in leaves.items() if n.endswith("count"))


@pytest.mark.full
def test_the_state_is_divided_like_the_parameters():
    on_eight_devices(check_division)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(optimizer="adma"), "did you mean 'adam'"),
        (dict(optimizer="lion", eps=1e-6), "eps=1e-06 has no effect with optimizer=lion"),
        (dict(optimizer="muon", parametrization="mup"), "no learning rates for optimizer=muon"),
        (dict(weight_decay=-1.0), "weight_decay cannot be negative"),
    ],
)
def test_settings_without_meaning_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        config.replace(C, **changes)
    config.replace(C, optimizer="sign_momentum", parametrization="mup", beta2=0.9)


def test_an_unknown_argument_is_refused(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(TEXT.replace("momentum=None", "momentum").replace('"sgd"', '"other"'))
    with pytest.raises(UsageError, match="has an argument momentum, which is none of the fields"):
        study_file.load(path)
