"""What all mechanisms share: the contract of `t2t_jax.attention`, with padding made harmless."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.visibility import Visibility, blank, real

State = dict[str, Any]
Drop = Callable[[Array], Array] | None
Bias = Callable[[Array], Array] | None


class Mechanism(nn.Module):
    """`attend` says what a mechanism computes; `start` and the steps say it for decoding."""

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        visibility: Visibility,
        drop: Drop = None,
        bias: Bias = None,
    ) -> Array:
        """q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] -> [B, T, h, d_v].

        Args:
          drop: dropout of attention weights, a function to apply to them.
          bias: int32 distances s - t [...] -> what to add to the scores, [h, ...].
        """
        visibility = visibility.bounded(q, k)
        q = blank(q, visibility.q_lengths)
        k, v = blank(k, visibility.kv_lengths), blank(v, visibility.kv_lengths)
        if not visibility.causal:
            return self.attend(q, k, v, visibility, drop, bias)
        # A weight of zero does not silence a later NaN: it is taken out, and put back where seen.
        bad_q = ~jnp.isfinite(q).all(-1, keepdims=True)
        bad_k = ~(jnp.isfinite(k).all(-1, keepdims=True) & jnp.isfinite(v).all(-1, keepdims=True))
        q, k, v = jnp.where(bad_q, 0, q), jnp.where(bad_k, 0, k), jnp.where(bad_k, 0, v)
        out = self.attend(q, k, v, visibility, drop, bias)
        T = q.shape[1]
        met = jax.lax.cummax(bad_k.astype(jnp.int8), axis=1).astype(bool)
        met = jnp.pad(met, ((0, 0), (0, max(T - k.shape[1], 0)), (0, 0), (0, 0)), "edge")[:, :T]
        met &= real(visibility.q_lengths, T)[:, :, None, None]
        return jnp.where(met | bad_q, jnp.nan, out)

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        """As `__call__`, with both lengths known and padding that is zeros."""
        raise NotImplementedError

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """What decoding keeps of the keys and values known beforehand."""
        raise NotImplementedError

    def step(
        self,
        state: State,
        q: Array,
        t: Array,
        k: Array | None = None,
        v: Array | None = None,
        bias: Bias = None,
    ) -> tuple[Array, State]:
        """The query [B, 1, h, d_k] at position t -> [B, 1, h, d_v], and the state after it."""
        if k is None or v is None:
            return self.step_cross(state, q, t, bias), state
        return self.step_self(state, q, t, k, v, bias)

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        """`step` where the query's own key and value are new."""
        raise NotImplementedError

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        """`step` where all keys are known."""
        raise NotImplementedError


def refuse(name: str, **given: Any) -> None:
    """Raises ValueError if a mechanism is given what it cannot do: nothing is ignored."""
    for what, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} attention cannot be given {what}.")


def put(x: Array, new: Array, t: Array, axis: int = 1) -> Array:
    """x [B, S, ...] with new [B, 1, ...] at position t; S may be another axis."""
    return jax.lax.dynamic_update_slice_in_dim(x, new, t, axis)
