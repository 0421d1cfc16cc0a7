"""Convolutional sequence to sequence, ConvS2S (Gehring et al. 2017). See `t2t_jax.models`.

Each block is a convolution, gated linear units and a residual connection; every block of the
decoder attends to the source. Kernels may be dilated, as in ByteNet (Kalchbrenner et al. 2016).

Departures from the paper, so that all architectures are trained alike: Adam in place of Nesterov's
momentum, without weight normalization and without scaling the gradients of the encoder; one
embedding for source, target and softmax, as wide as the blocks.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from t2t_jax.attention import build
from t2t_jax.attention.choice import of_layer
from t2t_jax.attention.mechanism import State
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, add_bias, lengths_of, parameter
from t2t_jax.models.positions import Encoding

SQRT_HALF = 0.5**0.5  # keeps the variance of a sum of two terms


@struct.dataclass
class Encoded:
    """The last block's output, its sum with the embedding, [B, S, d_model]; lengths int32 [B]."""

    keys: Array
    values: Array
    lengths: Array


class Convolutional(Model):
    """Encoder and decoder of N blocks of width d_model."""

    def setup(self) -> None:
        c, d = self.c, self.c.d_model

        def stack(name: str) -> list[Convolution]:
            return [
                Convolution(d, c.kernel, c.dilation**i, self.dtype, name=f"{name}_{i}")
                for i in range(c.N)
            ]

        self.embedding = Embedding(self.V, self.c, self.dtype)
        self.source_positions = Encoding(c.positions, self.longest, self.dtype)
        self.target_positions = Encoding(c.positions, self.longest, self.dtype)
        self.encoder, self.decoder = stack("encoder"), stack("decoder")
        self.attention = [
            Attention(d, of_layer(c.cross_attention, i), self.dtype, name=f"attention_{i}")
            for i in range(c.N)
        ]

    def encode(self, source: Array, P_drop: Array | None = None) -> Encoded:
        n = lengths_of(source)
        present = length_mask(n, source.shape[1])[:, :, None]
        embedded = x = self._embed(self.source_positions, source, P_drop)
        for convolution in self.encoder:
            # Padding is zero, as are the positions outside the array.
            y = convolution(self.drop(jnp.where(present, x, 0), P_drop), causal=False)
            x = (x + y) * SQRT_HALF
        return Encoded(x, (x + embedded) * SQRT_HALF, n)

    def features(self, encoded: Encoded, target_in: Array, P_drop: Array | None = None) -> Array:
        visibility = Visibility(lengths_of(target_in), encoded.lengths)
        embedded = x = self._embed(self.target_positions, target_in, P_drop)
        for convolution, attention in zip(self.decoder, self.attention, strict=True):
            y = convolution(self.drop(x, P_drop), causal=True)
            y = (y + attention(y, embedded, encoded, visibility)) * SQRT_HALF
            x = (x + y) * SQRT_HALF
        return self.drop(x, P_drop)

    def start(self, encoded: Encoded, capacity: int) -> tuple[Any, Any]:
        """The source as each attention needs it, and the past inputs that each kernel reads."""
        B, _, d = encoded.keys.shape
        memory = [attention.start(encoded) for attention in self.attention]
        return memory, [jnp.zeros((B, c.reach, d), self.dtype) for c in self.decoder]

    def step(self, memory: Any, state: Any, tokens: Array, t: Array) -> tuple[Array, Any]:
        embedded = x = self._embed(self.target_positions, tokens[:, None], t=t)
        next_state = []
        for i, convolution in enumerate(self.decoder):
            seen = jnp.concatenate([state[i], x], axis=1)
            y = convolution.over(seen)
            y = (y + self.attention[i].step(memory[i], y, embedded, t)) * SQRT_HALF
            x = (x + y) * SQRT_HALF
            next_state.append(seen[:, 1:])
        return self.embedding.logits(x)[:, 0], next_state

    def _embed(
        self,
        positions: Encoding,
        tokens: Array,
        P_drop: Array | None = None,
        t: Array | None = None,
    ) -> Array:
        # In the paper, the dot products of attention and of the softmax are unscaled:
        # vectors of norm 1 or so let both start small.
        x = positions(self.embedding(tokens), P_drop, t)
        return x * jnp.asarray(self.c.d_model**-0.5, x.dtype)


class Convolution(nn.Module):
    """A * sigmoid(G), where A and G are the two halves of a convolution with dilation `gap`."""

    d_model: int
    kernel: int
    gap: int
    dtype: Any

    @property
    def reach(self) -> int:
        """Positions between the first tap and the last."""
        return (self.kernel - 1) * self.gap

    def setup(self) -> None:
        d = self.d_model
        init = nn.initializers.variance_scaling(4, "fan_in", "normal", (0, 1), 3, 2)
        axes = ("kernel", "d_hidden", "gates", "d_model")
        self.W = parameter(self, "W", (self.kernel, d, 2, d), axes, init, self.dtype)
        self.b = parameter(self, "b", (2, d), axes[2:], nn.initializers.zeros, jnp.float32)

    def __call__(self, x: Array, causal: bool) -> Array:
        """x [B, L, d_model] -> the same; causal: position t reads positions up to t."""
        before = self.reach if causal else self.reach // 2
        return self.over(jnp.pad(x, ((0, 0), (before, self.reach - before), (0, 0))))

    def over(self, x: Array) -> Array:
        """x [B, reach + L, d_model] -> [B, L, d_model], without padding."""
        L = x.shape[1] - self.reach
        y = self.b[None, None]
        for tap in range(self.kernel):
            first = tap * self.gap
            y = y + jnp.einsum("bld,dge->blge", x[:, first : first + L], self.W[tap])
        return (y[:, :, 0] * jax.nn.sigmoid(y[:, :, 1])).astype(x.dtype)


class Attention(nn.Module):
    """One head over the encoder's output; the query is a block's output plus the embedding."""

    d_model: int
    mechanism: str
    dtype: Any

    def setup(self) -> None:
        d, axes = self.d_model, ("d_hidden", "d_model")
        glorot, zeros = nn.initializers.glorot_uniform(), nn.initializers.zeros
        self.W_Q = parameter(self, "W_Q", (d, d), axes, glorot, self.dtype)
        self.b_Q = parameter(self, "b_Q", (d,), axes[1:], zeros, jnp.float32)
        self.W_O = parameter(self, "W_O", (d, d), axes, glorot, self.dtype)
        self.b_O = parameter(self, "b_O", (d,), axes[1:], zeros, jnp.float32)
        self.attention = build(self.mechanism)

    def __call__(
        self, y: Array, embedded: Array, encoded: Encoded, visibility: Visibility
    ) -> Array:
        """The output y of a block and the embeddings, both [B, T, d_model] -> the same."""
        k, v = encoded.keys[:, :, None], encoded.values[:, :, None]
        out = self.attention(self._query(y, embedded), k, v, visibility)
        return self._merge(out, encoded.lengths)

    def start(self, encoded: Encoded) -> State:
        k, v = encoded.keys[:, :, None], encoded.values[:, :, None]
        known = self.attention.start(k, v, Visibility(kv_lengths=encoded.lengths))
        return {"source": known, "lengths": encoded.lengths}

    def step(self, memory: State, y: Array, embedded: Array, t: Array) -> Array:
        out, _ = self.attention.step(memory["source"], self._query(y, embedded), t)
        return self._merge(out, memory["lengths"])

    def _query(self, y: Array, embedded: Array) -> Array:
        q = add_bias(jnp.einsum("btd,de->bte", y, self.W_Q), self.b_Q)
        return ((q + embedded) * SQRT_HALF)[:, :, None]

    def _merge(self, out: Array, n: Array) -> Array:
        # A mean over n values has a variance n times smaller (section 3.4 of the paper).
        scale = jnp.sqrt(n).astype(out.dtype)[:, None, None]
        return add_bias(jnp.einsum("btd,de->bte", out[:, :, 0] * scale, self.W_O), self.b_O)
