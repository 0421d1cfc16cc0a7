"""Dot-product attention, scaled (section 3.2.1, equation 1) and unscaled (Luong et al. 2015)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.attention.dense import attend, mask
from t2t_jax.attention.visibility import Visibility, blank

Drop = Callable[[jax.Array], jax.Array] | None
State = dict[str, Any]


class DotProduct(nn.Module):
    """softmax(q k^T) v."""

    def scores(self, q: jax.Array, k: jax.Array) -> jax.Array:
        """Scores [B, h, T, S], in float32 or wider."""
        wide = jnp.promote_types(q.dtype, jnp.float32)
        return jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=wide)

    def __call__(
        self, q: jax.Array, k: jax.Array, v: jax.Array, visibility: Visibility, drop: Drop = None
    ) -> jax.Array:
        q = blank(q, visibility.q_lengths)
        k, v = blank(k, visibility.kv_lengths), blank(v, visibility.kv_lengths)
        return attend(self.scores(q, k), v, mask(visibility, q.shape[1], k.shape[1]), drop)

    def start(self, k: jax.Array, v: jax.Array, visibility: Visibility) -> State:
        """The keys and values themselves, and for cross-attention how many are real."""
        lengths = visibility.kv_lengths
        k, v = blank(k, lengths), blank(v, lengths)
        return {"k": k, "v": v} if visibility.causal else {"k": k, "v": v, "lengths": lengths}

    def step(
        self,
        state: State,
        q: jax.Array,
        t: jax.Array,
        k: jax.Array | None = None,
        v: jax.Array | None = None,
    ) -> tuple[jax.Array, State]:
        if k is None or v is None:
            return self(q, state["k"], state["v"], Visibility(kv_lengths=state["lengths"])), state
        keys = jax.lax.dynamic_update_slice_in_dim(state["k"], k, t, axis=1)
        values = jax.lax.dynamic_update_slice_in_dim(state["v"], v, t, axis=1)
        seen = (jnp.arange(keys.shape[1]) <= t)[None, None, None, :]
        out = attend(self.scores(q, keys), values, seen)
        return out, {"k": keys, "v": values}


class ScaledDotProduct(DotProduct):
    """softmax(q k^T / sqrt(d_k)) v."""

    def scores(self, q: jax.Array, k: jax.Array) -> jax.Array:
        return super().scores(q, k) / jnp.sqrt(q.shape[-1]).astype(jnp.float32)
