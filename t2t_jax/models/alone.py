"""One stack of Figure 1 alone, as a language model of the target. See `t2t_jax.models`.

The decoder without its encoder tells the next token (causal); the encoder without a decoder tells
tokens that are masked, from both sides (Devlin et al. 2019). Neither sees the source.
"""

from jax import Array

from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, LayerNorm, Positions, RelativeBias, lengths_of
from t2t_jax.models.transformer import Layer


class Alone(Model):
    """N layers of either stack."""

    translates = False

    @property
    def masked(self) -> bool:  # type: ignore[override]
        return self.c.architecture == "encoder"

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
