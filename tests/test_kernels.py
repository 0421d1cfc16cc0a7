"""The kernels for GPUs, interpreted on a CPU, equal their plain definitions, forward and backward.

A GPU's own compiler is not needed here; `experiments/tools/gpu.py` checks the same on a device.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from t2t_jax import config
from t2t_jax.attention import build as build_mechanism
from t2t_jax.attention import dense
from t2t_jax.attention.dense import ScaledDotProduct
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.inference.weights import attention_maps
from t2t_jax.models import build
from t2t_jax.ops import cross_entropy, dropout, flash_attention, matmul, tiles
from t2t_jax.training import population, sharding
from t2t_jax.training.objective import cross_entropy as objective
from t2t_jax.training.objective import fused_cross_entropy
from t2t_jax.training.step import hyper, initialise, make_step
from tests.eight import on_eight_devices
from tests.gradients import close, drawn

V = 300  # no multiple of a tile


def target(shape, seed):
    t = np.random.default_rng(seed).integers(1, V, shape)
    t[0, 3:], t[-1] = 0, 0  # padding, and a row of nothing else
    return jnp.asarray(t, jnp.int32)


@pytest.mark.parametrize("factors", [(0.9, 0.1 / V), (0.9, 0.1 / V, 0.02)], ids=["", "z-loss"])
@pytest.mark.parametrize("tpu", [False, True], ids=["kernels", "XLA"])
@pytest.mark.parametrize(
    ("shape", "scale"),
    [((2, 5), 1), ((3, 43), 1), ((2, 5), 30)],
    ids=["one tile", "two tiles", "logits whose exp overflows"],
)
def test_cross_entropy_equals_its_plain_definition(shape, scale, tpu, factors, monkeypatch):
    monkeypatch.setattr(cross_entropy, "on_tpu", lambda: tpu)
    monkeypatch.setattr(cross_entropy, "PART_LOGITS", 128 * V)
    x, W, t = drawn((*shape, 64), 0, scale), drawn((V, 64), 1, 0.3 * scale), target(shape, 2)

    def sums_and_gradients(f):
        def run(x, W):
            sums = f(x, W, t, tuple(map(jnp.float32, factors)))
            return sums[0], sums

        return jax.jit(jax.value_and_grad(run, (0, 1), has_aux=True))(x, W)

    plain = sums_and_gradients(cross_entropy.plain)
    assert (float(plain[0][0]) > 1000) == (scale > 1)
    close(sums_and_gradients(cross_entropy.cross_entropy), plain, 2e-5 if scale == 1 else 1e-4)


@pytest.mark.parametrize(("smoothing", "z_loss"), [("uniform", None), ("others", 0.02)])
def test_the_fused_objective_equals_that_of_the_logits(smoothing, z_loss):
    x, W, t = drawn((2, 5, 64), 3), drawn((V, 64), 4, 0.3), target((2, 5), 5)

    @jax.jit
    def both(x, W):
        expected = objective(jnp.einsum("btd,vd->btv", x, W), t, 0.2, smoothing, z_loss=z_loss)
        return fused_cross_entropy(x, W, t, 0.2, smoothing, z_loss), expected

    close(*both(x, W))


@pytest.mark.parametrize(("undefined", "axes"), [("dy", 1), ("x", 2)])
def test_padding_reaches_no_gradient_of_a_masked_product(undefined, axes):
    present = jnp.arange(5)[None] < jnp.array([[3], [5]])
    width = (4,) if axes == 1 else (2, 3)
    x, W = drawn((2, 5, *width), 0), drawn((*width, 7), 1)
    dy = jnp.where(present[..., None], drawn((2, 5, 7), 2), 0)
    _, plain_back = jax.vjp(lambda x, W: matmul.plain(x, W, axes), x, W)
    expected = plain_back(dy)

    def poisoned(y):
        return jnp.where(present.reshape(2, 5, *(1,) * (y.ndim - 2)), y, jnp.nan)

    if undefined == "x":
        x = poisoned(x)
    _, back = jax.vjp(lambda x, W: matmul.matmul(x, W, axes, None, present, undefined), x, W)
    close(back(poisoned(dy) if undefined == "dy" else dy), expected)


@pytest.mark.parametrize(("T", "S", "causal"), [(5, 5, True), (3, 8, False)])
def test_fused_attention_keeps_to_what_jax_accepts(T, S, causal, monkeypatch):
    def checked(q, k, v, implementation, **options):
        assert implementation == "cudnn"
        assert q.shape[-1] == k.shape[-1] == v.shape[-1] == 8  # a multiple of 8
        assert q.shape[1] % 2 == k.shape[1] % 2 == v.shape[1] % 2 == 0  # or it has no gradient
        assert min(options[f"{side}_seq_lengths"].min() for side in ("query", "key_value")) > 0
        return original(q, k, v, **options)

    q, k, v = drawn((3, T, 2, 4), 0), drawn((3, S, 2, 4), 1), drawn((3, S, 2, 6), 2)
    q_lengths, kv_lengths = jnp.array([T, 2, 0]), jnp.array([S, 1, 0])
    rest = q_lengths, kv_lengths, causal, 0.5
    expected = flash_attention.plain(q, k, v, *rest)
    original = jax.nn.dot_product_attention
    monkeypatch.setattr(flash_attention, "on_gpu", lambda: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", checked)
    actual = flash_attention.flash_attention(q, k, v, *rest)
    assert actual.shape == expected.shape
    present = length_mask(q_lengths, T)[..., None, None]
    close(jnp.where(present, actual, 0), expected)


FLASH = "scaled_dot_product:power=1 dot_product general cosine softmax1 sink differential".split()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", FLASH)
def test_relatives_of_the_softmax_are_those_of_their_kernel(name, causal):
    """With empty rows, vmapped, and with the gradients of parameters."""
    q, k, v = (drawn((2, 3, 7, 2, width), i) for i, width in enumerate((4, 4, 6)))
    g, lengths, mechanism = drawn((3, 7, 2, 6), 4), jnp.array([7, 3, 0]), build_mechanism(name)
    visibility = Visibility(lengths, lengths, causal=causal)

    def run(fused, q, k, v):
        def f(variables, *x):
            out = mechanism.apply(variables, *x, visibility, fused=fused)
            return (out * g * length_mask(lengths, 7)[..., None, None]).sum()

        initial = mechanism.init(jax.random.key(0), q, k, v, visibility)
        variables = jax.tree.map(lambda x: x + 0.3, meta.unbox(initial))
        return jax.value_and_grad(f, (0, 1, 2, 3))(variables, q, k, v)

    fused, plain = (jax.jit(jax.vmap(partial(run, x)))(q, k, v) for x in (True, False))
    close(fused, plain)


class Halved(ScaledDotProduct):
    def scores(self, q, keys, t, s):
        return super().scores(q, keys, t, s) / 2


def test_a_subclass_does_not_use_the_kernel_of_its_base():
    q, k, v = drawn((3, 5, 2, 4), 0), drawn((3, 5, 2, 4), 1), drawn((3, 5, 2, 6), 2)
    apply = jax.jit(partial(Halved(power=0.5).apply, {}), static_argnames="fused")
    close(apply(q, k, v, Visibility(), fused=True), apply(q, k, v, Visibility()))


def test_attention_without_a_kernel_is_plain(monkeypatch):
    q, k, v = drawn((3, 5, 2, 4), 0), drawn((3, 5, 2, 4), 1), drawn((3, 5, 2, 6), 2)
    visibility = Visibility(causal=True)
    local, wide = build_mechanism("local:w=2"), build_mechanism("scaled_dot_product")
    assert local.fused(q, k, v, visibility) is None
    assert wide.fused(drawn((3, 5, 2, 200), 0), *(k, v), visibility) is None
    apply = jax.jit(partial(local.apply, {}), static_argnames="fused")
    close(apply(q, k, v, visibility, fused=True), apply(q, k, v, visibility))
    monkeypatch.setattr(dense, "flash_attention", None)  # what is not called
    for argument in (dict(dropout=lambda a: a), dict(bias=lambda s: 0.0 * s[None])):
        wide(q, k, v, visibility, fused=True, **argument)


@pytest.mark.parametrize("shape", [(2, 3, 8), (3, 5, 6), (7,)])
def test_packed_random_bits_equal_the_others(shape):
    key, threshold = jax.random.key(3), jnp.float32(20000)
    kept, packed = (
        jax.jit(f, static_argnums=1)(key, shape, threshold)
        for f in (dropout._kept, dropout._kept_packed)
    )
    np.testing.assert_array_equal(kept, packed)
    assert kept.any()
    assert not kept.all()


def small(**changes):
    fields = dict(N=1, d_model=64, d_ff=128, h=2, d_k=32, d_v=32, P_drop=0.1, steps=20, warmup=10)
    return config.replace(config.Config(), **fields | changes)


def drawn_batch(i, mesh):
    batch = dict(source=target((4, 6), i), target=target((4, 7), i + 100))
    return sharding.put_batch(jax.tree.map(np.asarray, batch), mesh)


def losses(kernels, steps, mesh="", **changes):
    """Loss, nll and norm of the gradient of steps [steps, 3], and the parameters after them."""
    c, mesh = small(kernels=kernels, **changes), sharding.make_mesh(mesh)
    model, h = build(c, V), sharding.replicate(hyper(c), mesh)
    step, actual = jax.jit(make_step(model, c)), []
    with sharding.use_mesh(mesh):
        state = initialise(model, c, mesh)
        for i in range(steps):
            state, metrics = step(state, drawn_batch(i, mesh), h)
            actual.append([float(x) for x in (metrics.loss, metrics.nll, metrics.grad_norm)])
    return np.array(actual), state.params


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.full),  # as on a mesh
        dict(norm_placement="pre", smoothing="others", positions="rotary", z_loss=0.01),
        dict(embeddings="untied", logit_cap=2.0),
    ],
    ids=str,
)
def test_a_run_with_kernels_has_the_losses_of_one_without(changes):
    """Dropout draws are equal, too, so that only the order of sums differs."""
    (plain, expected), (fused, params) = (losses(x, 4, **changes) for x in ("plain", "fused"))
    np.testing.assert_allclose(fused, plain, rtol=1e-4)
    close(params, expected, 1e-3)


@jax.custom_vjp
def poisoned(x, present):
    """x [B, L, h, d], whose gradient is NaN where it is not present."""
    return x


def poison(x, present):
    return jnp.where(present[:, :, None, None], x, jnp.nan)


poisoned.defvjp(lambda x, present: (x, present), lambda present, g: (poison(g, present), None))


MANY = dict(norm_placement="pre", qk_norm="rms_norm", decoder_conv=3, attention_gate="element")
RELATIVES = dict(
    encoder_attention="cosine", decoder_attention="sink", cross_attention="differential"
)


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [
        dict(MANY, h_kv=1, **RELATIVES),
        dict(encoder_attention="general"),
        dict(d_c=24, positions="rotary"),
    ],
    ids=str,
)
def test_what_a_kernel_leaves_undefined_in_padding_changes_nothing(changes, monkeypatch):
    def undefined(q, k, v, q_lengths, kv_lengths, *rest):
        q_present, kv_present = (
            length_mask(lengths, x.shape[1]) for x, lengths in ((q, q_lengths), (k, kv_lengths))
        )
        q, k, v = poisoned(q, q_present), poisoned(k, kv_present), poisoned(v, kv_present)
        out = flash_attention.plain(q, k, v, q_lengths, kv_lengths, *rest)
        return poison(out, q_present)

    expected, params = losses("plain", 2, **changes)
    monkeypatch.setattr(dense, "flash_attention", undefined)
    actual, others = losses("fused", 2, **changes)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    close(others, params, 1e-3)


@pytest.mark.full
def test_attention_maps_do_not_need_the_mechanism_to_be_plain():
    maps = []
    for kernels in ("plain", "fused"):
        model = build(small(kernels=kernels), V)
        ids = jnp.ones((1, 1), jnp.int32)
        params = meta.unbox(jax.jit(model.init)(jax.random.key(0), ids, ids))
        maps += attention_maps(model, params["params"], [[5, 9, 2]], [[7, 2]])
    assert len(maps[0]) == len(maps[1]) == 3
    for plain, fused in zip(*maps, strict=True):
        np.testing.assert_array_equal(plain.weights, fused.weights)


@pytest.mark.full
def test_two_hundred_steps_in_bfloat16_are_as_close_to_float32_with_kernels_as_without():
    """Single batches of the two differ by up to 2.4%, and either by up to 7% from float32."""
    (exact, _), (plain, _) = (losses("plain", 200, dtype=x) for x in ("float32", "bfloat16"))
    fused, _ = losses("fused", 200, dtype="bfloat16")
    rounding, with_kernels = (abs(x[:, 0] / exact[:, 0] - 1) for x in (plain, fused))
    assert with_kernels.mean() < 1.1 * rounding.mean()
    assert with_kernels.max() < 1.1 * rounding.max()
    assert abs(fused[:, 0] / plain[:, 0] - 1).mean() < 2**-8


def test_kernels_are_for_bfloat16_on_accelerators():
    assert build(small(), V).c.kernels == "plain"
    assert build(small(), V, "gpu").c.kernels == "fused"
    assert build(small(kernels="plain"), V, "gpu").c.kernels == "plain"
    assert build(small(dtype="float32"), V, "gpu").c.kernels == "plain"
    assert build(small(), V, "tpu").c.kernels == "fused"


def test_a_tpu_has_no_kernels_but_computes_the_loss_in_parts(monkeypatch):
    monkeypatch.setattr(tiles, "on_tpu", lambda: True)
    monkeypatch.setattr(cross_entropy, "on_tpu", lambda: True)
    model = build(small(d_model=24), V, "tpu")
    assert not tiles.has_kernels(model.c.kernels)
    assert model.fuses_softmax
    assert not build(small(kernels="plain"), V, "tpu").fuses_softmax


def check_kernels_on_meshes():
    """Each device runs the kernels on its rows; with `tensor`, divided parts are plain."""
    alone, _ = losses("plain", 2)
    for mesh, fused in (("data=4,fsdp=2", True), ("data=4,tensor=2", False)):
        with sharding.use_mesh(sharding.make_mesh(mesh)):
            assert build(small(kernels="fused"), V).fuses_softmax == fused
        np.testing.assert_allclose(losses("fused", 2, mesh)[0], alone, rtol=1e-4)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_kernels_on_meshes():
    on_eight_devices(check_kernels_on_meshes)


@pytest.mark.full
def test_members_of_a_population_with_kernels_are_independent():
    changes, mesh = dict(kernels="fused", architecture="decoder"), sharding.make_mesh()
    configs = [small(seed=s, z_loss=0.1 + s, **changes) for s in (0, 1)]
    model = build(configs[0], V)
    step = make_step(model, configs[0])
    with sharding.use_mesh(mesh):
        members = [
            (initialise(model, c, mesh), drawn_batch(i, mesh), sharding.replicate(hyper(c), mesh))
            for i, c in enumerate(configs)
        ]
        stacked = [population.stack(list(x)) for x in zip(*members, strict=True)]
        _, together = jax.jit(population.vmap_step(step, 2))(*stacked)
        for i, member in enumerate(members):
            _, alone = jax.jit(step)(*member)
            assert float(alone.loss) == pytest.approx(float(together.loss[i]), rel=1e-5)
            assert float(alone.grad_norm) == pytest.approx(float(together.grad_norm[i]), rel=1e-4)


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_only_a_program_with_kernels_has_kernels(kernels, monkeypatch):
    calls = []
    monkeypatch.setattr(
        dense, "flash_attention", lambda *x: calls.append(x) or flash_attention.plain(*x)
    )
    ids = jnp.ones((2, 5), jnp.int32)
    for name in ("local:w=2", "sparse_strided:l=2"):
        model = build(small(decoder_attention=name, kernels=kernels), V)
        program = str(jax.make_jaxpr(model.init)(jax.random.key(0), ids, ids))
        assert ("pallas_call" in program) == (kernels == "fused"), name
    assert bool(calls) == (kernels == "fused")
