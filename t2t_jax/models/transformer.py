"""The Transformer (Figure 1). See `t2t_jax.models` for the interface."""

from typing import Any

import flax.linen as nn
import jax
from flax import struct

from t2t_jax import config
from t2t_jax.attention.mechanism import Bias
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.feed_forward import FeedForward
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import AddNorm, Embedding, FinalNorm, lengths_of
from t2t_jax.models.multihead import MultiHead
from t2t_jax.models.parametrization import logit_multiplier
from t2t_jax.models.positions import Encoding, PositionBias


@struct.dataclass
class Encoded:
    """The output of the encoder [B, S, d_model] and the source lengths int32 [B]."""

    output: jax.Array
    lengths: jax.Array


class Transformer(Model):
    """Encoder and decoder of Figure 1."""

    def setup(self) -> None:
        c, N = self.c, self.c.N
        multiplier = logit_multiplier(c)
        self.embedding = Embedding(self.V, c.d_model, self.dtype, multiplier=multiplier)
        self.source_positions = Encoding(c.positions, self.longest, self.dtype)
        self.target_positions = Encoding(c.positions, self.longest, self.dtype)
        self.encoder = [Layer(c, "encoder", self.dtype, i, name=f"encoder_{i}") for i in range(N)]
        self.decoder = [DecoderLayer(c, self.dtype, i, name=f"decoder_{i}") for i in range(N)]
        self.encoder_bias = PositionBias(c.positions, c.h, causal=False)
        self.decoder_bias = PositionBias(c.positions, c.h, causal=True)
        self.encoder_norm = FinalNorm(c.norm_placement, c.norm, self.dtype)
        self.decoder_norm = FinalNorm(c.norm_placement, c.norm, self.dtype)

    def encode(self, source: jax.Array, P_drop: jax.Array | None = None) -> Encoded:
        lengths = lengths_of(source)
        x = self.source_positions(self.embedding(source), P_drop)
        visibility, bias = Visibility(lengths, lengths), self.encoder_bias()
        for layer in self.encoder:
            x = layer(x, visibility, P_drop, bias)
        return Encoded(self.encoder_norm(x), lengths)

    def features(
        self, encoded: Encoded, target_in: jax.Array, P_drop: jax.Array | None = None
    ) -> jax.Array:
        lengths = lengths_of(target_in)
        x = self.target_positions(self.embedding(target_in), P_drop)
        own = Visibility(lengths, lengths, causal=True)
        cross = Visibility(lengths, encoded.lengths)
        bias = self.decoder_bias()
        for layer in self.decoder:
            x = layer(x, encoded.output, own, cross, P_drop, bias)
        return self.decoder_norm(x)

    def start(self, encoded: Encoded, capacity: int) -> tuple[Any, Any]:
        source = Visibility(kv_lengths=encoded.lengths)
        memory = [layer.start_cross(encoded.output, source) for layer in self.decoder]
        state = [layer.start_self(encoded.output, capacity) for layer in self.decoder]
        return memory, state

    def step(
        self, memory: Any, state: Any, tokens: jax.Array, t: jax.Array
    ) -> tuple[jax.Array, Any]:
        x = self.target_positions(self.embedding(tokens[:, None]), t=t)
        next_state, bias = [], self.decoder_bias()
        for layer, cross, own in zip(self.decoder, memory, state, strict=True):
            x, own = layer.step(x, cross, own, t, bias)
            next_state.append(own)
        return self.embedding.logits(self.decoder_norm(x))[:, 0], next_state


class Layer(nn.Module):
    """Figure 1, left block; with the role of the decoder, its right block without an encoder."""

    c: config.Model
    role: str
    dtype: Any
    layer: int = 0

    def setup(self) -> None:
        c = self.c
        self.attention = MultiHead(c, self.role, self.dtype, self.layer)
        self.feed_forward = FeedForward(c.feed_forward, c.d_ff, c.P_drop_ff, self.dtype)
        self.add_norm_attention = AddNorm(c.norm_placement, c.norm, self.dtype)
        self.add_norm_feed_forward = AddNorm(c.norm_placement, c.norm, self.dtype)

    def __call__(
        self, x: jax.Array, visibility: Visibility, P_drop: jax.Array | None, bias: Bias = None
    ) -> jax.Array:
        train = P_drop is not None
        x = self.add_norm_attention(
            x, lambda y: self.attention(y, y, visibility, train, bias), P_drop
        )
        x = self.add_norm_feed_forward(x, lambda y: self.feed_forward(y, train), P_drop)
        return nn.with_logical_constraint(x, ("batch", "length", "d_model"))


class DecoderLayer(nn.Module):
    """Figure 1, right block."""

    c: config.Model
    dtype: Any
    layer: int = 0

    def setup(self) -> None:
        c = self.c
        self.attention = MultiHead(c, "decoder", self.dtype, self.layer)
        self.cross_attention = MultiHead(c, "cross", self.dtype, self.layer)
        self.feed_forward = FeedForward(c.feed_forward, c.d_ff, c.P_drop_ff, self.dtype)
        self.add_norm_attention = AddNorm(c.norm_placement, c.norm, self.dtype)
        self.add_norm_cross = AddNorm(c.norm_placement, c.norm, self.dtype)
        self.add_norm_feed_forward = AddNorm(c.norm_placement, c.norm, self.dtype)

    def __call__(
        self,
        x: jax.Array,
        encoded: jax.Array,
        own: Visibility,
        cross: Visibility,
        P_drop: jax.Array | None,
        bias: Bias = None,
    ) -> jax.Array:
        train = P_drop is not None
        x = self.add_norm_attention(x, lambda y: self.attention(y, y, own, train, bias), P_drop)
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, encoded, cross, train), P_drop)
        x = self.add_norm_feed_forward(x, lambda y: self.feed_forward(y, train), P_drop)
        return nn.with_logical_constraint(x, ("batch", "length", "d_model"))

    def start_cross(self, encoded: jax.Array, source: Visibility) -> Any:
        return self.cross_attention.start_cross(encoded, source)

    def start_self(self, encoded: jax.Array, capacity: int) -> Any:
        return self.attention.start_self(encoded, capacity)

    def step(
        self, x: jax.Array, memory: Any, state: Any, t: jax.Array, bias: Bias = None
    ) -> tuple[jax.Array, Any]:
        """One position: x [B, 1, d_model] -> the same, and the state after it."""
        next_state = state

        def attend(y: jax.Array) -> jax.Array:
            nonlocal next_state
            out, next_state = self.attention.step_self(state, y, t, bias)
            return out

        x = self.add_norm_attention(x, attend, None)
        x = self.add_norm_cross(x, lambda y: self.cross_attention.step_cross(memory, y, t), None)
        x = self.add_norm_feed_forward(x, lambda y: self.feed_forward(y, False), None)
        return x, next_state
