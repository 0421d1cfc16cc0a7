"""Parts of a layer: Add & Norm, feed-forward (section 3.3), embedding (3.4)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.models.dropout import dropout
from t2t_jax.models.positions import BUCKETS, bucket, encode_positions
from t2t_jax.models.product import product
from t2t_jax.tokens import PAD

EPSILON = 1e-6  # of layer norm


def parameter(
    module: nn.Module,
    name: str,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    init: Callable[..., jax.Array],
    dtype: Any,
) -> jax.Array:
    """A float32 parameter whose logical axes the sharding rules know, cast to dtype.

    What is stored in parts along d_model is gathered here, where it is used. The cast comes before
    the use, so a parameter whose gradient is a sum of many terms (a bias, an embedding) stays
    float32: in bfloat16 a sum stops growing at 256 times its terms.
    """
    weight = module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32)
    used = tuple(None if axis == "d_model" else axis for axis in axes)
    return nn.with_logical_constraint(jnp.asarray(weight, dtype), used)


def add_bias(y: jax.Array, b: jax.Array) -> jax.Array:
    """y [..., *b.shape] + b in y's type; the gradient of b, float32, is summed in float32."""
    return (y + b.reshape((1,) * (y.ndim - b.ndim) + b.shape)).astype(y.dtype)


def lengths_of(tokens: jax.Array) -> jax.Array:
    """int32 [B]: the tokens before the padding of int32 [B, L]."""
    return (tokens != PAD).sum(axis=-1, dtype=jnp.int32)


class AddNorm(nn.Module):
    """Residual connection and layer norm around a sub-layer.

    post (the paper, section 3.1): LayerNorm(x + Dropout(f(x))).  pre: x + Dropout(f(LayerNorm(x))).
    """

    norm: str
    dtype: Any

    @nn.compact
    def __call__(
        self, x: jax.Array, f: Callable[[jax.Array], jax.Array], P_drop: jax.Array | None
    ) -> jax.Array:
        layer_norm = LayerNorm(self.dtype, name="layer_norm")
        y = f(layer_norm(x) if self.norm == "pre" else x)
        if P_drop is not None:
            y = dropout(y, P_drop, self.make_rng("dropout"))
        return x + y if self.norm == "pre" else layer_norm(x + y)


class LayerNorm(nn.Module):
    """Flax's layer norm with its logical axis named."""

    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.LayerNorm(
            epsilon=EPSILON,
            dtype=self.dtype,
            scale_init=nn.with_logical_partitioning(nn.initializers.ones, ("d_model",)),
            bias_init=nn.with_logical_partitioning(nn.initializers.zeros, ("d_model",)),
            name="affine",
        )(x)


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    d_ff: int
    P_drop_ff: float
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        d_model, d_ff = x.shape[-1], self.d_ff
        glorot, zeros = nn.initializers.glorot_uniform(), nn.initializers.zeros
        W_1 = parameter(self, "W_1", (d_model, d_ff), ("d_model", "d_ff"), glorot, self.dtype)
        b_1 = parameter(self, "b_1", (d_ff,), ("d_ff",), zeros, jnp.float32)
        W_2 = parameter(self, "W_2", (d_ff, d_model), ("d_ff", "d_model"), glorot, self.dtype)
        b_2 = parameter(self, "b_2", (d_model,), ("d_model",), zeros, jnp.float32)
        hidden = jax.nn.relu(add_bias(product(x, W_1), b_1))
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "d_ff"))
        if train and self.P_drop_ff:
            hidden = dropout(hidden, self.P_drop_ff, self.make_rng("dropout"))
        return add_bias(product(hidden, W_2), b_2)


class Embedding(nn.Module):
    """One matrix [V, d_model] for both embeddings and for the softmax.

    Attributes:
      scaled: whether embeddings are multiplied by sqrt(d_model) (section 3.4).
    """

    V: int
    d_model: int
    dtype: Any
    scaled: bool = True

    def setup(self) -> None:
        init = nn.initializers.normal(self.d_model**-0.5)
        shape, axes = (self.V, self.d_model), ("vocabulary", "d_model")
        self.matrix = parameter(self, "matrix", shape, axes, init, jnp.float32)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """[...] int32 -> [..., d_model]."""
        x = jnp.take(self.matrix, tokens, axis=0).astype(self.dtype)
        return x * jnp.sqrt(self.d_model).astype(self.dtype) if self.scaled else x

    def logits(self, x: jax.Array) -> jax.Array:
        """[B, T, d_model] -> float32 [B, T, V]."""
        z = product(x, self.matrix.astype(self.dtype).T, wide=jnp.float32)
        return nn.with_logical_constraint(z, ("batch", "length", "vocabulary"))


class Positions(nn.Module):
    """Adds the position encoding to embeddings, then dropout (section 3.5 and 5.4).

    Raises at trace time if a learned table is shorter than the sequence.
    """

    kind: str
    longest: int
    dtype: Any

    @nn.compact
    def __call__(
        self, x: jax.Array, P_drop: jax.Array | None = None, at: jax.Array | None = None
    ) -> jax.Array:
        """x [B, T, d_model] at positions 0..T-1, or [B, 1, d_model] at position `at`."""
        T, d_model = x.shape[1:]
        positions = jnp.arange(T) if at is None else jnp.asarray(at)[None]
        if self.kind in ("rotary", "relative"):  # where queries meet keys, not here
            encoded = jnp.zeros((1, 1))
        elif self.kind == "learned":
            if self.longest < T:
                raise ValueError(f"{T} positions, but only {self.longest} are learned.")
            shape, axes = (self.longest, d_model), ("position", "d_model")
            init = nn.initializers.normal(d_model**-0.5)
            table = parameter(self, "table", shape, axes, init, jnp.float32)
            encoded = jnp.take(table, positions, axis=0)
        else:
            encoded = encode_positions(positions, d_model, self.kind)
        x = add_bias(x, encoded)
        return x if P_drop is None else dropout(x, P_drop, self.make_rng("dropout"))


class RelativeBias(nn.Module):
    """T5's learned bias of attention scores, one for each head and bucket of distances."""

    h: int
    causal: bool

    @nn.compact
    def __call__(self) -> Callable[[jax.Array], jax.Array]:
        """A function of distances s - t, int32 [...] -> float32 [h, ...]."""
        init = nn.initializers.normal(0.1)
        table = parameter(self, "table", (self.h, BUCKETS), ("heads", "bucket"), init, jnp.float32)
        return lambda distance: jnp.take(table, bucket(distance, self.causal), axis=1)
