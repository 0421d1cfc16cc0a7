"""Position schemes (section 3.5 and alternatives). `parts.POSITIONS` lists them.

A scheme has any of three functions: `encode` returns what is added to the embeddings, `rotate`
rotates queries and keys, and `bias` returns what is added to the scores.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.mechanism import Bias
from t2t_jax.models.layers import add_bias, parameter
from t2t_jax.ops.dropout import dropout
from t2t_jax.parts import POSITIONS, implementation


class Encoding(nn.Module):
    """Adds the position encoding to embeddings, if the scheme has one, then applies dropout (5.4).

    A learned table has `longest` positions.
    """

    scheme: str
    longest: int
    dtype: Any

    @nn.compact
    def __call__(self, x: Array, P_drop: Array | None = None, t: Array | None = None) -> Array:
        """x [B, T, d_model] at positions 0 .. T-1, or [B, 1, d_model] at position t -> the same."""
        T, d_model = x.shape[1:]
        positions = jnp.arange(T) if t is None else jnp.asarray(t)[None]
        if encode := _function(POSITIONS[self.scheme].encode):
            x = add_bias(x, encode(self, positions, d_model))
        return x if P_drop is None else dropout(x, P_drop, self.make_rng("dropout"))


class PositionBias(nn.Module):
    """What a position scheme adds to the scores of one stack; None if nothing."""

    scheme: str
    h: int
    causal: bool

    @nn.compact
    def __call__(self) -> Bias:
        """A function of distances s - t, int32 [...] -> float32 [h, ...], or None."""
        bias = _function(POSITIONS[self.scheme].bias)
        return bias(self, self.h, self.causal) if bias else None


def rotate(scheme: str, x: Array, first: Array | int = 0) -> Array:
    """x [B, L, h, d_k] at positions first, first + 1, ..., rotated if the scheme rotates."""
    rotation = _function(POSITIONS[scheme].rotate)
    return rotation(x, first + jnp.arange(x.shape[1])) if rotation else x


def _function(name: str) -> Callable[..., Any] | None:
    return implementation(name, __name__) if name else None


def sinusoid(module: Any, positions: Array, d_model: int) -> Array:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d_model)), PE[pos, 2i+1] = cos of the same (section 3.5).

    Float32 [T, d_model] for positions [T].
    """
    exponent = 2 * jnp.arange(d_model // 2, dtype=jnp.float32) / d_model
    angles = positions[:, None].astype(jnp.float32) * (10000.0**-exponent)[None, :]
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(-1, d_model)


def sinusoid_halves(module: nn.Module, positions: Array, d_model: int) -> Array:
    """tensor2tensor's sinusoids: all sines, then all cosines, float32 [T, d_model].

    The wavelengths are spaced over d_model/2 - 1 steps, so that the last reaches 10000 · 2 pi.
    """
    half = d_model // 2
    exponent = jnp.arange(half, dtype=jnp.float32) / max(half - 1, 1)
    angles = positions[:, None].astype(jnp.float32) * (10000.0**-exponent)[None, :]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def learned(module: Encoding, positions: Array, d_model: int) -> Array:
    """Rows of a learned table (Table 3, row E), float32 [T, d_model]; ValueError if it has too few.

    The paper does not give the initial values. Here, they have the variance of sinusoids, 1/2, so
    that row E changes whether positions are learned, and not their share of the input: with smaller
    initial values, a short training would spend its steps on making the table larger.
    """
    if module.longest < len(positions):
        raise ValueError(
            f"the sequence has {len(positions)} positions, and the learned table only "
            f"{module.longest}: raise max_length or choose other positions."
        )
    shape, axes = (module.longest, d_model), ("position", "d_model")
    init = nn.initializers.normal(0.5**0.5)
    table = parameter(module, "table", shape, axes, init, jnp.float32)
    return jnp.take(table, positions, axis=0)


def rotary(x: Array, positions: Array) -> Array:
    """x [B, L, h, d] with each pair of features rotated by its position.

    This is RoPE (Su et al. 2021, equation 15). The angle of the pair 2i, 2i + 1 is
    pos / 10000^(2i/d), so that the product of two vectors depends only on the distance between
    their positions [L].
    """
    encoding = sinusoid(None, positions, x.shape[-1])
    sine, cosine = (encoding[:, i::2].astype(x.dtype)[None, :, None] for i in (0, 1))
    even, odd = x[..., ::2], x[..., 1::2]
    rotated = even * cosine - odd * sine, even * sine + odd * cosine
    return jnp.stack(rotated, axis=-1).reshape(x.shape)


def relative(module: nn.Module, h: int, causal: bool) -> Bias:
    """T5's learned bias for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    T5 adds it to products that are not divided by sqrt(d_k); here, the mechanism says how they are
    scaled.
    """
    init = nn.initializers.normal(0.1)
    table = parameter(module, "table", (h, BUCKETS), ("heads", "bucket"), init, jnp.float32)
    return lambda distance: jnp.take(table, bucket(distance, causal), axis=1)


def alibi(module: nn.Module, h: int, causal: bool) -> Bias:
    """-m_i |s - t| with the slope m_i = 2^(-8 i / h) of head i = 1 .. h.

    Press et al. (2022), section 3. Their code has other slopes where h is not a power of 2. They
    define the bias for causal attention; an encoder has the same on both sides.
    """
    slopes = 2.0 ** (-8 * jnp.arange(1, h + 1) / h)

    def bias(distance: Array) -> Array:
        return -slopes.reshape(-1, *(1,) * distance.ndim) * jnp.abs(distance)[None]

    return bias


BUCKETS, FARTHEST = 32, 128  # T5's


def bucket(distance: Array, causal: bool) -> Array:
    """The number of the bucket, from 0 to 31, of each distance s - t (Raffel et al. 2020, T5).

    Half of the buckets hold one distance each. The others hold ranges that grow logarithmically, up
    to a distance of 128; all greater distances are in the last. Unless causal, past and future have
    16 buckets each.
    """
    size = BUCKETS if causal else BUCKETS // 2
    far = jnp.maximum(-distance, 0) if causal else jnp.abs(distance)
    exact = size // 2
    growth = jnp.log(jnp.maximum(far, 1) / exact) / jnp.log(FARTHEST / exact)
    logarithmic = exact + (growth * (size - exact)).astype(jnp.int32)
    index = jnp.where(far < exact, far, jnp.minimum(logarithmic, size - 1))
    return index if causal else index + jnp.where(distance > 0, size, 0)
