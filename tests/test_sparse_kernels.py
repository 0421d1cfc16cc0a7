"""Kernels of sparse attention, interpreted on a CPU, equal their plain definitions.

Padding holds NaN, in the inputs and in the gradients that come back.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.attention import build
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.ops import patterns, sparse_attention
from t2t_jax.ops.patterns import Pattern, ranges
from t2t_jax.ops.sparse_attention import Keys
from tests import gradients
from tests.gradients import drawn, value_and_gradients

close = partial(gradients.close, tolerance=1e-4)


def full(*cases):
    return [pytest.param(*x, marks=pytest.mark.full) for x in cases]


@pytest.mark.parametrize(
    ("name", "T", "causal"),
    [
        ("sparse_fixed:l=9,c=2", 70, False),
        ("sparse_random:b=4,r=2", 20, False),
        ("streaming:w=9,g=3", 70, False),
        ("dilated:w=5,r=3", 70, True),
        ("block_local:b=9", 70, True),
        ("local:w=9", 70, False),
        ("sparse_strided:l=9", 70, True),
        *full(
            ("sparse_strided:l=8", 5, False),
            ("local:w=9", 70, True),
            *((f"sparse_strided:l={l}", T, 0) for l, T in ((1, 70), (11, 130), (64, 130))),
            *((f"sparse_strided:l={l}", 70, 1) for l in (1, 64)),
            ("streaming:w=9,g=80", 9, False),
            ("streaming:w=9,g=65", 150, True),
            *(("dilated:w=5,r=3", T, causal) for causal, T in enumerate((2, 8, 200))),
            *(("longformer:w=9,g=3", T, causal) for causal, T in enumerate((2, 70))),
            *(("bigbird:b=4,w=2,g=3,r=3", T, causal) for causal, T in enumerate((9, 90))),
            *(("block_local:b=70", T, causal) for causal, T in enumerate((9, 70, 150))),
            ("sparse_fixed:l=9,c=2", 70, True),
            *(("sparse_fixed:l=24,c=3", T, causal) for causal, T in enumerate((70, 150))),
            *(("sparse_random:b=16,r=3", T, causal) for causal, T in enumerate((90, 170))),
            *(("sparse_random:b=4,r=2", T, causal) for causal, T in enumerate((70, 130))),
            *(("sparse_fixed:l=64,c=64", T, causal) for causal, T in enumerate((1, 64, 65))),
            *(("sparse_fixed:l=100,c=1", T, causal) for causal, T in enumerate((99, 300))),
            *(("sparse_strided:l=9", T, causal) for causal, T in enumerate((8, 9, 150))),
            *(("sparse_random:b=48,r=2", T, causal) for causal, T in enumerate((1, 48, 300))),
            *(("sparse_random:b=128,r=1", T, causal) for causal, T in enumerate((128, 700))),
            *(("sparse_random:b=1,r=4", T, causal) for causal, T in enumerate((2, 33))),
        ),
    ],
)
def test_a_fused_mechanism_equals_the_plain_one_whatever_padding_holds(name, T, causal):
    lengths = jnp.array([T, T // 2, min(T, 3), 0])
    visibility, mechanism = Visibility(lengths, lengths, causal=bool(causal)), build(name)
    present = length_mask(lengths, T)[:, :, None, None]
    q, k, v, g = (drawn((4, T, 2, d), i) for i, d in enumerate((16, 16, 32, 32)))

    def run(padding, attend):
        held = [jnp.where(present, x, padding) for x in (g, q, k, v)]
        out, gradients = value_and_gradients(attend, *held)
        return jax.tree.map(lambda x: jnp.where(present, x, 0), (out, gradients))

    fused = run(jnp.nan, lambda *x: mechanism.fused(*x, visibility))
    close(fused, run(0, lambda *x: mechanism.apply({}, *x, visibility)))


def test_sets_of_keys_have_positions_and_lengths_of_their_own():
    """They differ from those of the queries and in each head; each row has a table of its own.

    The queries of the second set, which has few keys, are computed in parts.
    """
    T, S, b, g = 144, 90, 4, 16
    columns = np.array([0, 3, 4, 17, 18, 40, 71, 88, 89])
    F = len(columns)
    blocks = np.random.default_rng(4).integers(-1, 23, (3, 36, 2)).astype(np.int32)
    blocks[..., 1][blocks[..., 0] == blocks[..., 1]] = -1
    blocks[np.abs(blocks - np.arange(36)[None, :, None]) <= 1] = -1
    rows, lengths = jnp.array([T, 71, 0]), jnp.array([[S, 17], [4, 0], [S, S]])
    near = Pattern(
        lambda t, s: abs(t // b - s // b) <= 1,
        np.arange(S),
        ranges(T, g, np.arange(S), lambda x, y: ((x // b - 1) * b, (y // b + 2) * b - 1)),
    )
    far = Pattern(
        lambda t, s: t - s > 9, columns, ranges(T, g, columns, lambda x, y: (0 * x, y - 10))
    )
    of_set = (near, Pattern(lambda t, s: t >= 0 * s, b=b)), (far,)

    def attention(f):
        def run(q, k, v, x, y):
            table = patterns.table(jnp.asarray(blocks), b, g, T, S)
            sets = Keys(k, v, lengths, table), Keys(x, y, jnp.array([S, 70, S]))
            return f(q, rows, sets, of_set, 0.3)

        return run

    shapes = (3, T, 2, 16), (3, S, 2, 16), (3, S, 2, 32), (3, F, 2, 16), (3, F, 2, 32)
    arguments = [drawn(shape, i) for i, shape in enumerate(shapes)]
    g_out = drawn((3, T, 2, 32), 5), drawn((3, 2, T), 6)
    fused, plain = (
        value_and_gradients(attention(f), g_out, *arguments)
        for f in (partial(sparse_attention.sparse_attention, g=g), sparse_attention.plain)
    )
    close(fused, plain)


@pytest.mark.parametrize(
    ("T", "S", "name"),
    [
        (63, 129, "local:w=40"),
        *full((1, 1, "local:w=1"), (200, 64, "local:w=10"), (64, 200, "local:w=500")),
        *full((65, 31, "dilated:w=6,r=3"), (31, 65, "dilated:w=6,r=3")),
    ],
)
def test_a_fused_window_between_two_sequences_equals_the_plain_one(T, S, name):
    lengths = jnp.array([T, T // 2, 0]), jnp.array([S // 2 + 1, S, 0])
    shapes = (3, T, 2, 32), (3, T, 2, 16), (3, S, 2, 16), (3, S, 2, 32)
    g, *arguments = (drawn(shape, i) for i, shape in enumerate(shapes))
    mechanism, visibility = build(name), Visibility(*lengths)
    fused, plain = (
        value_and_gradients(f, g, *arguments)
        for f in (
            lambda *x: mechanism.fused(*x, visibility),
            lambda *x: mechanism.apply({}, *x, visibility),
        )
    )
    close(fused, plain)


def test_blocks_that_no_tile_fits_have_no_kernel():
    q = drawn((1, 30, 2, 16), 0)
    assert build("sparse_random:b=24").fused(q, q, q, Visibility()) is None
    assert [patterns.tile_of(b) for b in (1, 16, 24, 48, 128)] == [16, 16, 0, 16, 64]
