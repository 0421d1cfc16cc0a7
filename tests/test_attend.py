"""Attention weights of every mechanism, and their figure."""

from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.attention.visibility import Visibility
from t2t_jax.errors import UsageError
from t2t_jax.inference.weights import attention_maps
from t2t_jax.models import build
from t2t_jax.report.attention import Attended, picture
from tests.reference.attention import attention as reference

V, SOURCES, TARGETS = 30, [[5, 6, 7, 8, 2], [9, 2]], [[4, 5, 2], [4, 6, 7, 2]]
HEADS = dict(d_ff=20, h=2, d_k=8, d_v=4)
MODELS = {
    "transformer": dict(HEADS, N=2),
    "mixed": dict(
        HEADS, N=2, encoder_attention="local:w=2", decoder_attention="linear",
        cross_attention="performer:m=8,linear",
    ),
    "memory": dict(HEADS, N=2, encoder_attention="retention", decoder_attention="delta"),
    "relative": dict(HEADS, N=1, positions="relative"),
    "differential": dict(
        HEADS, N=1, encoder_attention="differential:lambda_init=0.25",
        cross_attention="differential:lambda_init=0.25",
    ),
    "learned": dict(HEADS, N=1, positions="learned"),
    "masked": dict(HEADS, N=1, architecture="encoder"),
    "native": dict(HEADS, N=1, decoder_attention="native_sparse"),
    "luong": dict(
        N=1, architecture="recurrent", attention_feeding="output", cross_attention="additive"
    ),
    "bahdanau": dict(
        N=1, architecture="recurrent", attention_feeding="input", cross_attention="general"
    ),
    "coverage": dict(
        N=1, architecture="recurrent", attention_feeding="output", cross_attention="coverage"
    ),
    "coverage fed": dict(
        N=1, architecture="recurrent", attention_feeding="input", cross_attention="coverage"
    ),
    "convs2s": dict(N=2, architecture="convolutional"),
}  # fmt: skip


@cache
def make(name):
    """Returns a model of `MODELS` and random parameters."""
    short = dict(max_length=5, max_extra=2) if name == "learned" else {}
    c = config.replace(config.Config(), d_model=16, **MODELS[name], **short)
    model, rng = build(c, V), np.random.default_rng(0)
    ids = jnp.full((1, 4), 5)
    shapes = nn.meta.unbox(jax.eval_shape(model.init, jax.random.key(0), ids, ids)["params"])
    return model, jax.tree.map(lambda x: np.float32(rng.normal(0, 0.8, x.shape)), shapes)


@cache
def maps_of_both(name):
    """Returns the maps of both sentence pairs."""
    return attention_maps(*make(name), SOURCES, TARGETS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.full] * (n in ("relative", "bahdanau", "coverage")))
        for n in MODELS
        if n not in ("differential", "masked", "memory", "native")
    ],
)
def test_every_layer_has_normalised_weights_within_its_mask(name):
    layers = {"transformer": 6, "mixed": 6, "relative": 3, "learned": 3, "convs2s": 2}.get(name, 1)
    for source, target, maps in zip(SOURCES, TARGETS, maps_of_both(name), strict=True):
        assert len(maps) == layers
        S, T = len(source), len(target)
        for layer_map in maps:
            role, weights = layer_map.role, layer_map.weights
            shape = {"encoder": (S, S), "decoder": (T, T), "cross": (T, S)}[role]
            assert weights.shape[1:] == shape
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
            assert (weights >= 0).all()
            if role == "decoder":
                assert not np.triu(weights, 1).any()
            if name == "mixed" and role == "encoder":
                assert not np.triu(weights, 3).any()
            assert layer_map.effective == (name == "mixed" and role != "encoder")


def test_weights_agree_with_the_reference():
    """Only the first encoder layer is compared: its input does not depend on other layers."""
    for name in ("transformer", "mixed"):
        model, params = make(name)
        embedded = model.apply(
            {"params": params},
            jnp.array([SOURCES[0]]),
            method=lambda m, x: m.source_positions(m.embedding(x)),
        )
        own = params["encoder_0"]["attention"]
        q, k = (
            np.einsum("btm,mhd->bthd", *(np.asarray(z, np.float64) for z in (embedded, own[W])))
            for W in ("W_Q", "W_K")
        )
        S = len(SOURCES[0])
        unit_vectors = np.broadcast_to(np.eye(S)[None, :, None], (1, S, 2, S))
        kind = "local" if name == "mixed" else "scaled_dot_product"
        expected = reference(kind, {"w": 2}, {}, q, k, unit_vectors, [S], [S], False, xp=np)
        weights = maps_of_both(name)[0][0].weights
        np.testing.assert_allclose(weights, expected[0].swapaxes(0, 1), rtol=1e-4, atol=1e-6)


def test_weights_of_a_normalised_output_are_those_of_its_sum():
    """The difference of two softmaxes sums to 1 - lambda; its norm is not linear in the values."""
    maps = maps_of_both("differential")[0]
    params = make("differential")[1]
    for module, weights in (
        (params["encoder_0"]["attention"], maps[0].weights),
        (params["decoder_0"]["cross_attention"], maps[2].weights),
    ):
        x = module["attention"]["factor"]
        one, two = (np.exp(x[f"lambda_q{i}"] @ x[f"lambda_k{i}"]) for i in (1, 2))
        np.testing.assert_allclose(weights.sum(-1), 1 - (one - two + 0.25), rtol=1e-4)


def test_weights_of_a_memory_are_those_before_its_norm():
    """The second layer is compared, too: its input is the normalised output of the first."""
    model, params = make("memory")
    ids, t = jnp.array([SOURCES[0]]), np.arange(len(SOURCES[0]))
    decay = (1 - 2.0 ** np.array([-5, -6]))[:, None, None] ** abs(t[:, None] - t)

    def inputs(m):
        x = m.source_positions(m.embedding(ids))
        return x, m.encoder[0](x, Visibility(), None)

    both = jax.jit(partial(model.apply, method=inputs))({"params": params})
    for layer, x in enumerate(both):
        own = params[f"encoder_{layer}"]["attention"]
        q, k = (np.einsum("tm,mhd->htd", np.float64(x[0]), own[W]) for W in ("W_Q", "W_K"))
        expected = np.einsum("htd,hsd->hts", q, k) / 8**0.5 * decay
        actual = maps_of_both("memory")[0][layer]
        np.testing.assert_allclose(actual.weights, expected, rtol=1e-4, atol=1e-4)
        assert actual.effective


def test_the_input_of_the_decoder_is_the_target_shifted_by_one():
    model, params = make("transformer")
    targets = [4, 5, 2], [4, 5, 9], [4, 6, 2]
    maps = attention_maps(model, params, SOURCES[:1] * 3, targets)
    for a, b, c in zip(*maps, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)  # the last token is not an input
        if a.role != "encoder":
            np.testing.assert_allclose(a.weights[:, :2], c.weights[:, :2], atol=1e-6)
            assert np.abs(a.weights[:, 2] - c.weights[:, 2]).max() > 1e-4


def test_weights_do_not_depend_on_other_sentences_of_the_batch():
    model, params = make("transformer")
    both = maps_of_both("transformer")
    (alone,) = attention_maps(model, params, SOURCES[1:], TARGETS[1:])
    for a, b in zip(both[1], alone, strict=True):
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-5, atol=1e-7)


def test_a_model_without_weights_is_refused():
    with pytest.raises(UsageError, match="a masked language model reads no shifted"):
        attention_maps(*make("masked"), SOURCES, TARGETS)
    with pytest.raises(UsageError, match="NativeSparse has no attention weights"):
        maps_of_both("native")


@pytest.fixture(scope="module")
def shown():
    (maps,) = attention_maps(*make("mixed"), [[5, 2]], [[6, 7, 2]])
    return Attended(["▁<b>a</b>", "</s>"], ["▁x", "▁y", "</s>"], maps)


def test_attend_writes_a_picture_and_refuses_bad_arguments(trained, tmp_path, call):
    run, cache = trained
    out = "--out", tmp_path / "out", "--cache", cache
    call("attend", run, "one two", *out)
    assert (tmp_path / "out" / "attention.svg").read_text().count("<image") == 6
    assert "the sentence is empty" in call("attend", run, " ", *out, code=2).err
    assert "is not a run" in call("attend", tmp_path, "one", *out, code=2).err


def test_the_figure_has_every_head(shown, tmp_path):
    picture(shown, tmp_path / "attention")
    svg = (tmp_path / "attention.svg").read_text()
    assert svg.count("<image") == 12
    assert (tmp_path / "attention.png").stat().st_size > 10_000
