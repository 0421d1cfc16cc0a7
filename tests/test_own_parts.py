"""A flow and a feed-forward module of a study file are trained, costed and refused by name.

The files are the tutorial `help part` and `mixture.py`, both without an edit of the package.
"""

import sys
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tools.layers import count
from t2t_jax import parts
from t2t_jax.attention import reach
from t2t_jax.attention.dense import Dense, DotProduct
from t2t_jax.attention.dot_product import Differential
from t2t_jax.attention.mechanism import Mechanism
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.cli import main
from t2t_jax.config import Config, replace
from t2t_jax.errors import UsageError
from t2t_jax.extend import feed_forward, mechanism, positions
from t2t_jax.inference.convert import choose
from t2t_jax.models import build
from t2t_jax.models.flops import step_flops
from t2t_jax.models.parametrization import learning_rate_factors
from t2t_jax.runs import study_file
from t2t_jax.study.declaration import EXPERIMENTS
from t2t_jax.training import population, sharding
from t2t_jax.training.step import _shapes, hyper, initialise, make_step, shift
from tests import toy
from tests.eight import on_eight_devices
from tests.reference import mixture, transformer
from tests.small import SENTENCES, SOURCE, TARGET, TRANSFORMER, V, check_decoding, full_logits, make
from tests.test_help import blocks

MIXTURE = EXPERIMENTS / "mixture.py"
K = 2
ZERO = jnp.float32(0)  # the rate of dropout in training


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory):
    """The parts of the tutorial's file and of the mixture exist in this module."""
    tutorial = tmp_path_factory.mktemp("parts") / "parts.py"
    tutorial.write_text(next(text for language, _, text in blocks("part") if language == "python"))
    for path in (tutorial, MIXTURE):
        study_file.load(path)


@pytest.mark.full
def test_a_file_runs_by_the_public_command(corpus, tmp_path, capsys):
    made = toy.of_a_grid(corpus) | dict(steps=4, evaluate_every=4)
    words = ["run", MIXTURE, *toy.options(made), "--rows", "mixture", "--seeds", "1"]
    words += ["--store", tmp_path / "runs", "--cache", tmp_path / "cache"]
    assert main([*map(str, words)]) == 0, capsys.readouterr().err
    results = [path.parent for path in (tmp_path / "runs").glob("*/result.json")]
    named = [part for path in results for part in (path / "config.json").read_text().split('"')]
    assert len(results) == 2  # with base
    assert "mixture" in named


def test_a_flow_with_two_norms_equals_its_definition():
    model, params = make(architecture="decoder", norm_placement="sandwich")
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    actual = full_logits(model, params)
    for row, (_, target) in zip(actual, SENTENCES, strict=True):
        x = transformer.embed(p, [1, *target[:-1]], "positions", "sinusoid")
        for i in range(2):
            q = p[f"decoder_{i}"]
            y = transformer.norm(q["add_norm_attention"], x)
            y = transformer.heads(q["attention"], y, y, True, 0.5)
            x = x + transformer.norm(q["add_norm_attention_after"], y)
            y = transformer.norm(q["add_norm_feed_forward"], x)
            y = transformer.feed_forward(q["feed_forward"], y, "relu")
            x = x + transformer.norm(q["add_norm_feed_forward_after"], y)
        expected = transformer.norm(p["norm"], x) @ p["embedding"]["matrix"].T
        np.testing.assert_allclose(row[: len(target)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [dict(norm_placement="sandwich"), dict(feed_forward="mixture")], ids=str
)
def test_decoding_steps_equal_the_full_logits(changes):
    check_decoding(*make(**changes))


def loaded():
    return sys.modules[str(MIXTURE.resolve())]


def test_a_mixture_equals_its_definition():
    """In training, the capacity of each expert is 4: 1.25 x 2 x 6 / 4, rounded up."""
    c = replace(Config(), d_model=10, d_ff=7, feed_forward="mixture").model
    layer, rng = loaded().Mixture(c, jnp.float32), np.random.default_rng(0)
    x = rng.normal(size=(1, 6, 10)).astype(np.float32)
    x[0, :5] += 3 * x[0, 0]  # so that tokens prefer the same experts; the last is padding
    W = nn.meta.unbox(layer.init(jax.random.key(0), x)["params"])
    expected, loss, used = mixture.layer(W, x[0, :5], K=2, capacity=4)
    assert used.max() > 4
    apply = partial(layer.apply, {"params": W}, x, True, jnp.array([5]))
    actual, sown = apply(mutable=["losses"])
    np.testing.assert_allclose(actual[0, :5], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sown["losses"]["balance"][0], 0.01 * loss, rtol=1e-5)


def of(**changes):
    fields = dict(TRANSFORMER, N=1, max_length=13, batch_tokens=99, P_drop=0.0, eps_ls=0.0)
    return replace(Config(), feed_forward="mixture", **fields | changes)


def stepped(c, batch, population_size=1, V=V):
    model, mesh = build(c, V), sharding.make_mesh()
    state, h = initialise(model, c, mesh), hyper(c)
    if population_size > 1:
        arguments = state, h, batch
        state, h, batch = jax.tree.map(lambda x: jnp.stack([x] * population_size), arguments)
    step = population.vmap_step(make_step(model, c), population_size)
    with sharding.use_mesh(mesh):
        return jax.jit(step)(state, batch, h)


@pytest.mark.full
def test_what_a_module_sows_is_added_to_the_loss_alone():
    """Per token, and so weighted by the tokens of each micro-batch; members have their own."""
    batch = {"source": jnp.tile(SOURCE[:2], (2, 1)), "target": jnp.tile(TARGET[:2], (2, 1))}
    c = of()
    after, metrics = stepped(c, batch)
    params = initialise(build(c, V), c, sharding.make_mesh()).params

    def sown(rows):
        """The balancing losses of the encoder and of the decoder."""
        key = {"dropout": jax.random.key(0)}
        apply = partial(build(c, V).apply, {"params": params}, mutable=["losses"], rngs=key)

        @jax.jit
        def losses(source, target):
            encoded, one = apply(source, ZERO, method="encode")
            return one, apply(encoded, shift(target), ZERO, method="decode")[1]

        return sum(
            map(float, jax.tree.leaves(losses(batch["source"][rows], batch["target"][rows])))
        )

    everything = sown(slice(None))
    assert everything > 0.01
    assert float(metrics.loss - metrics.nll) == pytest.approx(everything, rel=1e-4)
    _, metrics = stepped(replace(c, accumulate=2), batch)
    tokens = (batch["target"] != 0).sum(1)
    parts = [slice(i, None, 2) for i in range(2)]
    expected = sum(sown(rows) * tokens[rows].sum() for rows in parts) / tokens.sum()
    assert float(metrics.loss - metrics.nll) == pytest.approx(float(expected), rel=1e-4)
    assert float(expected) != pytest.approx(everything, rel=1e-3)
    several, metrics = stepped(c, batch, 2)
    np.testing.assert_allclose(metrics.loss - metrics.nll, [everything] * 2, rtol=1e-3)
    router = [x.params["encoder_0"]["feed_forward"]["W_r"] for x in (after, several)]
    np.testing.assert_allclose(router[1][1], router[0], rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_the_balancing_loss_has_a_gradient(monkeypatch):
    batch = {"source": SOURCE, "target": TARGET}
    moved = []
    for weight in (0.01, 10.0):
        monkeypatch.setattr(loaded(), "BALANCE", weight)
        moved.append(stepped(of(), batch)[1].grad_norm)
    assert moved[1] > 2 * moved[0]


def check_experts():
    """Experts lie on the devices of `tensor`, and a step equals the step of one device."""
    study_file.load(MIXTURE)
    c, V, batch = of(h=4), 30, {"source": SOURCE[:2], "target": TARGET[:2]}
    expected, metrics = stepped(c, batch, V=V)
    mesh = sharding.make_mesh("data=2,fsdp=2,tensor=2")
    model = build(c, V)
    with sharding.use_mesh(mesh):
        state = initialise(model, c, mesh)
        placed = sharding.put_batch(jax.device_get(batch), mesh)
        state, actual = jax.jit(make_step(model, c))(state, placed, hyper(c))
    W_1 = state.params["encoder_0"]["feed_forward"]["W_1"]
    assert W_1.sharding.shard_shape(W_1.shape) == (2, 6, 22)  # of 4 experts, 12 and 22
    assert float(actual.loss) == pytest.approx(float(metrics.loss), rel=1e-5)
    np.testing.assert_allclose(
        W_1, expected.params["encoder_0"]["feed_forward"]["W_1"], rtol=1e-4, atol=1e-6
    )


@pytest.mark.full
def test_experts_are_divided_over_devices():
    on_eight_devices(check_experts)


def test_what_a_part_costs_follows_from_its_declaration():
    for changes in (dict(feed_forward="mixture"), dict(norm_placement="sandwich")):
        model, params = make(**changes)
        source, target = jnp.ones((2, 7), jnp.int32), jnp.ones((2, 5), jnp.int32)

        def forward(params, model=model, source=source, target=target):
            apply = partial(model.apply, {"params": params}, rngs={"dropout": jax.random.key(0)})
            return apply(apply(source, ZERO, method="encode"), target, ZERO, method="decode")

        actual, _ = count(jax.make_jaxpr(forward)(params).jaxpr)
        combining = 2 * 2 * model.c.N * (7 + 5) * K * model.c.d_model  # no matrix has these weights
        actual -= combining * (model.c.feed_forward == "mixture")
        assert step_flops(model.c, V, 2, 7, 5) / 3 == pytest.approx(actual, rel=1e-9)


def test_what_is_not_declared_is_refused_by_name():
    for changes in (dict(feed_forward="mixture"), dict(norm_placement="sandwich")):
        ((field, value),) = changes.items()
        with pytest.raises(UsageError, match=f"does not support {field}={value}"):
            choose(replace(Config(), **changes).model, "CTranslate2")
    with pytest.raises(UsageError, match="no dropout of its own: leave P_drop_ff out"):
        of(P_drop_ff=0.1)
    with pytest.raises(UsageError, match="declare products"):
        feed_forward("mine")(nn.Module)
    with pytest.raises(UsageError, match=r"'mine' .* must declare products and supports itself"):
        mechanism("mine")(Dense)
    with pytest.raises(UsageError, match="rotate or add a bias, but not 'encod'"):
        positions("mine", "encod")
    c = of(parametrization="mup", mup_width=3)
    axes = sharding.axes(_shapes(build(c, V)))["encoder_0"]["feed_forward"]
    assert learning_rate_factors(c.model, axes) == {"W_r": 0.25, "W_1": 0.25, "W_2": 12 / 22}
    with pytest.raises(UsageError, match=r"for the matrix W_1 with .*experts"):
        learning_rate_factors(replace(c, feed_forward="relu").model, axes)


class Halves(Differential):
    """A subclass that declares nothing itself."""


class Squares(DotProduct):
    """A subclass with scores of its own."""


def encode(module, t, d_model):
    return jnp.zeros((len(t), d_model))


def test_a_subclass_inherits_the_declaration_of_its_base_class(files):
    mechanism("halves", "differential by another name", options=dict(x=1))(Halves)
    mine, base = MECHANISMS["halves"], MECHANISMS["differential"]
    assert (mine.products, mine.supports, mine.halves) == (base.products, base.supports, True)
    assert mine.options == dict(lambda_init=0.8, x=1)
    mechanism("squares", "scores that no product of another width gives")(Squares)
    with pytest.raises(UsageError, match=r"decoder_attention=squares cannot .* d_c=9"):
        replace(Config(), decoder_attention="squares", d_c=9)


def test_an_activation_may_declare_what_it_costs(files):
    feed_forward("costly", products=lambda c, L: 3 * L)(jnp.tanh)
    assert parts.FEED_FORWARD["costly"].products(None, 7) == 21


def test_roles_that_a_file_leaves_out_are_refused_with_and_without_a_reason(files):
    for name, fields in (("alone", {}), ("because", dict(why="it is causal"))):
        mechanism(name, roles=("decoder",), **fields)(type(name, (DotProduct,), {}))
        expected = f"{name} cannot be encoder_attention{', as it is causal' * bool(fields)}: use"
        with pytest.raises(UsageError, match=expected):
            replace(Config(), encoder_attention=name)


def test_a_pattern_that_cross_attention_cannot_decode_is_refused(files):
    everywhere = dict(roles=("encoder", "decoder", "cross"), options=dict(w=3))
    mechanism("near", **everywhere)(reach.local)
    assert replace(Config(), cross_attention="near").model.cross_attention == "near"
    mechanism("near", **everywhere | dict(roles=("decoder",)))(reach.local)
    with pytest.raises(UsageError, match="near cannot be encoder_attention: use one of"):
        replace(Config(), encoder_attention="near")
    with pytest.raises(UsageError, match=r"'sinks' has kept keys, .* without the role cross"):
        mechanism("sinks", **everywhere)(lambda w: reach.streaming(w, 4))


def perhaps_sinks(w, g):
    """A pattern that keeps the first keys unless g is 0, its default."""
    return reach.streaming(w, g) if g else reach.local(w)


def test_options_with_which_cross_attention_cannot_decode_are_refused(files):
    options = dict(w=3, g=0)
    mechanism("perhaps", roles=("encoder", "cross"), options=options)(perhaps_sinks)
    replace(Config(), cross_attention="perhaps:w=5", encoder_attention="perhaps:g=2")
    with pytest.raises(UsageError, match=r"^cross_attention=perhaps:g=2 has kept keys"):
        replace(Config(), cross_attention="perhaps:g=2")


class Encodes(Mechanism):
    """A mechanism that cannot decode."""

    def attend(self, q, k, v, visibility, dropout, bias):
        return v


class Decodes(Encodes):
    def step_cross(self, state, q, t, bias):
        return q


class Steps(Encodes):
    def step(self, state, q, t, k=None, v=None, bias=None):
        return q, state


def test_a_mechanism_that_cross_attention_cannot_decode_is_refused(files):
    fields = dict(products=lambda o, s: 0, supports=())
    with pytest.raises(UsageError, match=r"'encodes' has no step_cross, .* without the role cross"):
        mechanism("encodes", **fields)(Encodes)
    for able in (Decodes, Steps):
        mechanism("decodes", **fields)(able)
        assert "cross" in MECHANISMS["decodes"].roles
    mechanism("encodes", roles=("encoder",), **fields)(Encodes)


def test_only_mechanisms_that_fit_all_other_settings_are_proposed():
    with pytest.raises(UsageError, match="use one of") as refused:
        replace(Config(), cross_attention="cosformer")
    assert "coverage" not in str(refused.value)
    with pytest.raises(UsageError, match="set decoder_attention to one of") as refused:
        replace(Config(), decoder_attention="delta", positions="rotary", P_drop_attention=0.1)
    assert "general" not in str(refused.value)


def test_a_pattern_with_first_keys_is_not_for_documents(files):
    within = dict(architecture="decoder", corpus="documents", document_attention="within")
    recurring = reach.sparse_fixed, dict(l=8, c=2)
    for function, options in (
        (reach.local, dict(w=8)),
        recurring,
        (reach.streaming, dict(w=8, g=4)),
    ):
        mechanism("sinks", options=options)(function)
        assert ("documents" in MECHANISMS["sinks"].supports) == ("g" not in options)
    with pytest.raises(UsageError, match="decoder_attention=sinks cannot be combined"):
        replace(Config(), **within, decoder_attention="sinks")


def test_positions_with_a_bias_beside_their_encoding_are_not_exported(files):
    for kind in ("encode", "bias"):
        positions("both", kind)(encode)
    with pytest.raises(UsageError, match="does not support positions=both"):
        choose(replace(Config(), positions="both").model, "CTranslate2")
