"""One stack of Figure 1 alone, as a language model of the target. See `t2t_jax.models`.

The decoder without its encoder tells the next token (causal); the encoder without a decoder tells
tokens that are masked, from both sides (Devlin et al. 2019). Neither sees the source.
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.layers import Embedding, LayerNorm, Positions, RelativeBias, lengths_of
from t2t_jax.models.transformer import Layer


class Alone(nn.Module):
    """N layers over V subwords; attributes as of `Transformer`."""

    c: config.Model
    V: int
    longest: int
    dtype: Any = jnp.float32

    translates = False

    @property
    def masked(self) -> bool:
        return self.c.architecture == "encoder"

    @property
    def limit(self) -> int | None:
        return self.longest if self.c.positions == "learned" else None

    def setup(self) -> None:
        c, role = self.c, self.c.architecture
        self.embedding = Embedding(self.V, c.d_model, self.dtype)
        self.positions = Positions(c.positions, self.longest, self.dtype)
        self.layers = [Layer(c, role, self.dtype, name=f"{role}_{i}") for i in range(c.N)]
        if c.positions == "relative":
            self.bias = RelativeBias(c.h, causal=not self.masked)
        if c.norm == "pre":
            self.norm = LayerNorm(self.dtype)

    def encode(self, source: Array, P_drop: Array | None = None) -> None:
        """Nothing of the source is known."""

    def decode(self, encoded: None, tokens: Array, P_drop: Array | None = None) -> Array:
        n = lengths_of(tokens)
        x = self.positions(self.embedding(tokens), P_drop)
        bias = self.bias() if self.c.positions == "relative" else None
        for layer in self.layers:
            x = layer(x, Visibility(n, n, causal=not self.masked), P_drop, bias)
        return self.embedding.logits(self.norm(x) if self.c.norm == "pre" else x)

    def __call__(self, source: Array, tokens: Array) -> Array:
        """Touches every parameter: for initialisation."""
        return self.decode(None, tokens)
