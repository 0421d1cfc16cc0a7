"""A run on any mesh of eight devices equals the run on one device."""

import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from experiments.tools.collectives import moves
from t2t_jax import config
from t2t_jax.attention import MECHANISMS
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.training import population, sharding
from t2t_jax.training.sharding import make_mesh
from t2t_jax.training.step import abstract, hyper, initialise, make_step
from t2t_jax.training.throughput import compile_for
from tests.eight import on_eight_devices
from tests.test_training import batch

V, STEPS = 24, 20
C = config.replace(
    config.Config(),
    **dict(N=1, d_model=8, d_ff=12, h=4, d_k=3, d_v=5, warmup=8, lr_scale=0.3, P_drop=0.2),
    **dict(max_length=9, batch_tokens=99),
)
MIXED = "data=2,fsdp=2,tensor=2"
MESHES = "data=8", "fsdp=8", "tensor=4,data=2"


SHAPES = (6, 7, 5), (10, 4, 6)  # eight devices divide the rows of neither
ONE = SHAPES[:1]


def batches(seed, accumulate, shapes):
    for i in range(STEPS):
        B, S, T = shapes[i % len(shapes)]
        yield batch(100 * seed + i, B * accumulate, S, T)


@functools.cache
def compiled(model, accumulate):
    """Returns the step without a mesh; all other differences between these configs are traced."""
    return jax.jit(make_step(model, config.replace(C, accumulate=accumulate)))


def alone(c, model, shapes):
    """Returns the losses of one run without a mesh."""
    step, losses = compiled(model, c.training.accumulate), []
    state = jax.device_get(initialise(model, c, make_mesh()))
    for b in batches(c.training.seed, c.training.accumulate, shapes):
        state, metrics = step(state, b, hyper(c))
        losses.append(float(metrics.loss))
    return losses


def together(mesh, configs, model, shapes):
    """Returns losses [steps, P] of runs on a mesh, and the final state."""
    c, P = configs[0], len(configs)
    step = population.vmap_step(make_step(model, c), P)
    losses, programs = [], {}
    with sharding.use_mesh(mesh):
        state = population.stack([initialise(model, c, mesh) for c in configs])
        h = population.stack([sharding.replicate(hyper(c), mesh) for c in configs])
        streams = [batches(c.training.seed, c.training.accumulate, shapes) for c in configs]
        for drawn in zip(*streams, strict=True):
            b = population.stack_batches(drawn)
            placed = sharding.put_batch(b, mesh, c.training.accumulate)
            shape = placed["source"].shape
            if shape not in programs:
                programs[shape] = compile_for(step, P, state, placed, h)
            state, metrics = programs[shape].run(state, placed, h)
            losses.append(np.atleast_1d(metrics.loss))
    return np.array(losses), state


def check_mixed_mesh():
    c = config.replace(C, h_kv=2)
    model, mesh = build(c, V), make_mesh(MIXED)
    actual, _ = together(mesh, [c], model, ONE)
    np.testing.assert_allclose(actual[:, 0], alone(c, model, ONE), rtol=1e-5)


def check_every_model():
    """Some parameter of every mechanism and architecture is sharded over the mesh."""
    mesh, width = make_mesh(MIXED), dict(N=1, d_model=8)
    models = [
        config.replace(C, d_k=4, **{f"{t.roles[0]}_attention": n})
        for n, t in MECHANISMS.items()
        if not t.changing
    ]
    models += [config.replace(C, d_c=6)]
    models += [config.replace(C, d_k=4, positions=p) for p in ("learned", "relative", "rotary")]
    models += [config.replace(config.Config(), architecture=a, **width) for a in ARCHITECTURES]
    for c in models:
        parts = [
            math.prod(x.shape) // math.prod(x.sharding.shard_shape(x.shape))
            for x in jax.tree.leaves(abstract(build(c, V), c, mesh).params)
        ]
        assert max(parts) >= 2, c.model


def check_every_mesh():
    """Only the mixed mesh has batches of two shapes, as each is a program to compile."""
    model = build(C, V)
    for accumulate, shapes, meshes in ((1, ONE, MESHES), (1, SHAPES, [MIXED]), (2, ONE, [MIXED])):
        c = config.replace(C, accumulate=accumulate)
        expected = alone(c, model, shapes)
        assert expected[-1] < 0.9 * expected[0]
        for described in meshes:
            mesh = make_mesh(described)
            actual, state = together(mesh, [c], model, shapes)
            np.testing.assert_allclose(actual[:, 0], expected, rtol=1e-5, err_msg=described)
            check_layout(state, mesh)


def check_layout(state, mesh):
    """Parameters and their moments are split into as many parts as the rules say."""
    sizes = mesh.shape
    parts = {
        "embedding/matrix": sizes["fsdp"] * sizes["tensor"],
        "encoder_0/attention/W_Q": sizes["fsdp"] * sizes["tensor"],
        "decoder_0/cross_attention/W_O": sizes["fsdp"] * sizes["tensor"],
        "decoder_0/feed_forward/W_2": sizes["fsdp"] * sizes["tensor"],
        "encoder_0/feed_forward/b_1": sizes["tensor"],
        "encoder_0/add_norm_attention/norm/affine/scale": sizes["fsdp"],
    }
    leaves = jax.tree_util.tree_leaves_with_path((state.params, state.optimizer))
    for name, count in parts.items():
        leaves_of_name = [
            leaf
            for path, leaf in leaves
            if jax.tree_util.keystr(path, simple=True, separator="/").endswith(name)
        ]
        assert len(leaves_of_name) == 3, name  # the parameter and two moments
        for leaf in leaves_of_name:
            held = {math.prod(shard.data.shape) for shard in leaf.addressable_shards}
            assert held == {leaf.size // count}, (name, mesh)


def check_every_population():
    configs = [config.replace(C, seed=seed, P_drop=0.1 * seed) for seed in range(4)]
    model = build(C, V)
    expected = np.array([alone(c, model, ONE) for c in configs]).T
    for described in ("population=4,data=2", "population=2,fsdp=2,tensor=2"):
        mesh = make_mesh(described)
        actual, state = together(mesh, configs, model, ONE)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, err_msg=described)
        held = {shard.data.shape[0] for shard in jax.tree.leaves(state)[1].addressable_shards}
        assert held == {4 // mesh.shape["population"]}


def check_collectives():
    """Collective operations of known size are counted from the compiled program."""
    mesh = make_mesh("data=4,tensor=2")
    x = jax.device_put(
        jnp.zeros((8, 250), jnp.float32), NamedSharding(mesh, PartitionSpec("data", "tensor"))
    )

    def moved(function, layout):
        with jax.set_mesh(mesh):
            program = jax.jit(function, out_shardings=NamedSharding(mesh, layout))
            return list(moves(program.lower(x).compile(), 8))

    (whole,) = moved(lambda x: x, PartitionSpec("data", None))
    assert whole == ("all-gather", 2, 2 * 250 * 4)
    assert whole.sent == 1000
    (summed,) = moved(lambda x: x.sum(0), PartitionSpec("tensor"))
    assert summed == ("all-reduce", 4, 125 * 4)
    assert summed.sent == 2 * 500 * 3 / 4
    assert moved(lambda x: 2 * x, PartitionSpec("data", "tensor")) == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "%all-gather.5 = f32[1024,512]{1,0:T(8,128)S(1)} all-gather(%param), channel_id=1, "
            "replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) "
            "{'axis_0'}, dimensions={0}, use_global_device_ids=true",
            [("all-gather", 4, 1024 * 512 * 4)],
        ),
        (
            "ROOT %all-reduce = f32[512]{0:T(512)} all-reduce(%reduce), channel_id=1, "
            "replica_groups=mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}",
            [("all-reduce", 2, 2048)],
        ),
        (
            "%all-reduce.2 = bf16[7]{0} all-reduce(%x), channel_id=3, "
            "replica_groups=mesh['a'=16,'b'=2] {'a':(4)2,'b'}\n"
            "%all-reduce.3 = bf16[7]{0} all-reduce(%x), channel_id=3, replica_groups={{0,1}}",
            [("all-reduce", 4, 14)],  # the second only repeats the first
        ),
        (
            "%all-reduce.1 = f32[1024,512]{1,0:T(8,128)} all-reduce(%input), channel_id=1, "
            "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%region_0.0.clone",
            [("reduce-scatter", 4, 1024 * 512)],
        ),
        (
            "%collective-permute-start = (bf16[256,1024]{1,0:T(8,128)(2,1)S(1)}, "
            "bf16[256,1024]{1,0:T(8,128)(2,1)S(1)}, u32[]{:S(2)}, u32[]{:S(2)}) "
            "collective-permute-start(%fusion), channel_id=1, source_target_pairs={{0,0},{1,4}}\n"
            "%collective-permute-done = bf16[256,1024]{1,0} "
            "collective-permute-done(%collective-permute-start)",
            [("collective-permute", 8, 256 * 1024 * 2)],
        ),
    ],
)
def test_collectives_are_read_from_the_program_of_a_tpu(lines, expected):
    """The lines are from the compiler for a v5e slice."""
    fusion = "all-reduce-scatter" if "reduce-scatter" in str(expected) else "ENTRY"
    text = f"%{fusion} (x: f32[1]) -> f32[1] {{\n  " + lines.replace("\n", "\n  ")
    assert list(moves(SimpleNamespace(as_text=lambda: text), 8)) == expected


def check_refusals():
    model = build(C, V)
    for described, message in (
        ("tensor=8", "tensor=8 of the mesh does not divide"),
        ("data=4", "takes 4 devices, but there are 8"),
        ("date=8", "did you mean 'data'"),
        ("data=2,data=4", "give data one size"),
        ("data=0", "give data one size"),
        ("data", "give data one size"),
    ):
        with pytest.raises(UsageError, match=message):
            initialise(model, C, make_mesh(described))


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param(
            (check_refusals, check_collectives, check_every_model, check_mixed_mesh), id="quick"
        ),
        pytest.param((check_every_mesh, check_every_population), id="all", marks=pytest.mark.full),
    ],
)
@pytest.mark.timeout(600)
def test_eight_devices_equal_one(functions):
    on_eight_devices(*functions)


@pytest.mark.full
def test_padding_rows_have_no_effect():
    """Padding rows after a batch change neither the loss nor the random draws of other rows."""
    model = build(C, V)
    step, h = jax.jit(make_step(model, C)), hyper(C)
    state = jax.device_get(initialise(model, C, make_mesh()))
    b = batch(3, 5, 7, 6)
    longer = {side: jnp.pad(x, ((0, 3), (0, 0))) for side, x in b.items()}
    actual, expected = (step(state, x, h)[1]._asdict() for x in (longer, b))
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-6, err_msg=name)
