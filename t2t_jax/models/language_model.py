"""Decoder-only and encoder-only language models of the target. See `t2t_jax.models`.

The decoder of Figure 1 without the encoder predicts the next token (causal). The encoder without
the decoder predicts masked tokens from both sides (Devlin et al. 2019). Neither sees the source.

Departures from Devlin et al.: every chosen token is replaced by the mask, never by itself or a
random token; sentences stand alone, without segments and without the prediction of the next one.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, lengths_of
from t2t_jax.models.positions import Encoding, PositionBias
from t2t_jax.models.transformer import FinalNorm, Layer
from t2t_jax.tokens import EOS


class LanguageModel(Model):
    """N layers of one stack, encoder or decoder as `c.architecture` says."""

    def setup(self) -> None:
        c, role = self.c, self.c.architecture
        self.embedding = Embedding(self.V, c, self.dtype)
        self.positions = Encoding(c.positions, self.longest, self.dtype)
        self.layers = [Layer(c, role, self.dtype, i, name=f"{role}_{i}") for i in range(c.N)]
        self.bias = PositionBias(c.positions, c.h, causal=not self.masked)
        self.norm = FinalNorm(c, self.dtype)

    def encode(self, source: Array, P_drop: Array | None = None) -> None:
        """None: a language model does not read the source."""

    def start(self, tokens: Array, capacity: int) -> tuple[None, list[Any]]:
        x = self.embedding(tokens)
        return None, [layer.attention.start_self(x, capacity) for layer in self.layers]

    def step(self, memory: None, state: Any, tokens: Array, t: Array) -> tuple[Array, Any]:
        x = self.positions(self.embedding(tokens[:, None]), t=t)  # one position: [B, 1, d_model]
        next_state, bias = [], self.bias()
        for layer, own in zip(self.layers, state, strict=True):
            x, own = layer.step(x, None, own, t, bias)
            next_state.append(own)
        return self.embedding.logits(self.norm(x))[:, 0], next_state

    def features(self, encoded: None, tokens: Array, P_drop: Array | None = None) -> Array:
        lengths, bias = lengths_of(tokens), self.bias()
        x = self.positions(self.embedding(tokens), P_drop)
        first = document_starts(tokens) if self.c.document_attention == "within" else None
        visibility = Visibility(lengths, lengths, not self.masked, first)
        for layer in self.layers:
            x = layer(x, visibility, P_drop, bias)
        return self.norm(x)


def document_starts(tokens: Array) -> Array:
    """For each input token [B, T] the position where its document begins, int32 [B, T].

    An EOS is the input from which the first token of the next document is predicted.
    """
    t = jnp.arange(tokens.shape[1])[None]
    return jax.lax.cummax(jnp.where(tokens == EOS, t, 0), axis=1)
