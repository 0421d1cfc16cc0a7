"""What every model of `t2t_jax.models` has."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.models.dropout import dropout


class Model(nn.Module):
    """An encoder-decoder over V subwords, or half of one.

    Attributes:
      c: the hyperparameters.
      V: size of the vocabulary.
      longest: positions that a learned table has.
      dtype: of computation; parameters are float32.
      masked: whether it tells masked tokens rather than the next.
      translates: whether it has `start` and `step`.
    """

    c: config.Model
    V: int
    longest: int
    dtype: Any = jnp.float32

    masked, translates = False, True

    @property
    def limit(self) -> int | None:
        """Positions that there are; None where any number may be computed."""
        learned = config.has(self.c, "positions") and self.c.positions == "learned"
        return self.longest if learned else None

    def encode(self, source: Array, P_drop: Array | None = None) -> Any:
        raise NotImplementedError

    def decode(self, encoded: Any, target_in: Array, P_drop: Array | None = None) -> Array:
        raise NotImplementedError

    def __call__(self, source: Array, target_in: Array) -> Array:
        """Touches every parameter: for initialisation."""
        return self.decode(self.encode(source), target_in)

    def drop(self, x: Array, P_drop: Array | None) -> Array:
        """x after dropout in training, x itself in evaluation."""
        return x if P_drop is None else dropout(x, P_drop, self.make_rng("dropout"))
