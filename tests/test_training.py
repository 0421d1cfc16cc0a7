"""The objective, the schedule, Adam, and the train step that combines them."""

import math
import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.errors import RunError
from t2t_jax.models import build
from t2t_jax.ops.dropout import dropout, plain, threefry
from t2t_jax.recipes import RECIPES, recipe
from t2t_jax.terminal import Progress
from t2t_jax.training import sharding
from t2t_jax.training.loop import Member, train
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.optimizer import learning_rate, make, peak_lr
from t2t_jax.training.records import read_metrics
from t2t_jax.training.step import abstract, hyper, initialise, make_step, shift

V = 23
SMALL = config.replace(
    config.Config(), N=1, d_model=8, d_ff=14, h=2, d_k=3, d_v=5, max_length=9, batch_tokens=99
)
TRACED = dict(P_drop=0.0, eps_ls=0.0, peak_lr=0.0, warmup=1, steps=1)  # not part of the program


def batch(seed, B=8, S=6, T=5):
    rng = np.random.default_rng(seed)
    out = {}
    for name, width in (("source", S), ("target", T)):
        rows = rng.integers(4, V, (B, width), dtype=np.int32)
        lengths = rng.integers(1, width + 1, B)
        rows[np.arange(B), lengths - 1] = 2
        out[name] = np.where(np.arange(width) < lengths[:, None], rows, 0)
    return out


@cache
def initial(c):
    mesh = sharding.make_mesh()
    return jax.device_get(initialise(build(c, V), c, mesh))


@cache
def compiled(c):
    return jax.jit(make_step(build(c, V), c), donate_argnums=0)


def run(c, batches):
    """Returns parameters and metrics after each batch."""
    mesh, h, out = sharding.make_mesh(), hyper(c), []
    step, state = (
        compiled(config.replace(c, seed=0, **TRACED)),
        initial(config.replace(c, **TRACED)),
    )
    with sharding.use_mesh(mesh):
        state = sharding.replicate(state, mesh)
        for b in batches:
            state, metrics = step(state, sharding.put_batch(b, mesh), h)
            out.append(jax.device_get((state.params, metrics)))
    return out


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_step(name):
    """Traced for the longest sentences with one layer; nothing is compiled."""
    c = config.replace(recipe(name), N=1)
    model, mesh = build(c, V), sharding.make_mesh()
    with sharding.use_mesh(mesh):
        state, ids = abstract(model, c, mesh), jax.ShapeDtypeStruct((2, c.data.max_length), "int32")
        batch = {"source": ids, "target": ids}
        after, metrics = jax.eval_shape(make_step(model, c), state, batch, hyper(c))
    shapes, expected = (jax.tree.map(lambda x: (x.shape, x.dtype), x) for x in (after, state))
    assert shapes == expected
    assert metrics.loss.shape == ()


def assert_close(a, b, rtol=1e-5, atol=1e-6):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol, atol)


@pytest.mark.full
def test_moments_are_of_the_mean_gradient():
    c, mesh = config.replace(SMALL, seed=0, **TRACED), sharding.make_mesh()
    with sharding.use_mesh(mesh):
        state, b = sharding.replicate(initial(c), mesh), sharding.put_batch(batch(0), mesh)
        state, metrics = compiled(c)(state, b, hyper(c))
    mean = jax.tree.leaves(state.optimizer.mu)
    norm = np.sqrt(sum(np.square(x, dtype=np.float64).sum() for x in mean)) / (1 - c.training.beta1)
    np.testing.assert_allclose(metrics.grad_norm, norm, rtol=1e-4)


def test_a_step_updates_the_state_in_place():
    c, mesh = config.replace(SMALL, seed=0, **TRACED), sharding.make_mesh()
    with sharding.use_mesh(mesh):
        state, b = sharding.replicate(initial(c), mesh), sharding.put_batch(batch(0), mesh)
        text = compiled(c).lower(state, b, hyper(c)).compile().as_text()
    entry = text[text.index("ENTRY") :]
    matrices = re.findall(r"%(\S+) = f32\[\d+,\S+ parameter\(", entry)
    assert len(matrices) > 3 * 12  # parameters and both moments of every layer
    assert not [name for name in matrices if f"copy(%{name})" in entry]


@pytest.mark.parametrize("smoothing", ["uniform", "others"])
@pytest.mark.parametrize(("eps_ls", "z_loss"), [(0.0, None), (0.1, None), (0.1, 0.3)])
def test_cross_entropy_equals_its_definition(smoothing, eps_ls, z_loss):
    rng = np.random.default_rng(0)
    logits, target = rng.normal(size=(3, 4, V)), rng.integers(1, V, (3, 4))
    target[0, 2:], target[2] = 0, 0
    loss = nll = 0.0
    for z, y in zip(logits.reshape(-1, V), target.reshape(-1), strict=True):
        if y:
            log_p = z - np.log(np.exp(z).sum())
            other = eps_ls / V if smoothing == "uniform" else eps_ls / (V - 1)
            expected = np.full(V, other)
            expected[y] = 1 - eps_ls + (other if smoothing == "uniform" else 0)
            loss -= expected @ log_p
            nll -= log_p[y]
            loss += (z_loss or 0) * np.log(np.exp(z).sum()) ** 2
            if smoothing == "others" and eps_ls:
                loss += expected @ np.log(expected)
    arguments = jnp.float32(logits), jnp.int32(target), eps_ls, smoothing
    actual = cross_entropy(*arguments, z_loss=z_loss)
    np.testing.assert_allclose(actual["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(actual["nll"], nll, rtol=1e-5)
    assert actual["tokens"] == np.count_nonzero(target)


@pytest.mark.full
def test_a_z_loss_is_part_of_the_loss_and_not_of_the_nll():
    c = config.replace(SMALL, P_drop=0.0, eps_ls=0.0, z_loss=0.3)
    ((_, metrics),), b = run(c, [batch(0)]), batch(0)
    variables = {"params": initial(config.replace(c, **TRACED)).params}
    logits = build(c, V).apply(variables, b["source"], shift(b["target"]))
    log_z = np.log(np.exp(np.asarray(logits, np.float64)).sum(-1))[b["target"] != 0]
    assert metrics.loss - metrics.nll == pytest.approx(0.3 * (log_z**2).mean(), rel=1e-5)
    ((_, without),) = run(config.replace(c, z_loss=0.0), [batch(0)])
    assert without.loss == without.nll == metrics.nll
    assert metrics.grad_norm > 1.1 * without.grad_norm


def test_the_schedule_is_equation_3():
    c = config.Config()
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        actual = learning_rate(jnp.int32(step), peak_lr(c), 4000.0, 1e5, "inverse_sqrt")
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert peak_lr(c) == pytest.approx(6.99e-4, rel=1e-3)
    assert peak_lr(config.replace(c, peak_lr=5e-3)) == 5e-3


def test_the_linear_schedule_rises_then_falls_to_zero():
    actual = [learning_rate(jnp.int32(s), 3.0, 4.0, 10.0, "linear") for s in range(1, 12)]
    down = [3 * (11 - s) / 7 for s in range(5, 12)]
    np.testing.assert_allclose(actual, [0.75, 1.5, 2.25, 3.0, *down], rtol=1e-6)


def test_adam_is_that_of_the_paper():
    c, rng = config.Training(), np.random.default_rng(1)
    x, m, v = np.zeros(3), np.zeros(3), np.zeros(3)
    optimizer, actual = make(c), jnp.zeros(3)
    moments = optimizer.init(actual)
    for t in range(1, 5):
        g = rng.normal(size=3)
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        x = x + m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
        direction, moments = optimizer.update(jnp.float32(g), moments)
        actual = actual + direction
    np.testing.assert_allclose(actual, x, rtol=1e-5)


def test_shift_prepends_bos_and_keeps_padding():
    target = jnp.array([[7, 8, 2, 0], [5, 6, 9, 2], [0, 0, 0, 0]])
    np.testing.assert_array_equal(shift(target), [[1, 7, 8, 0], [1, 5, 6, 9], [0, 0, 0, 0]])


@pytest.mark.parametrize("of", [dropout, plain])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.999])
def test_dropout_drops_its_share_and_keeps_the_mean(rate, of):
    x = of(jnp.ones((301, 333)), jnp.float32(rate), jax.random.key(0))
    kept = np.asarray(x != 0)
    deviation = np.sqrt(rate * (1 - rate) / kept.size)
    assert abs(kept.mean() - (1 - rate)) <= 4 * deviation + 2**-16
    np.testing.assert_allclose(x[kept], 1 / (1 - rate), rtol=2e-2 if rate > 0.99 else 1e-4)
    neighbours = np.corrcoef(kept[:, :-1].ravel(), kept[:, 1:].ravel())[0, 1] if rate else 0
    assert abs(neighbours) < 0.02


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (13, "9d1c5ec6 8bd50731 fd36d048 2d17272c ba3e4725 f27d669e"),
        (20, "6b200159 99ba4efe 1cb996fc bb002be7 c4923a9c 483df7a0"),
    ],
)
def test_threefry_equals_published_words(rounds, words):
    """The words are known answers from the distribution of Random123."""
    keys = jnp.array([[0, 0], [2**32 - 1] * 2, [0x13198A2E, 0x03707344]], jnp.uint32)
    counters = jnp.array([[0, 0], [2**32 - 1] * 2, [0x243F6A88, 0x85A308D3]], jnp.uint32)
    actual = threefry(tuple(keys.T), tuple(counters.T), rounds)
    assert [f"{int(x):08x}" for x in np.stack(actual, 1).ravel()] == words.split()


def test_dropout_masks_are_uncorrelated():
    """Masks are uncorrelated between keys, columns, rows and the four elements of one draw."""
    keys = jax.random.split(jax.random.key(3), 2)
    ones = jnp.ones((64, 25, 30))
    masks = np.stack([dropout(ones, 0.5, key) != 0 for key in keys]).astype(float)
    pairs = {"keys": (masks[0], masks[1])}
    for apart in (1, 2, 7, 8, 15, 16):  # one draw decides elements at several of these distances
        pairs[f"column {apart}"] = masks[:, :, :, :-apart], masks[:, :, :, apart:]
        pairs[f"row {apart}"] = masks[:, :, :-apart], masks[:, :, apart:]
    for name, (a, b) in pairs.items():
        correlation = np.corrcoef(a.ravel(), b.ravel())[0, 1]
        assert abs(correlation) < 4.5 / np.sqrt(a.size), name
    columns = masks.mean((0, 1, 2))
    assert abs(columns - 0.5).max() < 4.5 * 0.5 / np.sqrt(2 * 64 * 25)
    fewer = dropout(ones[:7], 0.5, keys[0]) != 0
    np.testing.assert_array_equal(fewer, masks[0, :7] != 0)


def test_training_fits_a_batch():
    c = config.replace(SMALL, P_drop=0.0, eps_ls=0.0, peak_lr=2e-2, warmup=10, steps=400)
    losses = [m.nll for _, m in run(c, [batch(0)] * 150)]
    assert losses[0] > 2.5
    assert losses[-1] < 0.3


def test_nan_parameters_are_not_saved(tmp_path):
    """The loss of the last step is finite, but the perplexity after it is NaN."""
    c = config.replace(SMALL, steps=4, evaluate_every=2)
    batches = (((0, i + 1), batch(i)) for i in range(9))
    perplexities = iter([3.0, math.nan])
    member = Member(c, lambda *place: batches, tmp_path)
    evaluate = lambda _: next(perplexities)  # noqa: E731
    ((_, error),) = train(build(c, V), [member], evaluate, Progress(), sharding.make_mesh())
    assert isinstance(error, RunError)
    assert "the checkpoint of step 2 is good" in str(error)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit()] == ["2"]


def test_a_run_of_few_steps_has_a_record_of_its_last_step(tmp_path):
    """Without an evaluation, records are written every 50 steps."""
    c = config.replace(SMALL, steps=3, evaluate_every=2)
    batches = (((0, i + 1), batch(i)) for i in range(9))
    member = Member(c, lambda *place: batches, tmp_path)
    ((_, trained),) = train(build(c, V), [member], lambda _: 3.0, Progress(), sharding.make_mesh())
    assert trained.history.evaluations == [(2, 3.0), (3, 3.0)]
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert [(r["step"], "nll" in r) for r in records] == [(2, False), (3, True), (3, False)]
    assert records[1]["seconds_per_step"] > 0


def test_accumulated_gradients_equal_those_of_the_whole_batch():
    batches = [batch(i) for i in range(3)]
    c = config.replace(SMALL, P_drop=0.0, peak_lr=1e-2, warmup=1, eps=1e-3)
    whole, parts = run(c, batches), run(config.replace(c, accumulate=4), batches)
    assert_close(whole, parts)


def test_padding_rows_and_columns_have_no_effect():
    c = config.replace(SMALL, P_drop=0.0, peak_lr=1e-2, warmup=1, eps=1e-3)
    batches = [batch(i) for i in range(2)]
    wider = [{k: np.pad(x, ((0, 3), (0, 2))) for k, x in b.items()} for b in batches]
    assert_close(run(c, batches), run(c, wider))


def test_a_run_depends_on_its_seed_alone():
    batches = [batch(i) for i in range(3)]
    c = config.replace(SMALL, P_drop=0.3)
    first, second = run(c, batches)[-1], run(c, batches)[-1]
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(x, y)
    other = run(config.replace(c, seed=1), batches)[-1]
    assert not np.allclose(first[1].loss, other[1].loss)


def test_rows_that_differ_in_traced_values_share_a_program():
    compiled.cache_clear()
    for changes in ({}, dict(P_drop=0.0), dict(eps_ls=0.2), dict(peak_lr=1e-3), dict(seed=4)):
        run(config.replace(SMALL, **changes), [batch(0)])
    assert compiled.cache_info().currsize == 1
    assert compiled(config.replace(SMALL, **TRACED))._cache_size() == 1
