"""The Transformer (Figure 1). See `t2t_jax.models` for the interface."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn
from flax import struct
from jax import Array

from t2t_jax import config
from t2t_jax.attention.mechanism import Bias
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.interface import Model
from t2t_jax.models.latent import Latent
from t2t_jax.models.layers import Embedding, lengths_of
from t2t_jax.models.multihead import MultiHead
from t2t_jax.models.norms import norm
from t2t_jax.models.positions import Encoding, PositionBias
from t2t_jax.parts import FEED_FORWARD, NORM_PLACEMENTS, implementation

Sublayer = Callable[[Array], Array]
Sublayers = Mapping[str, Sublayer]


@struct.dataclass
class Encoded:
    """The output of the encoder [B, S, d_model] and the source lengths int32 [B]."""

    output: Array
    lengths: Array


class Transformer(Model):
    """Encoder and decoder of Figure 1."""

    def setup(self) -> None:
        c, N = self.c, self.c.N
        self.embedding = Embedding(self.V, c, self.dtype)  # of both languages
        self.source_positions = Encoding(c.positions, self.longest, self.dtype)
        self.target_positions = Encoding(c.positions, self.longest, self.dtype)
        # Layers are named, as checkpoints must not depend on the order of their construction.
        self.encoder = [Layer(c, "encoder", self.dtype, i, name=f"encoder_{i}") for i in range(N)]
        self.decoder = [
            Layer(c, "decoder", self.dtype, i, cross=True, name=f"decoder_{i}") for i in range(N)
        ]
        self.encoder_bias = PositionBias(c.positions, c.h, causal=False)
        self.decoder_bias = PositionBias(c.positions, c.h, causal=True)
        self.encoder_norm = FinalNorm(c, self.dtype)
        self.decoder_norm = FinalNorm(c, self.dtype)

    def encode(self, source: Array, P_drop: Array | None = None) -> Encoded:
        lengths = lengths_of(source)
        x = self.source_positions(self.embedding(source), P_drop)
        visibility, bias = Visibility(lengths, lengths), self.encoder_bias()
        for layer in self.encoder:
            x = layer(x, visibility, P_drop, bias)
        return Encoded(self.encoder_norm(x), lengths)

    def features(self, encoded: Encoded, target_in: Array, P_drop: Array | None = None) -> Array:
        lengths = lengths_of(target_in)
        x = self.target_positions(self.embedding(target_in), P_drop)
        visibility, bias = Visibility(lengths, lengths, causal=True), self.decoder_bias()
        for layer in self.decoder:
            x = layer(x, visibility, P_drop, bias, encoded)
        return self.decoder_norm(x)

    def start(self, encoded: Encoded, capacity: int) -> tuple[Any, Any]:
        source = Visibility(kv_lengths=encoded.lengths)
        # The source does not change: its keys and values are computed once for all steps.
        memory = [
            layer.cross_attention.start_cross(encoded.output, source) for layer in self.decoder
        ]
        state = [layer.attention.start_self(encoded.output, capacity) for layer in self.decoder]
        return memory, state

    def step(self, memory: Any, state: Any, tokens: Array, t: Array) -> tuple[Array, Any]:
        x = self.target_positions(self.embedding(tokens[:, None]), t=t)  # one position: [B, 1, d]
        next_state, bias = [], self.decoder_bias()
        for layer, cross, own in zip(self.decoder, memory, state, strict=True):
            x, own = layer.step(x, cross, own, t, bias)
            next_state.append(own)
        return self.embedding.logits(self.decoder_norm(x))[:, 0], next_state


class Layer(nn.Module):
    """A layer of Figure 1."""

    c: config.Model
    role: str  # of its self-attention, encoder or decoder
    dtype: Any
    layer: int = 0  # its index
    cross: bool = False  # whether it attends to the encoder, which a language model lacks

    def setup(self) -> None:
        heads = Latent if self.c.d_c else MultiHead
        self.attention = heads(self.c, self.role, self.dtype, self.layer)
        if self.cross:
            self.cross_attention = heads(self.c, "cross", self.dtype, self.layer)
        where = FEED_FORWARD[self.c.feed_forward].where  # a module such as `FeedForward`
        self.feed_forward = implementation(where, "t2t_jax.models")(self.c, self.dtype)

    def __call__(
        self,
        x: Array,
        visibility: Visibility,
        P_drop: Array | None,
        bias: Bias = None,
        encoded: Encoded | None = None,
    ) -> Array:
        """All positions: x [B, L, d_model] -> the same."""
        train = P_drop is not None
        attentions = {"attention": lambda y: self.attention(y, y, visibility, train, bias)}
        if encoded is not None:
            source = Visibility(visibility.q_lengths, encoded.lengths)
            attentions["cross"] = lambda y: self.cross_attention(y, encoded.output, source, train)
        x = self.flow(x, attentions, P_drop, visibility.q_lengths)
        return nn.with_logical_constraint(x, ("batch", "length", "d_model"))

    def step(
        self, x: Array, memory: Any, state: Any, t: Array, bias: Bias = None
    ) -> tuple[Array, Any]:
        """Position t: x [B, 1, d_model] -> the same, and the state after it."""
        next_state = state  # of the self-attention, which the flow calls without knowing the state

        def attend(y: Array) -> Array:
            nonlocal next_state
            out, next_state = self.attention.step_self(state, y, t, bias)
            return out

        attentions: dict[str, Sublayer] = {"attention": attend}
        if self.cross:
            attentions["cross"] = partial(self.cross_attention.step_cross, memory, t=t)
        return self.flow(x, attentions), next_state

    @nn.compact
    def flow(
        self,
        x: Array,
        attentions: Sublayers,
        P_drop: Array | None = None,
        lengths: Array | None = None,
    ) -> Array:
        """The attentions and the feed-forward layer, in the flow that `norm_placement` names."""

        def transform(y: Array) -> Array:
            return self.feed_forward(y, P_drop is not None, lengths)

        flow = implementation(NORM_PLACEMENTS[self.c.norm_placement].where, "t2t_jax.models")
        return flow(self, x, {**attentions, "feed_forward": transform}, P_drop)

    def add_norm(self, name: str) -> "AddNorm":
        """The norm and the dropout of Add & Norm; parameters are at add_norm_NAME."""
        return AddNorm(self.c.norm, self.dtype, name=f"add_norm_{name}")


class AddNorm(nn.Module):
    """A norm, and the dropout of what is added to the residual stream (section 5.4)."""

    kind: str
    dtype: Any
    drop = Model.drop

    def setup(self) -> None:
        self.norm = norm(self.kind, self.dtype)


def post(layer: Layer, x: Array, sublayers: Sublayers, P_drop: Array | None) -> Array:
    """Norm(x + Dropout(f(x))) for each sub-layer f in turn (section 3.1).

    Args:
      layer: the module in whose scope the norms are; it may also create other modules.
      x: [B, L, d_model].
      sublayers: functions [B, L, d_model] -> the same, in the order of Figure 1: `attention`, in a
        decoder `cross`, `feed_forward`. Each must be called once.
      P_drop: the rate of dropout in training; None in evaluation.
    """
    for name, f in sublayers.items():
        add_norm = layer.add_norm(name)
        x = add_norm.norm(x + add_norm.drop(f(x), P_drop))
    return x


def pre(layer: Layer, x: Array, sublayers: Sublayers, P_drop: Array | None) -> Array:
    """x + Dropout(f(Norm(x))) for each sub-layer f in turn; see `post` for the arguments."""
    for name, f in sublayers.items():
        add_norm = layer.add_norm(name)
        x = x + add_norm.drop(f(add_norm.norm(x)), P_drop)
    return x


def parallel(layer: Layer, x: Array, sublayers: Sublayers, P_drop: Array | None) -> Array:
    """x + the sum of Dropout(f(Norm(x))) over all sub-layers f, with one norm (PaLM, section 2)."""
    add_norm = layer.add_norm("parallel")
    y = add_norm.norm(x)
    for f in sublayers.values():
        x = x + add_norm.drop(f(y), P_drop)
    return x


class FinalNorm(nn.Module):
    """The norm after the last layer, if the residual stream is not normalised."""

    c: config.Model
    dtype: Any

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if not NORM_PLACEMENTS[self.c.norm_placement].final_norm:
            return x
        return norm(self.c.norm, self.dtype, name="norm")(x)
