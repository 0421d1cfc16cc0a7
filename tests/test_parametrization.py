"""muP: steps move activations alike at every width; the standard parametrization is unchanged.

The factors are those of Yang et al. (2022), Table 8, written by hand.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.models import build
from t2t_jax.models.parametrization import learning_rate_factors, logit_multiplier
from t2t_jax.runs import identity
from t2t_jax.study.presets import preset, shrink
from t2t_jax.training import sharding
from t2t_jax.training.optimizer import peak_lr
from t2t_jax.training.step import _shapes, hyper, initialise, make_step, shift
from tests.test_training import batch

V = 23
SIZES = dict(N=1, d_model=48, d_ff=96, h=5, d_k=7, d_v=4, max_length=9, batch_tokens=99)
FACTORS = {
    "embedding/matrix": 0.5,  # (12 / 48)^0.5
    "embedding/output": 0.5,
    "source_positions/table": 1,
    "encoder_0/attention/W_Q": 0.25,  # 12 / 48
    "encoder_0/attention/W_K": 0.25,
    "encoder_0/attention/W_V": 0.25,
    "encoder_0/attention/W_O": 0.6,  # 12 / (5 x 4)
    "encoder_0/attention/norm_q/affine/scale": 1,
    "decoder_0/cross_attention/W_Q": 0.25,
    "decoder_0/cross_attention/W_O": 0.6,
    "decoder_0/feed_forward/W_1": 0.25,
    "decoder_0/feed_forward/b_1": 1,
    "decoder_0/feed_forward/W_2": 0.5,  # 4 x 12 / 96
    "decoder_0/feed_forward/b_2": 1,
    "decoder_0/add_norm_cross/norm/affine/bias": 1,
    "decoder_norm/norm/affine/scale": 1,
}


def of(**changes):
    parts = dict(positions="learned", qk_norm="rms_norm", embeddings="untied")
    return config.replace(Config(), **SIZES | parts | changes)


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): np.asarray(x) for p, x in leaves}


def factors(c):
    made = flat(learning_rate_factors(c.model, sharding.axes(_shapes(build(c, V)))))
    return {name: float(factor) for name, factor in made.items()}


def stepped(c):
    """Returns the parameters before and after a step, and the metrics of the step."""
    model, mesh = build(c, V), sharding.make_mesh()
    state = initialise(model, c, mesh)
    after, metrics = jax.jit(make_step(model, c))(state, batch(0), hyper(c))
    return state.params, after.params, metrics


def test_factors_are_those_of_table_8():
    c = of(parametrization="mup", mup_width=12, norm_placement="pre")
    actual = factors(c)
    assert {name: actual[name] for name in FACTORS} == pytest.approx(FACTORS)
    assert logit_multiplier(c.model) == 0.5
    parts = dict(feed_forward="swiglu", positions="relative", decoder_conv=3)
    gated = factors(config.replace(c, **parts))
    assert gated["decoder_0/attention/filter_V"] == 1
    assert gated["encoder_0/feed_forward/W_3"] == 0.25
    assert gated["encoder_bias/table"] == 1
    latent = factors(config.replace(c, d_c=8, qk_norm="none"))
    names = [f"decoder_0/cross_attention/W_{x}" for x in ("Q", "DKV", "UK", "UV")]
    assert [latent[name] for name in names] == [0.25] * 4
    assert latent["encoder_0/attention/norm_c/affine/scale"] == 1


def test_a_matrix_without_a_rule_is_refused():
    c = of(parametrization="mup", mup_width=12)
    with pytest.raises(UsageError, match=r"no learning rate .* \('d_k', 'd_hidden'\)"):
        learning_rate_factors(c.model, {"W": ("d_k", "d_hidden")})


@pytest.mark.full
def test_the_first_update_of_a_matrix_has_the_size_of_its_learning_rate():
    c = of(parametrization="mup", mup_width=12, peak_lr=0.5, warmup=10, P_drop=0.0)
    before, after, metrics = stepped(c)
    assert metrics.lr == pytest.approx(0.05)
    old, new = flat(before), flat(after)
    for name in ("attention/W_V", "attention/W_O", "feed_forward/W_2", "feed_forward/b_2"):
        name = f"encoder_0/{name}"
        moved = abs(new[name] - old[name]).max()
        assert moved == pytest.approx(
            0.05 * FACTORS[name.replace("encoder_0/f", "decoder_0/f")], 1e-2
        )


def test_both_parametrizations_are_equal_at_mup_width():
    sizes = dict(d_ff=192, h=4, d_k=7, d_v=12)
    standard = stepped(of(**sizes))
    mup = stepped(of(**sizes, parametrization="mup", mup_width=48))
    for x, y in zip(jax.tree.leaves(standard), jax.tree.leaves(mup), strict=True):
        np.testing.assert_array_equal(x, y)


def test_standard_has_neither_factors_nor_a_multiplier():
    c = of()
    assert {*factors(c).values()} == {1.0}
    assert logit_multiplier(c.model) == 1
    assert peak_lr(c) == (48 * 4000) ** -0.5


def test_the_peak_learning_rate_does_not_depend_on_the_width():
    for d in (48, 480):
        c = of(parametrization="mup", mup_width=12, warmup=100)
        assert peak_lr(config.replace(c, d_model=d)) == pytest.approx((12 * 100) ** -0.5)
    assert peak_lr(config.replace(c, peak_lr=0.25, lr_scale=2.0)) == 0.5


def test_logits_are_multiplied_in_training_and_in_decoding():
    """The parameters of both models are the same, as their initialisation is."""
    c = of()
    source, target = jnp.array([[5, 9, 2]]), jnp.array([[1, 7, 8]])
    out = {}
    for name, changes in {"standard": {}, "mup": dict(parametrization="mup", mup_width=3)}.items():
        model = build(config.replace(c, **changes), V)
        params = initialise(model, c, sharding.make_mesh()).params

        def both(params, model=model):
            apply = partial(model.apply, {"params": params})
            encoded = apply(source, method="encode")
            memory, state = apply(encoded, 3, method="start")
            first, _ = apply(memory, state, target[:, 0], jnp.int32(0), method="step")
            return apply(encoded, target, method="decode"), first

        out[name] = jax.jit(both)(params)
    for standard, mup in zip(out["standard"], out["mup"], strict=True):
        np.testing.assert_allclose(mup, standard / 4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(mup_width=64), "mup_width=64 has no effect .* parametrization=standard"),
        (dict(parametrization="mup", mup_width=0), "mup_width must be at least 1"),
        (
            dict(parametrization="mup", encoder_attention="general"),
            "general .* parametrization=mup",
        ),
        (
            dict(parametrization="mup", cross_attention="additive"),
            "additive .* parametrization=mup",
        ),
        (dict(parametrization="mup", cross_attention="local_p"), "local_p .* parametrization=mup"),
        (dict(parametrization="mup", architecture="recurrent"), "no effect .*=recurrent"),
        (dict(parametrization="mup", architecture="convolutional"), "no effect .*=convolutional"),
    ],
)
def test_what_mup_has_no_rule_for_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        config.replace(Config(), **changes)


@pytest.mark.parametrize(
    "name", ["linear", "performer:m=8", "local", "scaled_dot_product:power=1", "gated_linear"]
)
def test_mechanisms_without_matrices_have_a_rule_for_every_parameter(name):
    attention = dict.fromkeys(("encoder_attention", "decoder_attention"), name)
    c = config.replace(Config(), **SIZES, **attention, parametrization="mup", mup_width=12)
    made = factors(c)
    assert made["encoder_0/attention/W_Q"] == 0.25
    if name == "gated_linear":
        assert made["encoder_0/attention/W_gates"] == 0.25
        assert made["encoder_0/attention/attention/b/weight"] == 1


def test_a_preset_divides_mup_width_and_leaves_standard_runs_alone():
    demo, mup = preset("demo"), dict(parametrization="mup")
    standard = shrink(Config(), {}, demo)
    assert not {"parametrization", "mup_width"} & identity.identity(standard).keys()
    for c in (shrink(Config(), mup, demo), shrink(Config(), {}, demo, mup)):
        assert (c.model.d_model, c.model.mup_width) == (64, 64)
    assert shrink(Config(), mup | dict(mup_width=256), demo).model.mup_width == 32
    flags = mup | dict(mup_width=16)
    assert shrink(Config(), dict(d_model=1024), demo, flags).model.mup_width == 16


ACTIVATIONS = "input", "encoder", "decoder", "logits"
MUP = dict(parametrization="mup", mup_width=32)


def activations(model, params, batch):
    """Returns the input, the last layers' residual streams and the logits of a batch, by name."""

    def run(module, source, target_in):
        return module.decode(module.encode(source), target_in)

    apply = partial(model.apply, {"params": params}, method=run, capture_intermediates=True)
    logits, kept = apply(batch["source"], shift(batch["target"]))
    kept = kept["intermediates"]
    kept = [kept[name]["__call__"][0] for name in ("embedding", "encoder_0", "decoder_0")]
    return dict(zip(ACTIVATIONS, [*kept, logits], strict=True))


@cache
def exponents(parametrization, *widths, latents=False):
    """Returns exponents of how the change of activations in 4 steps on a batch grows with d_model.

    Each is the slope of the logarithms, by numpy.
    """
    small = dict(N=1, norm_placement="pre", max_length=16, batch_tokens=256, P_drop=0.0)
    rate = dict(peak_lr=2**-7, schedule="linear", warmup=1, steps=10_000)
    tokens = np.random.default_rng(0).integers(4, 64, (16, 12), dtype=np.int32)
    batch, changes = {"source": tokens, "target": tokens}, []
    for d in widths:
        heads = dict(d_model=d, d_ff=4 * d, h=d // 16, d_k=16, d_v=16, d_c=d // 4 * latents)
        fields = MUP if parametrization == "mup" else {}
        c = config.replace(Config(), **small, **rate, **heads, **fields)
        model = build(c, 64)
        probe = jax.jit(partial(activations, model))
        update = jax.jit(make_step(model, c))
        state = initialise(model, c, sharding.make_mesh())
        before = probe(state.params, batch)
        for _ in range(4):
            state, _ = update(state, batch, hyper(c))
        after = probe(state.params, batch)
        changes.append([abs(after[name] - before[name]).mean() for name in ACTIVATIONS])
    slopes, _ = np.polyfit(np.log(widths), np.log(changes), 1)
    return dict(zip(ACTIVATIONS, slopes, strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    "widths", [(32, 128), pytest.param((32, 64, 128, 256), marks=pytest.mark.full)], ids=str
)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_step_moves_activations_alike_at_every_width(name, widths):
    """Coordinate check (Yang et al. 2022, appendix D.1).

    The change of the logits falls: a part of it has the size of the first logits, which vanish.
    """
    assert -0.25 < exponents("mup", *widths)[name] < 0.1


@pytest.mark.full
def test_a_step_moves_activations_of_latents_alike_at_every_width():
    """A latent of 8 features is so narrow that the exponents are larger; standard, they are 1.3."""
    moved = exponents("mup", 32, 128, latents=True)
    assert all(-0.3 < moved[x] < 0.3 for x in ACTIVATIONS)


@pytest.mark.full
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_step_of_the_standard_parametrization_moves_them_more_at_a_greater_width(name):
    assert exponents("standard", 32, 128)[name] > 0.2
