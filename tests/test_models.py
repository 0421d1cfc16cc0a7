"""Every encoder-decoder equals its definition in plain numpy, and decodes as it trains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t2t_jax.attention import registry
from t2t_jax.attention.visibility import Visibility
from t2t_jax.config import Config, replace
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.models.latent import Latent
from t2t_jax.models.layers import lengths_of
from t2t_jax.models.multihead import MultiHead
from t2t_jax.models.transformer import Encoded
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.step import shift
from tests.reference import convolutional, recurrent, transformer
from tests.reference.loss import loss as reference_loss
from tests.small import SENTENCES, SOURCE, TARGET, check_decoding, full_logits, make


def recur(cell, feed="none", scores="", both=False):
    changes = dict(architecture="recurrent", cell=cell, attention_feeding=feed)
    if both:
        changes |= dict(encoder_direction="both")
    if scores:
        changes |= dict(cross_attention="dot_product" if scores == "dot" else scores)
    options = dict(cell=cell, feed=feed, both=both, scores=scores)
    return changes, recurrent.logits, options


def convolve(**changes):
    options = {k: v for k, v in changes.items() if k in ("dilation", "positions")}
    scores = "dot" if changes.get("cross_attention") == "dot_product" else "scaled"
    options = dict(positions="sinusoid", scores=scores) | options
    return dict(architecture="convolutional") | changes, convolutional.logits, options


def transform(changes, **options):
    return changes, transformer.logits, options


ROLES = "encoder_attention", "decoder_attention", "cross_attention"
DEFINED = {
    "paper": transform({}),
    "pre": transform({"norm_placement": "pre"}, pre=True),
    "parallel": transform({"norm_placement": "parallel"}, parallel=True),
    "parallel-decoder": (
        dict(architecture="decoder", norm_placement="parallel"),
        transformer.language_model,
        dict(causal=True, parallel=True),
    ),
    "untied-capped": transform(dict(embeddings="untied", logit_cap=2.5), output="output", cap=2.5),
    "untied-capped-decoder": (
        dict(architecture="decoder", embeddings="untied", logit_cap=2.5),
        transformer.language_model,
        dict(causal=True, output="output", cap=2.5),
    ),
    "no-biases": (
        dict(norm="layer_norm_no_bias", feed_forward="relu_no_bias"),
        transformer.unbiased,
        {},
    ),
    "learned": transform({"positions": "learned"}, positions="learned"),
    "unscaled": transform(dict.fromkeys(ROLES, "dot_product"), power=0),
    "multi-query": transform({"h_kv": 1, "attention_gate": "element"}),
    "grouped": transform(
        {"h": 4, "h_kv": 2, "attention_gate": "head", "norm_placement": "pre"}, pre=True
    ),
    "mup": transform(
        dict(parametrization="mup", mup_width=3)
        | dict.fromkeys(ROLES, "scaled_dot_product:power=1"),
        power=1,
        multiplier=0.5,
    ),
    "rotary": transform({"positions": "rotary", "d_k": 6}, positions="rotary"),
    "relative": transform({"positions": "relative"}, positions="relative"),
    "alibi": transform({"positions": "alibi"}, positions="alibi"),
    "no-positions": transform({"positions": "none", "norm": "rms_norm"}, positions="none"),
    "qk-norm": transform(
        dict(qk_norm="rms_norm", positions="rotary", d_k=6, feed_forward="swiglu"),
        positions="rotary",
        activation="silu",
    ),
    "qk-layer-norm": transform(dict(qk_norm="layer_norm", feed_forward="gelu"), activation="gelu"),
    "geglu": transform(
        dict(feed_forward="geglu", norm="rms_norm", norm_placement="pre"),
        pre=True,
        activation="gelu",
    ),
    "convolutions": transform(
        dict(decoder_conv=3, h=4, h_kv=2, d_k=6, positions="rotary", qk_norm="rms_norm"),
        positions="rotary",
    ),
    "latent": transform(dict(d_c=4, attention_gate="head")),
    "latent-rotary": transform(dict(d_c=6, d_k=8, positions="rotary"), positions="rotary"),
    "decoder": (dict(architecture="decoder"), transformer.language_model, dict(causal=True)),
    "encoder": (
        dict(architecture="encoder", norm_placement="pre", positions="relative"),
        transformer.language_model,
        dict(causal=False, pre=True, positions="relative"),
    ),
    "lstm": recur("lstm"),
    "gru": recur("gru", both=True),
    "lstm-luong": recur("lstm", "output", "dot", both=True),
    "lstm-bahdanau": recur("lstm", "input", "additive"),
    "gru-luong": recur("gru", "output", "general"),
    "gru-bahdanau": recur("gru", "input", "additive", both=True),
    "convs2s": convolve(positions="learned", cross_attention="dot_product"),
    "even-kernel": convolve(kernel=4, positions="learned"),
    "bytenet": convolve(N=3, kernel=2, dilation=2),
}


def each_of(table, full):
    """Returns the names of a table; those in `full` run with --full."""
    marks = {name: [pytest.mark.full] for name in full.split()}
    assert marks.keys() < table.keys()
    return [pytest.param(name, marks=marks.get(name, []), id=name) for name in table]


DEFINED_FULL = """
alibi bytenet convolutions geglu grouped gru gru-bahdanau gru-luong even-kernel latent-rotary
learned lstm lstm-bahdanau mup multi-query no-biases no-positions parallel parallel-decoder
qk-layer-norm qk-norm relative rotary unscaled untied-capped untied-capped-decoder
"""
MIXES_FULL = """
blocks-lsh-top_k bytenet-additive convolutions-gates grouped-local-local_p latent-dots-gate
latent-kept latent-rotary learned lstm lstm-coverage multi-query-linear-general native_sparse
parallel performer-linear-local pointwise relative-local-fixed retention-mamba2
rotary-local-general untied-capped
"""


@pytest.mark.parametrize("name", each_of(DEFINED, DEFINED_FULL))
def test_logits_and_gradients_equal_the_definition(name):
    changes, definition, options = DEFINED[name]
    model, params = make(**changes)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    pairs = [(s, [1, *t[:-1]], t) for s, t in SENTENCES]

    def loss(params):
        logits = full_logits(model, params)
        sums = cross_entropy(logits, TARGET, 0.1)
        return sums["loss"] / sums["tokens"], logits

    compiled = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, actual), gradient = jax.device_get(compiled(params))
    for i, (source, target_in, target) in enumerate(pairs):
        expected = definition(exact, source, target_in, **options)
        np.testing.assert_allclose(actual[i, : len(target)], expected, rtol=1e-5, atol=1e-5)

    def defined(exact):
        return reference_loss(lambda s, t: definition(exact, s, t, **options), pairs, 0.1)

    np.testing.assert_allclose(value, defined(exact), 1e-5)
    rng = np.random.default_rng(2)
    for layer in exact:
        direction = jax.tree.map(lambda x: rng.normal(size=x.shape) / x.size**0.5, exact[layer])

        def along(step, layer=layer, direction=direction):
            moved = jax.tree.map(lambda x, d: x + step * d, exact[layer], direction)
            return defined(exact | {layer: moved})

        slope = (along(1e-6) - along(-1e-6)) / 2e-6  # a larger step may cross the kink of a ReLU
        products = jax.tree.map(lambda g, d: (g * d).sum(), gradient[layer], direction)
        tolerance = 1e-5 * max(1, *map(np.linalg.norm, jax.tree.leaves(gradient[layer])))
        np.testing.assert_allclose(
            sum(jax.tree.leaves(products)), slope, 1e-5, tolerance, err_msg=layer
        )


MIXES = {
    "base": {},
    "learned": dict(norm_placement="pre", positions="learned"),
    "parallel": dict(norm_placement="parallel"),
    "untied-capped": dict(embeddings="untied", logit_cap=2.5),
    "untied-capped-gru": recur("gru", both=True)[0] | dict(embeddings="untied", logit_cap=2.5),
    "untied-capped-convs2s": convolve(embeddings="untied", logit_cap=2.5)[0],
    "rotary-local-general": dict(
        positions="rotary", d_k=6, decoder_attention="local:w=2", cross_attention="general"
    ),
    "relative-local-fixed": dict(
        positions="relative", encoder_attention="local:w=2", decoder_attention="sparse_fixed:l=3"
    ),
    "performer-linear-local": dict(
        encoder_attention="performer:m=9", decoder_attention="linear", cross_attention="local:w=4"
    ),
    "grouped-local-local_p": dict(
        h=4,
        h_kv=2,
        attention_gate="element",
        decoder_attention="local:w=2",
        cross_attention="local_p:w=3",
    ),
    "convolutions": dict(
        decoder_conv=3, h_kv=1, decoder_attention="retention", positions="rotary", d_k=6
    ),
    "convolutions-gates": dict(
        decoder_conv=2, decoder_attention="gated_delta", norm_placement="pre", positions="none"
    ),
    "latent-dots-gate": dict(
        d_c=4,
        attention_gate="element",
        decoder_attention="talking_heads",
        positions="relative",
        cross_attention="dot_product",
    ),
    "latent-rotary": dict(
        d_c=6,
        d_k=8,
        positions="rotary",
        encoder_attention="local:w=2",
        decoder_attention="scaled_dot_product:power=1",
        cross_attention="top_k:k=2",
    ),
    "latent-kept": dict(
        d_c=9,
        N=3,
        decoder_attention="streaming:w=2,g=1,sparse_strided:l=3,dilated:w=1,r=2",
        cross_attention="softcap:cap=2,local:w=3,sink",
    ),
    "multi-query-linear-general": dict(
        h_kv=1, decoder_attention="linear", cross_attention="general"
    ),
    "hybrid": dict(
        N=3,
        encoder_attention="local:w=2,linear",
        cross_attention="linear,additive,local:w=4",
        decoder_attention="linear,sparse_fixed:l=3,c=2,scaled_dot_product",
    ),
    "blocks-lsh-top_k": dict(
        positions="rotary",
        d_k=6,
        encoder_attention="block_select:b=2,n=1",
        decoder_attention="lsh:b=2,c=2",
        cross_attention="top_k:k=2",
    ),
    "native_sparse": dict(
        positions="rotary", d_k=6, decoder_attention="native_sparse:b=2,n=1,w=2", qk_norm="rms_norm"
    ),
    "retention-mamba2": dict(
        positions="rotary", d_k=6, encoder_attention="retention", decoder_attention="mamba2"
    ),
    "lstm": recur("lstm", both=True)[0],
    "lstm-luong": recur("lstm", "output", "general")[0],
    "gru-bahdanau": recur("gru", "input", "additive", both=True)[0],
    "gru-coverage": recur("gru", "input", "coverage")[0],
    "lstm-coverage": recur("lstm", "output", "coverage")[0],
    "convs2s": convolve(positions="learned", cross_attention="dot_product")[0],
    "bytenet-additive": convolve(N=3, dilation=2, cross_attention="additive")[0],
    "pointwise": convolve(kernel=1)[0],
}


@pytest.mark.full
def test_a_hybrid_is_layer_by_layer_the_model_of_each_mechanism():
    single = [
        dict(encoder_attention="local:w=2", decoder_attention="linear"),
        dict(encoder_attention="linear", decoder_attention="sparse_fixed:l=3,c=2"),
        dict(encoder_attention="local:w=2", decoder_attention="linear"),
    ]
    hybrid = {n: ",".join(x[n] for x in single[:2]) for n in single[0]}
    model, params = make(N=3, cross_attention="linear,linear,local:w=4", **hybrid)
    for changes, cross in zip(single, ("linear", "linear", "local:w=4"), strict=True):
        changes["cross_attention"] = cross
    models = [make(N=3, **changes)[0] for changes in single]

    @jax.jit
    def both(params):
        whole, *parts = (m.bind({"params": params}) for m in (model, *models))
        own = Visibility(*[lengths_of(SOURCE)] * 2)
        x = whole.source_positions(whole.embedding(SOURCE))
        for i, part in enumerate(parts):
            x = part.encoder[i](x, own, None)
        lengths = lengths_of(shift(TARGET))
        own = Visibility(lengths, lengths, causal=True)
        source = Encoded(x, lengths_of(SOURCE))
        y = whole.target_positions(whole.embedding(shift(TARGET)))
        for i, part in enumerate(parts):
            y = part.decoder[i](y, own, None, encoded=source)
        encoded = whole.encode(SOURCE)
        return (encoded.output, whole.features(encoded, shift(TARGET))), (x, y)

    for actual, expected in zip(*both(params), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", each_of(MIXES, MIXES_FULL))
def test_decoding_steps_equal_the_full_logits(name):
    check_decoding(*make(**MIXES[name]))


ONE_OF_EACH = {
    "post": {},
    "pre": {"norm_placement": "pre"},
    "recurrent": recur("lstm", both=True)[0],
    "luong": recur("gru", "output", "dot", both=True)[0],
    "bahdanau": recur("lstm", "input", "additive")[0],
    "convolutional": convolve(N=3, dilation=2)[0],
    "decoder": dict(architecture="decoder"),
    "latent": dict(architecture="decoder", d_c=6, d_k=8, positions="rotary"),
}
each = pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            changes, marks=[pytest.mark.full] * (name in "pre luong bahdanau".split()), id=name
        )
        for name, changes in ONE_OF_EACH.items()
    ],
)


def test_gates_are_neither_normalised_nor_turned():
    c = replace(
        Config(), d_model=12, h=3, d_k=6, d_v=7, positions="rotary", qk_norm="rms_norm",
        decoder_attention="mamba2",
    )  # fmt: skip
    layer, key = MultiHead(c.model, "decoder", jnp.float32), jax.random.key(1)
    x = jax.random.normal(key, (2, 5, 12))

    @jax.jit
    def gates_of_keys(key, x):
        keys, rest = [], (Visibility(causal=True), False)
        variables = nn.meta.unbox(layer.init(key, x, x, *rest))

        def watch(call, args, kwargs, context):
            keys.extend(args[:1] if context.method_name == "keys" else ())
            return call(*args, **kwargs)

        with nn.intercept_methods(watch):
            layer.apply(variables, x, x, *rest)
        return keys[0][..., 6:], variables["params"]["W_gates"]

    actual, W = gates_of_keys(key, x)
    expected = np.einsum("btm,mhg->bthg", x, W)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_undefined_padding_changes_nothing_that_is_of_latents():
    c = replace(Config(), d_model=12, h=3, d_k=8, d_v=7, d_c=6, positions="rotary")
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(2, n, 12)), jnp.float32) for n in (4, 5))
    lengths = jnp.array([5, 2])
    undefined = y.at[1, 2:].set(jnp.nan)
    for role in ("encoder", "cross"):
        layer = Latent(c.model, role, jnp.float32)
        visibility = Visibility(kv_lengths=lengths)
        params = layer.init(jax.random.key(1), x, y, visibility, False)

        @jax.jit
        def both(params, y, layer=layer, visibility=visibility):
            whole = layer.apply(params, x, y, visibility, False)
            state = layer.apply(params, y, visibility, method="start_cross")
            return whole, layer.apply(params, state, x[:, :1], 0, method="step_cross")

        for expected, actual in zip(both(params, y), both(params, undefined), strict=True):
            np.testing.assert_array_equal(actual, expected)
            assert np.isfinite(actual).all()


@each
def test_dropout_depends_on_its_key_and_is_off_at_rate_zero(changes):
    model, params = make(**changes)

    @jax.jit
    def logits(key, P_drop):
        variables, rngs = {"params": params}, {"dropout": jax.random.key(key)}
        encoded = model.apply(variables, SOURCE, P_drop, method="encode", rngs=rngs)
        return model.apply(variables, encoded, shift(TARGET), P_drop, method="decode", rngs=rngs)

    np.testing.assert_array_equal(logits(0, 0.5), logits(0, 0.5))
    assert not np.allclose(logits(0, 0.5), logits(1, 0.5))
    plain = full_logits(model, params)
    np.testing.assert_allclose(logits(0, 0.0), plain, rtol=1e-5, atol=1e-5)


def test_kernels_in_float32_are_refused_on_a_gpu():
    c = replace(Config(), kernels="fused", dtype="float32")
    build(c, 50, platform="cpu")
    with pytest.raises(UsageError, match="kernels=fused needs dtype=bfloat16 on a GPU"):
        build(c, 50, platform="gpu")


@each
def test_bfloat16_keeps_float32_parameters_and_logits(changes):
    model, params = make(dtype="bfloat16", **changes)
    exact, _ = make(**changes)
    actual = full_logits(model, params)
    assert actual.dtype == jnp.float32
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    expected = full_logits(exact, params)
    real = TARGET != 0
    np.testing.assert_allclose(actual[real], expected[real], atol=0.05 * np.abs(expected).max())
    assert not np.array_equal(actual, expected)


def test_gates_without_a_layer_that_projects_them_are_refused(monkeypatch):
    entry = registry.Entry("mine:Mine", "mine", gates=lambda d_k: 1)
    monkeypatch.setitem(registry.MECHANISMS, "mine", entry)
    assert replace(Config(), cross_attention="mine")
    with pytest.raises(UsageError, match="needs gates, which architecture=convolutional"):
        replace(Config(), cross_attention="mine", architecture="convolutional")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(architecture="recurrent", h=4), "h=4 has no effect with architecture=recurrent:"),
        (dict(architecture="recurrent", cross_attention="additive"), "and attention_feeding=none"),
        (dict(architecture="recurrent", encoder_direction="both", d_model=5), "must be even"),
        (
            dict(
                architecture="recurrent", attention_feeding="input", cross_attention="sparse_fixed"
            ),
            "cannot be",
        ),
        (
            dict(architecture="convolutional", norm_placement="pre"),
            "norm_placement=pre has no effect",
        ),
        (dict(architecture="convolutional", positions="rotary"), "use learned or sinusoid"),
        (dict(cell="gru"), "cell=gru has no effect with architecture=transformer"),
        (dict(architecture="decoder", cross_attention="additive"), "cross_attention=additive has"),
        (dict(kernel=0), "kernel must be at least 1"),
        (dict(architecture="recurent"), "recurrent"),
    ],
)
def test_options_that_an_architecture_lacks_are_refused_by_name(changes, words):
    with pytest.raises(UsageError, match=words):
        replace(Config(), **changes)


BEGINNINGS = {
    "transformer": dict(d_k=16, d_v=16, d_ff=128, h=4),
    "pre-norm": dict(d_k=16, d_v=16, d_ff=128, h=4, norm_placement="pre"),
    "recurrent": dict(
        architecture="recurrent", attention_feeding="output", cross_attention="dot_product"
    ),
    "convolutional": dict(
        architecture="convolutional", cross_attention="dot_product", positions="learned"
    ),
}


@pytest.mark.parametrize("name", each_of(BEGINNINGS, "pre-norm convolutional"))
def test_training_begins_near_the_loss_of_equal_probabilities(name):
    vocabulary, rng = 500, np.random.default_rng(0)
    source, target = rng.integers(3, vocabulary, (2, 8, 17))
    model = build(replace(Config(), N=3, d_model=64, max_length=20, **BEGINNINGS[name]), vocabulary)

    @jax.jit
    def first(key):
        return model.apply(model.init(key, source, target), source, target[:, :-1])

    logits = first(jax.random.key(0))
    losses = -np.take_along_axis(jax.nn.log_softmax(logits), target[:, 1:, None], axis=-1)
    assert np.mean(losses) == pytest.approx(np.log(vocabulary), abs=1)
