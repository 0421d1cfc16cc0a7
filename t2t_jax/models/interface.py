"""The base class of every model of `t2t_jax.models`."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.ops.cross_entropy import supported
from t2t_jax.ops.dropout import dropout
from t2t_jax.parts import ARCHITECTURES, POSITIONS


class Model(nn.Module):
    """An encoder-decoder over V subwords, or a language model of the target."""

    c: config.Model
    V: int
    longest: int  # the number of positions of a learned table
    dtype: Any = jnp.float32  # of computations; parameters are float32

    @property
    def masked(self) -> bool:
        """Whether it predicts masked tokens instead of the next one."""
        return ARCHITECTURES[self.c.architecture].masked

    @property
    def translates(self) -> bool:
        """Whether it decodes translations of a source."""
        return ARCHITECTURES[self.c.architecture].translates

    @property
    def limit(self) -> int | None:
        """The number of positions that the model has; None if there is no limit."""
        limited = config.has(self.c, "positions") and POSITIONS[self.c.positions].limited
        return self.longest if limited else None

    @property
    def fuses_softmax(self) -> bool:
        """Whether training computes the loss from `softmax`, instead of `decode`."""
        fused = self.c.kernels == "fused" and not self.c.logit_cap
        return fused and supported(self.c.d_model)

    def encode(self, source: Array, P_drop: Array | None = None) -> Any:
        raise NotImplementedError

    def features(self, encoded: Any, target_in: Array, P_drop: Array | None = None) -> Array:
        """The last hidden states, which the embedding turns into logits: [B, T, d_model]."""
        raise NotImplementedError

    def decode(self, encoded: Any, target_in: Array, P_drop: Array | None = None) -> Array:
        return self.embedding.logits(self.features(encoded, target_in, P_drop))

    def softmax(
        self, encoded: Any, target_in: Array, P_drop: Array | None = None
    ) -> tuple[Array, Array]:
        """x [B, T, d_model] and W [V, d_model], whose product x W^T `decode` returns."""
        x = self.features(encoded, target_in, P_drop)
        return x * self.embedding.multiplier, self.embedding.output

    def __call__(self, source: Array, target_in: Array) -> Array:
        """Logits [B, T, V]. Initialisation calls it, as it uses every parameter."""
        return self.decode(self.encode(source), target_in)

    def drop(self: nn.Module, x: Array, P_drop: Array | None) -> Array:
        """x after dropout in training, x itself in evaluation."""
        return x if P_drop is None else dropout(x, P_drop, self.make_rng("dropout"))
