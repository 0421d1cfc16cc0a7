"""The conformance suite: every mechanism equals its definition in float64 in every role."""

import doctest
import itertools
import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from jax.extend.core import jaxprs_in_params
from jax.sharding import NamedSharding, PartitionSpec

from experiments.tools.layers import count
from t2t_jax import attention
from t2t_jax.attention import MECHANISMS, build, choice, recurrence, registry
from t2t_jax.attention.dense import Dense
from t2t_jax.attention.reach import Reach
from t2t_jax.attention.visibility import Visibility
from t2t_jax.errors import UsageError
from t2t_jax.ops import tiles
from tests.eight import on_eight_devices
from tests.process import python
from tests.reference import attention as reference
from tests.reference import memory

B, H, D_K, D_V = 4, 2, 6, 3  # D_K is even, as one mechanism halves it
SMALL = {
    "local": dict(w=3),
    "local_p": dict(w=2),
    "dilated": dict(w=2, r=3),
    "block_local": dict(b=4),
    "streaming": dict(w=3, g=2),
    "longformer": dict(w=3, g=2),
    "sparse_strided": dict(l=3),
    "sparse_fixed": dict(l=3, c=2),
    "sparse_random": dict(b=2, r=2, seed=8),  # this seed draws a block twice
    "bigbird": dict(b=2, w=2, g=2, r=3, seed=7),  # as above
    "block_select": dict(b=3, n=2),
    "native_sparse": dict(b=3, n=2, w=2),
    "lsh": dict(b=3, c=2, r=2, seed=1),
    "top_k": dict(k=3),
    "performer": dict(m=7, seed=3),
    "differential": dict(lambda_init=0.1),  # with a lambda near 1, float32 has few digits left
    "softcap": dict(cap=1.5, power=1.0),
    "forgetting": dict(power=1.0),
    "cosformer": dict(M=181),  # the greatest length of a test
    "linformer": dict(n=181, k=3),
    "nystrom": dict(m=4),
}
FULL = pytest.mark.full
ROLES = [(name, role) for name in MECHANISMS for role in MECHANISMS[name].roles]
# What dtypes, vmap and other rows change is the same in every role: as a decoder, if it can be.
ONCE = [(name, max(MECHANISMS[name].roles, key=lambda x: x == "decoder")) for name in MECHANISMS]
CAUSAL = [name for name in MECHANISMS if "decoder" in MECHANISMS[name].roles]
CROSS = [name for name in MECHANISMS if "cross" in MECHANISMS[name].roles]


# They share all but scores, weights, features, gates or predicates with another mechanism. By
# default, they are compared with their definition; what every mechanism must do is tried by --full.
VARIANTS = (
    "cosformer taylor mamba2 gated_delta kimi_delta cosine sink entmax dilated longformer bigbird"
).split()
# They share all code of scaled_dot_product but that of their scores and weights.
ALIKE = (
    "cosine softcap forgetting softmax1 sink sparsemax entmax talking_heads differential".split()
)
# Each in all of its roles by default; the others stand on what these share with them.
CORE = "scaled_dot_product additive local sparse_strided linear".split()
SLOW = "native_sparse"  # its definition makes a choice for each query


def stands_alone(name, role=None):
    """Whether a mechanism is tested in a role by default: in its last that decodes, or in all."""
    roles = MECHANISMS[name].roles
    return name in CORE or role in (None, "decoder" if "decoder" in roles else roles[-1])


def each(names, core=False):
    """Returns names, or pairs with a role, as parameters; those that others stand for are full.

    With `core`, so is every mechanism that is not in `CORE`.
    """
    names = [x if isinstance(x, tuple) else (x,) for x in names]
    left = [name for name in MECHANISMS if name in VARIANTS or (core and name not in CORE)]
    return [pytest.param(*x, marks=[FULL] * (x[0] in left or not stands_alone(*x))) for x in names]


def by_default(name, role):
    """Whether a mechanism is compared with its definition in a role by default."""
    return stands_alone(name, role) and name != SLOW


def text(name, **options):
    """Returns a mechanism as a config writes it, with the options in SMALL by default."""
    options = options or SMALL.get(name, {})
    return f"{name}:{','.join(f'{n}={v}' for n, v in options.items())}".rstrip(":")


def is_chunked(name):
    return "chunk" in MECHANISMS[name].sizes


def make(name):
    """Returns the mechanism; its chunks and tiles are so short that every sequence has several."""
    sizes = {n: min(size, 5) for n, size in MECHANISMS[name].sizes.items()}
    return build(text(name)).clone(**sizes)


def draw(name, T, S, seed=0, dtype=jnp.float32):
    """Returns queries, keys with the gates of a mechanism, and values."""
    rng = np.random.default_rng(seed)
    shapes = (
        (B, T, H, D_K),
        (B, S, H, D_K),
        (B, S, H, D_V),
        (B, S, H, MECHANISMS[name].gates(D_K)),
    )
    q, k, v, gates = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    return [q, np.concatenate([k, gates], -1), v]


def upstream(T, dtype=jnp.float32):
    """Returns a random gradient of the output."""
    return np.random.default_rng(11).normal(size=(B, T, H, D_V)).astype(dtype)


@cache
def weights(name, dtype=jnp.float32):
    """Returns parameters far from their initial values, so that their effect is visible."""
    visibility = Visibility(causal="decoder" in MECHANISMS[name].roles)
    init = jax.jit(lambda *x: meta.unbox(make(name).init(*x, visibility)))
    drawn = init(jax.random.key(7), *draw(name, 2, 2))
    rng = np.random.default_rng(7)
    return jax.tree.map(lambda p: (2 * p + rng.normal(0, 0.5, p.shape)).astype(dtype), drawn)


def lengths(role, T, S):
    """Returns query and key lengths of 0, 1, some and all tokens; in another order if cross."""
    q = np.array([0, 1, T // 2 + 1, T])
    return (q, np.array([S, 1, 0, S - 1])) if role == "cross" else (q, q)


def padded_visibility(role, T, S):
    q, kv = lengths(role, T, S)
    return Visibility(jnp.array(q), jnp.array(kv), causal=role == "decoder")


@partial(jax.jit, static_argnums=0)
def run(name, variables, q, k, v, visibility):
    return make(name).apply(variables, q, k, v, visibility)


@partial(jax.jit, static_argnums=0)
def pull(name, variables, q, k, v, visibility, g):
    """Returns the output, and the gradients of its product with g."""
    out, back = jax.vjp(lambda *x: run(name, *x, visibility), variables, q, k, v)
    return out, back(g)


def decode(mechanism, variables, q, k, v, visibility, **options):
    """Returns the outputs [B, T, h, d_v] of all steps, and the state before and after them.

    A causal mechanism begins without keys, and each step brings one; others begin with all.
    """
    known = visibility
    if visibility.causal:
        known = Visibility(kv_lengths=jnp.zeros(B, jnp.int32), causal=True)
    first = state = jax.jit(partial(mechanism.apply, variables, method="start"))(k, v, known)
    step = jax.jit(partial(mechanism.apply, variables, method="step", **options))
    outputs = []
    for t in range(q.shape[1]):
        new = [x[:, t : t + 1] for x in (k, v)] if visibility.causal else []
        out, state = step(state, q[:, t : t + 1], jnp.int32(t), *new)
        outputs.append(out)
    return jnp.concatenate(outputs, axis=1), first, state


def defined(name, variables, q, k, v, role, g, bias=None):
    """Returns what `pull` returns, computed by the reference in float64."""
    opts = dict(MECHANISMS[name].options) | SMALL.get(name, {})
    q_lengths, kv_lengths = lengths(role, q.shape[1], k.shape[1])
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), (variables, q, k, v))

        def f(variables, q, k, v):
            own = variables.get("params", {})
            return reference.attention(
                name, opts, own, q, k, v, q_lengths, kv_lengths, role == "decoder", bias
            )

        def outputs(wide, g):
            out, back = jax.vjp(f, *wide)
            return out, back(g)

        compiled = jax.jit(outputs) if name in reference.COMPILED else outputs
        return jax.tree.map(np.asarray, compiled(wide, jnp.asarray(np.asarray(g, np.float64))))


def close(actual, expected, tolerance):
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        x, y = (np.asarray(z, np.float64) for z in (x, y))
        assert np.abs(x - y).max(initial=0) <= tolerance * max(np.abs(y).max(initial=0), 0.1)


@cache
def definition(name, role, T, S):
    """Returns what `defined` returns for `weights`, `draw` and `upstream`."""
    return defined(name, weights(name), *draw(name, T, S), role, upstream(T))


# Other lengths in one role: one that is shorter than every block, and one of several chunks.
LENGTHS = [(*x, 1, 4) for x in ONCE] + [(*x, 29, 31) for x in ONCE if x[0] != SLOW]


@pytest.mark.parametrize(
    ("name", "role", "T", "S"),
    [
        *(pytest.param(*x, 13, 11, marks=[FULL] * (not by_default(*x))) for x in ROLES),
        *(pytest.param(*x, marks=FULL) for x in LENGTHS),
    ],
)
def test_output_and_gradients_equal_the_definition(name, role, T, S):
    S = S if role == "cross" else T
    q, k, v = draw(name, T, S)
    g = upstream(T)
    variables = weights(name)
    actual = pull(name, variables, q, k, v, padded_visibility(role, T, S), g)
    # The norm of a memory that holds one value hides its length: the gradients of q and k are zero
    # but for rounding.
    hidden = T == 1 and name in memory.NAMES
    tolerance = 1e-4 if hidden else 2e-5 if T > 20 else 1e-5  # gradients of parameters sum over T
    close(actual, definition(name, role, T, S), tolerance)


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    """What mechanisms compute on a CPU and, without kernels, on a GPU."""
    monkeypatch.setattr(tiles, "_platform", lambda: request.param)
    for compiled in (run, pull):
        compiled.clear_cache()
    yield
    for compiled in (run, pull):
        compiled.clear_cache()


CHUNKED = [(name, role) for name, role in ONCE if is_chunked(name)]


@pytest.mark.parametrize("platform", ["gpu"], indirect=True)
@pytest.mark.parametrize("T", [13, pytest.param(29, marks=FULL)])
@pytest.mark.parametrize(("name", "role"), CHUNKED)
def test_all_chunks_at_once_equal_the_definition(name, role, T, platform):
    test_output_and_gradients_equal_the_definition(name, role, T, T)


@pytest.mark.parametrize("platform", ["gpu"], indirect=True)
@pytest.mark.parametrize(("name", "role"), each(CHUNKED, core=True))
def test_all_chunks_at_once_are_vmapped_and_may_see_no_key(name, role, platform):
    test_vmap_equals_each_member_alone(name, role)
    test_a_query_that_sees_no_key_returns_zeros(name, role)


@pytest.mark.parametrize("C", [1, 7, 64])
def test_equal_keys_do_not_spoil_the_inverse_of_a_chunk(C):
    below = np.tril(np.ones((2, 3, C, C)), -1)
    below[1] *= np.random.default_rng(0).normal(size=(C, C))
    inverse = jax.jit(recurrence._inverse)(below.astype(np.float32))
    close(inverse, np.linalg.inv(np.eye(C) + below), 1e-5)


@FULL
@pytest.mark.parametrize(("name", "role"), ONCE)
def test_bfloat16_is_close_to_the_definition(name, role):
    T, S = (13, 11) if role == "cross" else (13, 13)
    q, k, v = draw(name, T, S, dtype=jnp.bfloat16)
    g = upstream(T, jnp.bfloat16)
    variables = weights(name)
    out, gradients = pull(name, variables, q, k, v, padded_visibility(role, T, S), g)
    assert out.dtype == jnp.bfloat16
    # The gradient of the one lambda sums terms of either sign.
    tolerance = 0.06 if name == "differential" else 0.03
    close((out, gradients), defined(name, variables, q, k, v, role, g), tolerance)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        pytest.param(*x, marks=[FULL] * (x not in (("dilated", "cross"), ("top_k", "cross"))))
        for x in [*ONCE, ("dilated", "cross"), ("top_k", "cross")]
        if "bias" in MECHANISMS[x[0]].supports
    ],
)
def test_a_bias_is_added_to_the_scores(name, role):
    T, S = (13, 11) if role == "cross" else (13, 13)
    q, k, v = draw(name, T, S)
    table = np.random.default_rng(2).normal(size=(2 * T - 1, H)).astype(np.float32)
    by_distance = {d: table[d + T - 1] for d in range(1 - T, T)}
    variables, visibility = weights(name), padded_visibility(role, T, S)

    def bias(distance):
        return jnp.moveaxis(jnp.asarray(table)[jnp.clip(distance + T - 1, 0, 2 * T - 2)], -1, 0)

    apply = jax.jit(make(name).apply, static_argnames=("method", "bias"))
    actual = apply(variables, q, k, v, visibility, bias=bias)
    close(actual, defined(name, variables, q, k, v, role, actual, by_distance)[0], 1e-5)
    if role != "encoder":
        lengths = jnp.array([S, 1, 0, S - 1])
        known = Visibility(causal=True) if role == "decoder" else Visibility(kv_lengths=lengths)
        inputs = variables, q, k, v, known
        close(decode(make(name), *inputs, bias=bias)[0], apply(*inputs, bias=bias), 1e-5)


@pytest.mark.full
def test_programs_that_users_compile_equal_the_definitions_too():
    """The other default cases compile quickly; optimised programs round the same sums otherwise."""
    code = (
        "from tests.test_attention import *\n"
        "for name in 'top_k sparsemax entmax'.split():\n"
        "    test_a_bias_is_added_to_the_scores(name, 'decoder')\n"
        "from tests.test_training import *\n"
        "test_training_fits_a_batch()"
    )
    python(code, XLA_FLAGS="--xla_backend_optimization_level=1")  # as launch/environment.sh


@FULL
@pytest.mark.parametrize(
    ("name", "role"),
    [(n, r) for n, r in ONCE if "dropout" in MECHANISMS[n].supports and r != "cross"],
)
def test_dropout_is_applied_to_the_weights(name, role):
    T = 13
    q, k, v = draw(name, T, T)
    visibility = padded_visibility(role, T, T)
    # `attend`, because what `finish` does need not be linear
    compiled = jax.jit(make(name).apply, static_argnames=("method", "dropout"))
    apply = partial(compiled, weights(name), q, k, v, visibility, bias=None)
    whole = apply(dropout=None, method="attend")
    for factor in (3, 0):
        close(apply(dropout=lambda a, x=factor: x * a, method="attend"), factor * whole, 1e-6)


@pytest.mark.parametrize(("name", "role"), each(ROLES, core=True))
def test_padding_has_no_effect_even_if_it_is_nan(name, role):
    T, S = (13, 11) if role == "cross" else (13, 13)
    q, k, v = draw(name, T, S, 1)
    spoilt = [np.array(x) for x in (q, k, v)]
    for x, known in zip(spoilt, np.array(lengths(role, T, S))[[0, 1, 1]], strict=True):
        for b, length in enumerate(known):
            x[b, length:] = np.nan
    g = upstream(T)
    clean = pull(name, weights(name), q, k, v, padded_visibility(role, T, S), g)
    dirty = pull(name, weights(name), *spoilt, padded_visibility(role, T, S), g)
    for x, y in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_array_equal(x, y)
    for x, known in zip(clean[1][1:], np.array(lengths(role, T, S))[[0, 1, 1]], strict=True):
        for b, length in enumerate(known):
            assert not np.any(x[b, length:])


@pytest.mark.parametrize("spoil", [np.nan, 50.0])
@pytest.mark.parametrize("name", each(CAUSAL, core=True))
def test_the_future_has_no_effect_even_if_it_is_nan(name, spoil):
    """Inputs from position t on are overwritten: outputs and gradients before t keep every bit."""
    T = 13
    q, k, v = draw(name, T, T, 2)
    visibility, variables = Visibility(causal=True), weights(name)
    g = upstream(T)
    for t in range(1, T):
        late = (np.arange(T) >= t)[None, :, None, None]
        before = np.where(late, np.float32(0), g)
        dirty = [np.where(late, np.float32(spoil), x) for x in (q, k, v)]
        clean = pull(name, variables, q, k, v, visibility, before)
        actual = pull(name, variables, *dirty, visibility, before)
        clean, actual = jax.tree.map(np.asarray, (clean, actual))
        np.testing.assert_array_equal(actual[0][:, :t], clean[0][:, :t])
        for x, y in zip(actual[1][1:], clean[1][1:], strict=True):
            np.testing.assert_array_equal(x[:, :t], y[:, :t])
            assert not np.any(y[:, t:])
        if np.isnan(spoil):  # NaN propagates to every query that sees it
            assert np.isnan(actual[0][:, t:]).all()
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(actual[1]))


@pytest.mark.parametrize("name", each(CAUSAL))
def test_decoding_steps_equal_the_full_output_after_every_prefix(name):
    T = 11
    q, k, v = draw(name, T, T, 3)
    variables, mechanism = weights(name), make(name)
    whole = np.asarray(run(name, variables, q, k, v, Visibility(causal=True)))
    start = jax.jit(partial(mechanism.apply, method="start"))
    step = jax.jit(partial(mechanism.apply, method="step"))
    order = np.array([2, 2, 0, 3])  # as a beam reorders its hypotheses
    for known in range(T):
        beyond = (np.arange(T) >= known)[None, :, None, None]
        prefix = Visibility(kv_lengths=jnp.full(B, known, jnp.int32), causal=True)
        state = start(variables, *(np.where(beyond, np.float32(np.nan), x) for x in (k, v)), prefix)
        inputs, expected = (q, k, v), whole
        for t in range(known, T):
            if t == T // 2:
                state, inputs, expected = jax.tree.map(
                    lambda x: x[order], (state, inputs, expected)
                )
            now = (x[:, t : t + 1] for x in inputs)
            new_q, new_k, new_v = now
            out, state = step(variables, state, new_q, jnp.int32(t), new_k, new_v)
            close(out[:, 0], expected[:, t], 1e-5)


@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=FULL)])
@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("local", "w"), ("sparse_fixed", "l")),
        *(pytest.param(x, "w", marks=FULL) for x in ("dilated", "streaming", "longformer")),
        *(pytest.param(*x, marks=FULL) for x in (("block_local", "b"), ("sparse_strided", "l"))),
    ],
)
def test_a_window_longer_than_the_sequence_costs_as_much_as_one_of_its_length(name, size, causal):
    T = 19
    q, k, v = draw(name, T, T, 3)
    visibility = Visibility(causal=causal)
    outputs, products, states = [], [], []
    for length in (T, 300):
        spec = text(name, **SMALL[name] | {size: length})
        mechanism = build(spec)
        outputs.append(jax.jit(mechanism.apply)({}, q, k, v, visibility))
        products.append(choice.products(spec, registry.Shape(T, T, D_K, D_K, causal)))
        one = (jax.ShapeDtypeStruct((1, T, 1, D_K), jnp.float32),) * 3
        traced = jax.make_jaxpr(partial(mechanism.apply, {}, visibility=visibility))(*one)
        assert products[-1] == count(traced.jaxpr)[0] / 2
        if causal:
            out, state, _ = decode(mechanism, {}, q, k, v, visibility)
            states.append(sum(x.nbytes for x in jax.tree.leaves(state)))
            close(out, outputs[-1], 1e-5)
    close(outputs[1], outputs[0], 1e-6)
    if name == "sparse_fixed":  # no position is among the last c of a block of 300
        assert products[1] < products[0]
        assert states[1:] <= states[:1]
    else:
        assert products[0] == products[1]
        assert len(set(states)) <= 1


@pytest.mark.parametrize("name", each(CROSS))
def test_cross_attention_steps_equal_the_full_output(name):
    T, S = 17, 6
    inputs = weights(name), *draw(name, T, S, 4), Visibility(kv_lengths=jnp.array([0, 1, 4, S]))
    out, before, after = decode(make(name), *inputs)
    close(out, run(name, *inputs), 1e-5)
    changing = dict.fromkeys(MECHANISMS[name].changing)
    jax.tree.map(np.testing.assert_array_equal, after | changing, before | changing)


GROUPED = [name for name in MECHANISMS if make(name).grouped]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[FULL] * (name not in (*CORE, "differential", "sparse_random")))
        for name in GROUPED
    ],
)
def test_the_state_of_a_grouped_mechanism_holds_one_head_for_several_queries(name):
    T, causal = 9, name in CAUSAL
    q, k, v = draw(name, T, T, 13)
    q = np.concatenate([q, draw(name, T, T, 14)[0]], axis=2)
    few, many = (k, v), [np.repeat(x, 2, axis=2) for x in (k, v)]
    visibility = Visibility(kv_lengths=jnp.full(B, T, jnp.int32), causal=causal)
    variables = meta.unbox(jax.jit(make(name).init)(jax.random.key(7), q, *many, Visibility()))
    out, state, _ = decode(make(name), variables, q, *few, visibility)
    close(out, run(name, variables, q, *many, visibility), 1e-5)
    repeated = jax.eval_shape(
        partial(make(name).apply, variables, method="start"), *many, visibility
    )
    for key, x in state.items():
        assert repeated[key].size == x.size * (1 if key == "lengths" else 2)


@FULL
def test_mechanisms_that_keep_keys_and_values_are_grouped():
    # The heads of these have weights of their own, or states that differ.
    repeated = {"general", "additive", "coverage", "block_select", "lsh", "linformer"}
    repeated |= {"native_sparse"}
    assert {*MECHANISMS} - {*GROUPED} >= repeated | {"linear", "performer"}
    for name in dict.fromkeys(CAUSAL + CROSS):
        visibility = Visibility(causal=name in CAUSAL)
        kv = draw(name, 5, 5)[1:]
        start = partial(make(name).apply, method="start")
        state = jax.eval_shape(start, weights(name), *kv, visibility)
        assert name in GROUPED or "k" not in state or name in repeated


@pytest.mark.parametrize(("name", "role"), each(ONCE, core=True))
def test_a_query_that_sees_no_key_returns_zeros(name, role):
    T, S = (13, 11) if role == "cross" else (13, 13)
    q, k, v = draw(name, T, S, 5)
    for q_length, kv_length in ((T, 0), (0, S)):
        all_lengths = (jnp.full(B, n, jnp.int32) for n in (q_length, kv_length))
        visibility = Visibility(*all_lengths, causal=role == "decoder")
        out, gradients = pull(name, weights(name), q, k, v, visibility, jnp.ones((B, T, H, D_V)))
        assert not any(np.any(x) for x in jax.tree.leaves((out, gradients)))


@FULL
@pytest.mark.parametrize(("name", "role"), ONCE)
def test_more_padding_and_other_rows_have_no_effect(name, role):
    T, S = (9, 7) if role == "cross" else (9, 9)
    q, k, v = draw(name, T, S, 6)
    variables, visibility = weights(name), padded_visibility(role, T, S)
    alone = run(name, variables, q, k, v, visibility)
    wider = [np.pad(x, ((0, 0), (0, 8), (0, 0), (0, 0)), constant_values=9) for x in (q, k, v)]
    close(run(name, variables, *wider, visibility)[:, :T], alone, 1e-5)
    for b in range(B):
        row = jax.tree.map(lambda x, b=b: x[b : b + 1], (q, k, v, visibility))
        close(run(name, variables, *row)[0], alone[b], 1e-5)


@FULL
@pytest.mark.parametrize(("name", "role"), ONCE)
def test_vmap_equals_each_member_alone(name, role):
    T, S = (9, 7) if role == "cross" else (9, 9)
    members = [draw(name, T, S, seed) for seed in range(3)]
    variables, visibility = weights(name), padded_visibility(role, T, S)
    together = jax.vmap(lambda *x: run(name, variables, *x, visibility))
    actual = together(*(np.stack(x) for x in zip(*members, strict=True)))
    for x, member in zip(actual, members, strict=True):
        close(x, run(name, variables, *member, visibility), 1e-5)


class PositionScores(Dense):
    """Dense attention whose scores and keys depend on positions, each differently."""

    def keys(self, k, s):
        return super().keys(k * (1 + jnp.sin(s))[None, :, None, None], s)

    def scores(self, q, keys, t, s):
        pairs = jnp.cos(0.7 * t[:, None] + 0.4 * s[None])
        return jnp.einsum("bthd,bhsd->bhts", q, keys) + pairs[None, None]


@pytest.mark.parametrize("role", ["decoder", "cross"])
def test_scores_and_keys_that_depend_on_positions_decode_as_they_train(role):
    T, S = (9, 7) if role == "cross" else (9, 9)
    q, k, v = draw("scaled_dot_product", T, S, 12)
    t, s = np.arange(T)[:, None], np.arange(S)[None]
    turned = k * (1 + np.sin(s))[..., None, None]
    e = np.einsum("bthd,bshd->bhts", q, turned) + np.cos(0.7 * t + 0.4 * s)
    a = np.exp(np.where((s <= t) | (role == "cross"), e, -np.inf))
    expected = np.einsum("bhts,bshd->bthd", a / a.sum(-1, keepdims=True), v)
    inputs = {}, q, k, v, Visibility(kv_lengths=jnp.full(B, S), causal=role == "decoder")
    close(jax.jit(PositionScores().apply)(*inputs), expected, 1e-5)
    close(decode(PositionScores(), *inputs)[0], expected, 1e-5)


def check_rows_and_heads():
    """Sharding rows along one mesh axis and heads along the other changes no result.

    Each mechanism is tried in its last role, as roles differ in what may be seen, not in the rows
    and heads of arrays.
    """
    shape, names = (4, 2), ("data", "tensor")
    mesh = jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * 2)
    along = NamedSharding(mesh, PartitionSpec("data", None, "tensor"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    for name, role in ((name, x.roles[-1]) for name, x in MECHANISMS.items()):
        T, S = (13, 11) if role == "cross" else (13, 13)
        variables, visibility = weights(name), padded_visibility(role, T, S)
        alone = pull(name, variables, *draw(name, T, S), visibility, upstream(T))
        rest = jax.device_put((variables, visibility), everywhere)
        x = jax.device_put((*draw(name, T, S), upstream(T)), along)
        actual = pull(name, rest[0], *x[:3], rest[1], x[3])
        assert len(actual[0].sharding.device_set) == 8
        close(actual, alone, 1e-5)


@FULL
@pytest.mark.timeout(600)
def test_eight_devices_equal_one():
    on_eight_devices(check_rows_and_heads)


PAIRS = "scaled_dot_product dot_product general additive top_k".split() + ALIKE
AT_4096 = {
    "local": dict(w=64),
    "dilated": dict(w=32, r=4),
    "block_local": dict(b=64),
    "streaming": dict(w=64),
    "longformer": dict(w=64, g=8),
    "sparse_strided": dict(l=64),
    "sparse_fixed": dict(l=64, c=1),
    "sparse_random": dict(b=32),
    "bigbird": dict(b=32, w=2),
    "block_select": dict(b=32),
    "native_sparse": dict(b=32),
    "lsh": dict(b=32, c=16),
    "cosformer": dict(M=4096),
    "linformer": dict(n=4096, k=64),
}


# Compiled at 4,096 by default; the others are made of the same parts.
COMPILED = "local sparse_strided sparse_fixed sparse_random block_select linear delta".split()


def largest_array(name, n, d, causal):
    """Returns the largest array size in one head's compiled gradient, and the bytes it needs."""
    mechanism = build(text(name, **AT_4096.get(name, {})))
    x, k = jnp.zeros((1, n, 1, d)), jnp.zeros((1, n, 1, d + MECHANISMS[name].gates(d)))
    visibility = Visibility(jnp.array([n - 3]), jnp.array([n - 3]), causal)
    short = (y[:, :4] for y in (x, k, x))
    init = jax.jit(partial(mechanism.init, visibility=Visibility(causal=causal)))
    variables = meta.unbox(init(jax.random.key(0), *short))

    def loss(q, k, v):
        return mechanism.apply(variables, q, k, v, visibility).sum()

    program = jax.jit(jax.value_and_grad(loss, (0, 1, 2))).lower(x, k, x).compile()
    shapes = re.findall(r"\b(?:f32|s32|pred|bf16|s8|u8)\[([\d,]+)\]", program.as_text())
    elements = {int(np.prod([int(y) for y in shape.split(",")])) for shape in shapes}
    return max(elements), program.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        pytest.param(name, False, marks=FULL)
        for name, role in ROLES
        if role == "encoder" and name not in PAIRS
    ]
    + [
        pytest.param(name, True, marks=[FULL] * (name not in COMPILED))
        for name in CAUSAL
        if name not in PAIRS
    ],
)
def test_no_array_of_all_pairs_exists(name, causal):
    n = 4096
    largest, used = largest_array(name, n, 8, causal)
    assert largest < n * n / 4
    assert used < n * n * 4


def test_dense_arrays_have_one_number_a_pair():
    """Unlike the features of all pairs, of which additive attention has no array."""
    largest, used = largest_array("scaled_dot_product", 4096, 8, True)
    assert largest == 4096**2
    assert used > 4096**2
    largest, used = largest_array("additive", 512, 32, True)
    assert largest <= 512**2
    assert used < 512**2 * 32  # a quarter of the array


def tanhs(jaxpr):
    """Returns how many tanh a traced program computes, with loops counted as often as they run."""
    total = 0
    for e in jaxpr.eqns:
        inner = e.outvars[0].aval.size if e.primitive.name == "tanh" else 0
        inner += sum(tanhs(j) for j in jaxprs_in_params(e.params))
        total += inner * (e.params["length"] if e.primitive.name == "scan" else 1)
    return total


@pytest.mark.parametrize(("T", "S"), [(181, 117), pytest.param(5, 7, marks=FULL)])
@pytest.mark.parametrize(("name", "role"), each(ROLES))
def test_counted_products_equal_those_of_the_traced_program(name, role, T, S):
    """One pair of lengths is no multiple of any block, the other is shorter than a block."""
    S, d_k, d_v = S if role == "cross" else T, 6, 10
    shape = registry.Shape(T, S, d_k, d_v, causal=role == "decoder")
    for spec in {name, text(name)}:
        mechanism, visibility = build(spec), Visibility(causal=role == "decoder")
        q, k, v = (
            jax.ShapeDtypeStruct((1, L, 1, d), jnp.float32)
            for L, d in ((T, d_k), (S, d_k + MECHANISMS[name].gates(d_k)), (S, d_v))
        )
        variables = jax.eval_shape(mechanism.init, jax.random.key(0), q, k, v, visibility)
        forward = partial(mechanism.apply, visibility=visibility)
        traced = jax.make_jaxpr(forward)(meta.unbox(variables), q, k, v).jaxpr
        actual = count(traced)[0] / 2
        if name == "additive":  # every feature of a pair takes one tanh and one product
            actual += tanhs(traced)
        assert choice.products(spec, shape) == actual


# One of each engine.
WIDE = (*CORE, "sparsemax", "block_select", "lsh", "performer", "mamba2", "gated_delta", "nystrom")


@pytest.mark.parametrize(
    ("name", "role"),
    [pytest.param(*x, marks=[FULL] * (x[0] != "scaled_dot_product")) for x in ONCE if x[0] in WIDE],
)
def test_float64_is_never_rounded(name, role):
    T, S = (13, 11) if role == "cross" else (13, 13)
    q, k, v = draw(name, T, S)
    g, variables = upstream(T).astype(np.float64), weights(name)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (q, k, v))
        out, gradients = pull(name, variables, *wide, padded_visibility(role, T, S), jnp.asarray(g))
    assert out.dtype == np.float64
    expected = definition(name, role, T, S)
    close((out, gradients[1:]), (expected[0], expected[1][1:]), 1e-13)


def test_sparse_weights_sum_to_one_and_skip_keys():
    z = jnp.asarray(np.random.default_rng(0).normal(0, 3, (5, 7, 4, 31)), jnp.float32)
    seen = jnp.ones((1, 1, 4, 31), bool)
    sparsemax, entmax, softmax = (
        build(name).weights for name in ("sparsemax", "entmax", "scaled_dot_product")
    )
    zeros = []
    for weights in (sparsemax, entmax, softmax):
        a = np.asarray(weights(z, seen))
        close(a.sum(-1), np.ones((5, 7, 4)), 1e-6)
        assert (a >= 0).all()
        zeros.append((a == 0).mean())
    assert zeros[0] > zeros[1] > 0.5 > zeros[2]
    for weights in (sparsemax, entmax):  # equal scores, and scores of any size
        close(weights(0 * z, seen), np.full(z.shape, 1 / 31), 1e-5)
        close(weights(1e4 * z, seen), z == z.max(-1, keepdims=True), 1e-5)


def test_the_first_lambda_of_differential_attention_is_near_its_option():
    """As in the paper: the vectors start small, and the norm takes out the scale of the values."""
    mechanism = build("differential:lambda_init=0.5")
    q, k, v = draw("differential", 13, 13, 4)
    variables = meta.unbox(mechanism.init(jax.random.key(0), q, k, v, Visibility()))
    out = mechanism.apply(variables, q, k, v, Visibility())
    close((out**2).mean(-1) ** 0.5, np.full((B, 13, H), 0.5), 1e-2)
    close(mechanism.apply(variables, q, k, 7 * v, Visibility()), out, 1e-2)
    one, two = (
        run("scaled_dot_product", {}, *x, v, Visibility())
        for x in ((q[..., :3], k[..., :3]), (q[..., 3:], k[..., 3:]))
    )
    x = np.asarray(one - 0.5 * two)
    close(out, 0.5 * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5), 0.1)


def test_more_features_approximate_the_softmax_better():
    q, k, v = draw("performer", 13, 11, 8)
    q, k = q / 2, k / 2
    softmax = run("scaled_dot_product", {}, q, k, v, Visibility())

    def error(m):
        off = [
            build(text("performer", m=m, seed=seed)).apply({}, q, k, v, Visibility()) - softmax
            for seed in range(6)
        ]
        return float(jnp.sqrt(jnp.mean(jnp.square(jnp.stack(off)))))

    errors = [error(m) for m in (16, 64, 256)]
    assert all(b < 0.75 * a for a, b in itertools.pairwise(errors)), errors


def test_performer_is_finite_for_large_inputs(platform):
    """Small and large keys alternate: the scale of the running sums changes by factors of e^100."""
    q, k, v = draw("performer", 13, 13, 9)
    scale = np.where(np.arange(13) % 5 < 2, 0.1, 30).astype(np.float32)
    inputs = weights("performer"), 5 * q, k * scale[:, None, None], v, Visibility(causal=True)
    out = run("performer", *inputs)
    assert np.isfinite(out).all()
    close(out[:, 0], v[:, 0], 1e-5)
    close(decode(make("performer"), *inputs)[0], out, 1e-5)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=FULL), True])
@pytest.mark.parametrize(
    "spec",
    [
        "dilated:w=99,r=1",
        "block_local:b=99",
        "streaming:w=1,g=99",
        "longformer:w=99,g=1",
        "bigbird:b=4,w=9,g=9,r=5",
        "block_select:b=4,n=99",
        "lsh:b=1,c=99,r=3",
        "top_k:k=99",
    ],
)
def test_a_pattern_that_leaves_no_key_out_is_dense_attention(spec, causal):
    q, k, v = draw(spec.partition(":")[0], 13, 13, 8)
    visibility = padded_visibility("decoder" if causal else "encoder", 13, 13)
    dense = run("scaled_dot_product", {}, q, k, v, visibility)
    close(jax.jit(partial(build(spec).apply, {}))(q, k, v, visibility), dense, 1e-5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(stride=4), "block must equal stride"),
        (dict(stride=4, block=8), "block must equal stride"),
        (dict(r=2), "need the length of a block"),
        (dict(parts=2, rows=1), "parts excludes"),
        (dict(kept=lambda s: s < 4), "true of keys beyond the window"),
        (dict(stride=8, block=8), "true of keys beyond the window"),
        (dict(sees=lambda t, s: abs(s - t) <= 8, near=0), "beyond the window or its blocks"),
        (dict(sees=lambda t, s: abs(s - t) <= 10**6, window=10**6 - 1), "beyond the window"),
        (dict(sees=lambda t, s: s < 9, window=2**30), r"must be below 2\^30"),
        (dict(sees=lambda t, s: s < 9, window=2**15, parts=2**15), r"must be below 2\^30"),
        (
            dict(sees=lambda t, s: (abs(s - t) < 9) & (s % 2 == t % 2), window=4, parts=2, near=0),
            "beyond the window or its blocks",
        ),
    ],
)
def test_a_pattern_that_contradicts_itself_is_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        Reach(**dict(sees=lambda t, s: s <= t, window=8) | fields)


def test_a_long_window_is_checked_at_some_positions():
    w, pairs = 10**6, []
    Reach(lambda t, s: (pairs.append(np.broadcast(t, s).size), abs(s - t) <= w)[1], window=w)
    assert 0 < max(pairs) < 10**6


@FULL
def test_gradients_of_a_key_that_many_queries_gather_are_summed_in_float32():
    """All queries select block 0; sums in bfloat16 would stop growing long before they are done."""
    n, mechanism = 600, build("block_select:b=2,n=1")
    v = np.random.default_rng(0).normal(size=(1, n, 1, 3))
    k = 0 * v + (np.arange(n) < 2)[None, :, None, None]

    def gradient(dtype):
        q, keys, values = (jnp.asarray(x, dtype) for x in (1 + 0 * v, k, v))
        out, back = jax.vjp(lambda v: mechanism.apply({}, q, keys, v, Visibility()), values)
        return back(jnp.ones_like(out))[0]

    close(gradient(jnp.bfloat16), gradient(jnp.float32), 0.01)


@pytest.mark.parametrize(("spec", "expected"), [("top_k:k=2", 9), ("block_select:b=2,n=1", 10.25)])
def test_equal_scores_are_all_kept_and_of_equal_blocks_the_earliest_is_taken(spec, expected):
    q, k = np.ones((1, 8, 1, 2), np.float32), np.zeros((1, 8, 1, 2), np.float32)
    v = np.array([1, 2, 4, 8, 16, 3, 7, 31], np.float32)[None, :, None, None]
    out = build(spec).apply({}, q, k, v, Visibility())
    np.testing.assert_allclose(out[0, 6, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
@pytest.mark.parametrize(("name", "spread", "shift"), [("performer", 12, 0), ("linear", 3, -15)])
def test_gradients_are_right_with_tiny_denominators(name, spread, shift, role):
    """At 1e-20 or below, the square of a denominator underflows in float32."""
    q, k, v = draw(name, 13, 13, 9)
    q, k = spread * q + shift, spread * k + shift
    g = upstream(13)
    actual = pull(name, {}, q, k, v, padded_visibility(role, 13, 13), g)
    close(actual, defined(name, {}, q, k, v, role, g), 1e-4)


def test_the_example_of_the_package_runs():
    results = doctest.testmod(attention)
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("linear", {"dropout": abs}),
        ("performer", {"bias": abs}),
        ("additive", {"dropout": abs}),
        ("local_p", {"visibility": Visibility(causal=True)}),
        ("local_p", {"bias": abs}),
        ("block_select", {"dropout": abs}),
        ("native_sparse", {"dropout": abs}),
        ("lsh", {"bias": abs}),
        ("linformer", {"bias": abs}),
        ("linformer", {"visibility": Visibility(causal=True)}),
        ("nystrom", {"dropout": abs}),
        ("nystrom", {"visibility": Visibility(causal=True)}),
        ("retention", {"dropout": abs}),
        ("retention", {"bias": abs}),
        ("delta", {"visibility": Visibility()}),
    ],
)
def test_an_argument_without_support_is_refused(name, argument):
    q, k, v = draw(name, 5, 5)
    with pytest.raises(ValueError, match="does not support"):
        make(name).apply(weights(name), q, k, v, **{"visibility": Visibility()} | argument)


@pytest.mark.parametrize("name", ["linear", "local_p"])
def test_a_step_of_cross_attention_refuses_a_bias_without_support(name):
    inputs = weights(name), *draw(name, 5, 7), Visibility(kv_lengths=jnp.full(B, 7))
    with pytest.raises(ValueError, match="does not support bias"):
        decode(make(name), *inputs, bias=abs)


@pytest.mark.parametrize("name", ["delta", pytest.param("gated_delta", marks=FULL)])
def test_the_gradient_of_a_chunk_solves_one_triangular_system(name):
    """Two at once can wait for each other's threads for ever on a CPU with few cores."""
    mechanism, visibility = build(name), Visibility(causal=True)
    L, d = 3 * mechanism.chunk, mechanism.chunk  # wide values, for which JAX would solve two
    q, v = jnp.ones((1, L, 1, 4)), jnp.ones((1, L, 1, d))
    k = jnp.ones((1, L, 1, 4 + MECHANISMS[name].gates(4)))
    variables = meta.unbox(mechanism.init(jax.random.key(0), q, k, v, visibility))
    gradients = jax.grad(lambda *x: mechanism.apply(variables, *x, visibility).sum(), (0, 1, 2))
    program = jax.jit(gradients).lower(q, k, v).compile().as_text()
    assert program.count('custom_call_target="lapack_strsm_ffi"') == 2  # forwards and backwards


@pytest.mark.parametrize(
    "name", ["gated_linear", *(pytest.param(x, marks=FULL) for x in ("gated_delta", "kimi_delta"))]
)
def test_a_weak_decay_after_a_strong_one_is_exact(name, platform):
    q, k, v = draw(name, 13, 13, 10)
    gates = k[..., D_K:]
    gates[:, ::3] = {"gated_linear": -1e31, "gated_delta": 50, "kimi_delta": 1e3}[name]  # erases
    g = upstream(13)
    variables = weights(name)
    actual = pull(name, variables, q, k, v, padded_visibility("decoder", 13, 13), g)
    close(actual, defined(name, variables, q, k, v, "decoder", g), 1e-5)


def test_more_positions_than_a_mechanism_has_weights_for_are_refused():
    q, k, v = draw("cosformer", 5, 5)
    mechanism = build("cosformer:M=4")
    with pytest.raises(UsageError, match=r"M=4 has weights for 4 .* has 5: shorten it"):
        mechanism.apply({}, q, k, v, Visibility(causal=True))
    with pytest.raises(UsageError, match="shorten it, or train with M="):
        mechanism.apply({}, k, v, Visibility(jnp.zeros(B, jnp.int32)), method="start")
    q, k, v = draw("linformer", 3, 5)
    mechanism = build("linformer:n=4,k=2")
    variables = mechanism.init(jax.random.key(0), q, q, q, Visibility())
    with pytest.raises(UsageError, match=r"n=4 projects at most 4 .* has 5: shorten it, or train"):
        mechanism.apply(variables, q, k, v, Visibility())
