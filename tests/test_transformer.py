"""Figure 1 against plain numpy, Table 3's parameter counts, and decoding with a cache."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from t2t_jax import config
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models import build
from t2t_jax.models.layers import AddNorm, FeedForward, Positions
from t2t_jax.models.multihead import MultiHead
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.step import shift
from tests.reference import transformer as reference

V = 29
SMALL = config.replace(
    config.Config(), N=2, d_model=12, d_ff=22, h=3, d_k=5, d_v=7, max_length=13, batch_tokens=99
)
SENTENCES = ([5, 9, 23, 11, 2], [7, 28, 2]), ([6, 2], [14, 4, 4, 19, 8, 2]), ([17, 21, 2], [2])


def padded(rows, width):
    return jnp.array([row + [0] * (width - len(row)) for row in rows], jnp.int32)


SOURCE = padded([s for s, _ in SENTENCES], 8)
TARGET = padded([t for _, t in SENTENCES], 10)


def make(**changes):
    """A model whose every parameter is drawn anew, none at a special value such as zero."""
    model, rng = build(config.replace(SMALL, **changes), V), np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), SOURCE, TARGET)["params"]
    return model, jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.2, 0.4, x.shape), jnp.float32), nn.meta.unbox(shapes)
    )


@partial(jax.jit, static_argnums=0)
def full_logits(model, params, source=SOURCE, target=TARGET):
    encoded = model.apply({"params": params}, source, method="encode")
    return model.apply({"params": params}, encoded, shift(target), method="decode")


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({"norm": "pre"}, {"pre": True}),
        ({"positions": "learned"}, {"positions": "learned"}),
        (
            dict.fromkeys(
                ("encoder_attention", "decoder_attention", "cross_attention"), "dot_product"
            ),
            {"scaled": False},
        ),
        ({"positions": "rotary", "d_k": 6}, {"positions": "rotary"}),
        ({"positions": "relative"}, {"positions": "relative"}),
    ],
    ids=["paper", "pre", "learned", "unscaled", "rotary", "relative"],
)
def test_equals_numpy(changes, options):
    model, params = make(**changes)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    pairs = [(s, [1, *t[:-1]], t) for s, t in SENTENCES]
    found = np.asarray(full_logits(model, params))
    for i, (source, target_in, target) in enumerate(pairs):
        expected = reference.logits(exact, source, target_in, **options)
        np.testing.assert_allclose(found[i, : len(target)], expected, rtol=1e-5, atol=1e-5)

    def loss(params):
        sums = cross_entropy(full_logits(model, params), TARGET, 0.1)
        return sums["loss"] / sums["tokens"]

    np.testing.assert_allclose(loss(params), reference.loss(exact, pairs, 0.1, **options), 1e-5)
    gradient = jax.jit(jax.grad(loss))(params)
    rng = np.random.default_rng(2)
    for path, leaf in jax.tree_util.tree_leaves_with_path(exact):
        direction = rng.normal(size=leaf.shape)
        direction /= np.linalg.norm(direction)

        def along(step, path=path, direction=direction):
            moved = jax.tree_util.tree_map_with_path(
                lambda p, x: x + step * direction if p == path else x, exact
            )
            return reference.loss(moved, pairs, 0.1, **options)

        slope = (along(1e-6) - along(-1e-6)) / 2e-6  # short: a ReLU may bend in between
        found = dict(jax.tree_util.tree_leaves_with_path(gradient))[path]
        name = jax.tree_util.keystr(path)
        tolerance = 1e-5 * max(1, np.linalg.norm(found))
        np.testing.assert_allclose((found * direction).sum(), slope, 1e-5, tolerance, err_msg=name)


TABLE_3 = [
    ({}, 65),
    ({"d_k": 16}, 58),
    ({"d_k": 32}, 60),
    ({"N": 2}, 36),
    ({"N": 4}, 50),
    ({"N": 8}, 80),
    ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    ({"d_ff": 1024}, 53),
    ({"d_ff": 4096}, 90),
]


def count(V, **changes):
    model, token = build(config.replace(config.Config(), **changes), V), jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), token, token)
    return sum(x.size for x in jax.tree.leaves(shapes))


@pytest.mark.parametrize(("changes", "millions"), TABLE_3)
def test_parameter_counts_round_to_the_papers(changes, millions):
    assert round(count(41_100, **changes) / 1e6) == millions


def test_other_rows_have_the_size_of_base():
    for h, d in ((1, 512), (4, 128), (16, 32), (32, 16)):
        assert count(41_100, h=h, d_k=d, d_v=d) == count(41_100)
    assert count(37_000) == 63_045_632


MIXES = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"positions": "sinusoid_halves", "cross_attention": "additive"},
    dict(positions="rotary", d_k=6, decoder_attention="local:w=2", cross_attention="general"),
    dict(positions="relative", encoder_attention="local:w=2", decoder_attention="sparse_fixed:l=3"),
    dict(
        encoder_attention="performer:m=9", decoder_attention="linear", cross_attention="local:w=4"
    ),
    dict(encoder_attention="sparse_random:b=2", decoder_attention="sparse_strided:l=3"),
    dict(decoder_attention="sparse_random:b=2", cross_attention="local_p:w=3"),
]


@pytest.mark.parametrize("changes", MIXES, ids=lambda c: "-".join(map(str, c.values())) or "base")
def test_steps_equal_the_whole(changes):
    model, params = make(**changes)
    variables, whole = {"params": params}, full_logits(model, params)
    encoded = jax.jit(partial(model.apply, method="encode"))(variables, SOURCE)
    memory, state = model.apply(variables, encoded, TARGET.shape[1], method="start")
    step = jax.jit(partial(model.apply, method="step"))
    for t, tokens in enumerate(shift(TARGET).T):
        logits, state = step(variables, memory, state, tokens, jnp.int32(t))
        real = TARGET[:, t] != 0
        np.testing.assert_allclose(logits[real], whole[real, t], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_and_batch_change_nothing(norm):
    model, params = make(norm=norm)
    together = full_logits(model, params)
    for i, (source, target) in enumerate(SENTENCES):
        alone = full_logits(model, params, jnp.array([source]), jnp.array([target]))
        np.testing.assert_allclose(together[i, : len(target)], alone[0], rtol=1e-5, atol=1e-5)


def test_the_future_changes_nothing():
    model, params = make()
    changed = TARGET.at[1, 3].set(27)
    before, after = (full_logits(model, params, target=t) for t in (TARGET, changed))
    np.testing.assert_allclose(before[1, :4], after[1, :4], rtol=1e-6)
    assert not np.allclose(before[1, 4], after[1, 4])


def test_dropout_is_drawn_from_its_key_and_off_without_a_rate():
    model, params = make()

    @jax.jit
    def encode(key, P_drop):
        rngs = {"dropout": jax.random.key(key)}
        out = model.apply({"params": params}, SOURCE, P_drop, method="encode", rngs=rngs)
        return out.output

    np.testing.assert_array_equal(encode(0, 0.5), encode(0, 0.5))
    assert not np.allclose(encode(0, 0.5), encode(1, 0.5))
    plain = jax.jit(partial(model.apply, method="encode"))({"params": params}, SOURCE).output
    np.testing.assert_allclose(encode(0, 0.0), plain, rtol=1e-6, atol=1e-6)


NEARLY_ALL = 0.9999  # of so few elements, none is kept


def test_dropout_stands_where_the_paper_puts_it():
    x, f = jnp.ones((2, 3, 4)).at[0].set(2.0), lambda y: y + 5
    rngs = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    out, _ = AddNorm("pre", jnp.float32).init_with_output(rngs, x, f, NEARLY_ALL)
    np.testing.assert_array_equal(out, x)  # the residual stays, the sub-layer's output goes
    x = jax.random.normal(jax.random.key(2), (2, 3, 4))
    add_norm = AddNorm("post", jnp.float32)
    out, variables = add_norm.init_with_output(rngs, x, jnp.sin, NEARLY_ALL)
    kept = add_norm.apply(variables, x, jnp.zeros_like, None)
    np.testing.assert_allclose(out, kept, rtol=1e-6)
    out, _ = Positions("sinusoid", 9, jnp.float32).init_with_output(rngs, x, NEARLY_ALL)
    np.testing.assert_array_equal(out, 0)  # embedding and position both
    feed_forward = FeedForward(6, NEARLY_ALL, jnp.float32)
    variables = jax.tree.map(jnp.ones_like, nn.meta.unbox(feed_forward.init(rngs, x, True)))
    out = feed_forward.apply(variables, x, True, rngs={"dropout": jax.random.key(1)})
    np.testing.assert_array_equal(out, 1)  # the bias alone
    heads = MultiHead(4, 2, 3, 5, "scaled_dot_product", NEARLY_ALL, False, jnp.float32)
    variables = heads.init(rngs, x, x, Visibility(), True)
    out = heads.apply(variables, x, x, Visibility(), True, rngs={"dropout": jax.random.key(1)})
    np.testing.assert_array_equal(out, 0)


@pytest.mark.parametrize(
    ("changes", "sites"), [({}, 5), (dict(P_drop_ff=0.5), 7), (dict(P_drop_attention=0.5), 8)]
)
def test_every_layer_drops_with_a_draw_of_its_own(changes, sites):
    """5 sub-layers in an encoder and a decoder layer, 2 feed-forwards, 3 attentions."""
    model, params = make(**changes)
    rngs = {"dropout": jax.random.key(0)}

    def forward(params, P_drop):
        encoded = model.apply({"params": params}, SOURCE, P_drop, method="encode", rngs=rngs)
        return model.apply({"params": params}, encoded, TARGET, P_drop, method="decode", rngs=rngs)

    def draws(jaxpr):
        inner = (j for e in jaxpr.eqns for j in jaxprs_in_params(e.params))
        here = sum(e.primitive.name == "random_bits" for e in jaxpr.eqns)
        return here + sum(draws(j) for j in inner)

    traced = jax.make_jaxpr(forward)(params, 0.1)
    assert draws(traced.jaxpr) == 2 + SMALL.model.N * sites


def test_bfloat16_keeps_float32_parameters_and_logits():
    model, params = make(dtype="bfloat16")
    exact, _ = make()
    found = full_logits(model, params)
    assert found.dtype == jnp.float32
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    expected = full_logits(exact, params)
    real = TARGET != 0
    np.testing.assert_allclose(found[real], expected[real], atol=0.05 * np.abs(expected).max())
    assert not np.array_equal(found, expected)
