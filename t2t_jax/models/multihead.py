"""Multi-head attention (Figure 2, right; section 3.2.2) around any mechanism."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.attention.choice import build
from t2t_jax.attention.mechanism import Bias
from t2t_jax.attention.visibility import Visibility
from t2t_jax.models.dropout import dropout
from t2t_jax.models.layers import parameter
from t2t_jax.models.positions import rotate
from t2t_jax.models.product import product


class MultiHead(nn.Module):
    """Concat(head_1 .. head_h) W_O with head_i = mechanism(x W_Q_i, y W_K_i, y W_V_i).

    The projections are matrices without bias, as in the paper; d_k and d_v are free of d_model / h.

    Attributes:
      mechanism: as a config names it.
      rotary: whether queries and keys are rotated by their positions.
    """

    d_model: int
    h: int
    d_k: int
    d_v: int
    mechanism: str
    P_drop_attention: float
    rotary: bool
    dtype: Any

    def setup(self) -> None:
        d_model, h, d_k, d_v = self.d_model, self.h, self.d_k, self.d_v

        def project(name: str, width: int, axis: str) -> jax.Array:
            init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", 0, (1, 2))
            axes = ("d_model", "heads", axis)
            return parameter(self, name, (d_model, h, width), axes, init, self.dtype)

        self.W_Q = project("W_Q", d_k, "d_k")
        self.W_K = project("W_K", d_k, "d_k")
        self.W_V = project("W_V", d_v, "d_v")
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", (0, 1), 2)
        axes = ("heads", "d_v", "d_model")
        self.W_O = parameter(self, "W_O", (h, d_v, d_model), axes, init, self.dtype)
        self.attention = build(self.mechanism)

    def __call__(
        self,
        x: jax.Array,
        y: jax.Array,
        visibility: Visibility,
        train: bool,
        bias: Bias = None,
    ) -> jax.Array:
        """Queries from x [B, T, d_model], keys and values from y [B, S, d_model] -> as x."""
        q = self._turn(self._heads(x, self.W_Q))
        k, v = self._turn(self._heads(y, self.W_K)), self._heads(y, self.W_V)
        drop = None
        if train and self.P_drop_attention:
            key = self.make_rng("dropout")
            drop = partial(dropout, rate=self.P_drop_attention, key=key)
        return self._merge(self.attention(q, k, v, visibility, drop, bias))

    def start_self(self, x: jax.Array, capacity: int) -> Any:
        """State for causal decoding of up to `capacity` positions; x gives batch and type."""
        B = x.shape[0]
        k = jnp.zeros((B, capacity, self.h, self.d_k), x.dtype)
        v = jnp.zeros((B, capacity, self.h, self.d_v), x.dtype)
        none_yet = Visibility(kv_lengths=jnp.zeros(B, jnp.int32), causal=True)
        return self.attention.start(k, v, none_yet)

    def start_cross(self, y: jax.Array, visibility: Visibility) -> Any:
        """What attention over y [B, S, d_model] needs, computed once a sentence."""
        return self.attention.start(self._heads(y, self.W_K), self._heads(y, self.W_V), visibility)

    def step_self(
        self, state: Any, x: jax.Array, t: jax.Array, bias: Bias = None
    ) -> tuple[jax.Array, Any]:
        """Position t: x [B, 1, d_model] attends to itself and all before it."""
        q, k, v = (self._heads(x, W) for W in (self.W_Q, self.W_K, self.W_V))
        out, state = self.attention.step(state, self._turn(q, t), t, self._turn(k, t), v, bias)
        return self._merge(out), state

    def step_cross(self, state: Any, x: jax.Array, t: jax.Array) -> jax.Array:
        """Position t: x [B, 1, d_model] attends to the source."""
        out, _ = self.attention.step(state, self._heads(x, self.W_Q), t)
        return self._merge(out)

    def _heads(self, x: jax.Array, W: jax.Array) -> jax.Array:
        y = product(x, W)
        return nn.with_logical_constraint(y, ("batch", "length", "heads", None))

    def _turn(self, x: jax.Array, first: jax.Array | int = 0) -> jax.Array:
        return rotate(x, first + jnp.arange(x.shape[1])) if self.rotary else x

    def _merge(self, x: jax.Array) -> jax.Array:
        return product(x, self.W_O, summed=2)
