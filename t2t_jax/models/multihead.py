"""Multi-head attention (Figure 2, right; section 3.2.2) around any mechanism."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax import config
from t2t_jax.attention import build
from t2t_jax.attention.choice import entry, of_layer
from t2t_jax.attention.mechanism import Bias, repeat_heads
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.models.layers import parameter
from t2t_jax.models.norms import norm
from t2t_jax.models.positions import rotate
from t2t_jax.ops.dropout import dropout
from t2t_jax.ops.matmul import matmul
from t2t_jax.ops.tiles import has_kernels


class MultiHead(nn.Module):
    """Concat(head_1 .. head_h) W_O with head_i = mechanism(x W_Q_i, y W_K_i, y W_V_i).

    The projections are matrices without bias, as in the paper; d_k and d_v need not be d_model / h.
    With h_kv < h, each head of keys and values serves a group of h / h_kv adjacent heads of queries
    (Ainslie et al. 2023; h_kv = 1: Shazeer 2019). With an attention gate, head_i is multiplied by
    sigmoid(x W_G_i) (Qiu et al. 2025, section 2.2, position G1). If the mechanism has gates of its
    own, y W_gates_i is appended to the features of each key. With decoder_conv, a causal depthwise
    convolution over positions follows W_Q, W_K and W_V of the decoder's self-attention (So et al.
    2021, "Primer", multi-dconv-head attention); initially it is the identity.
    """

    c: config.Model
    role: str  # encoder, decoder or cross; position schemes do not apply to cross-attention
    dtype: Any
    layer: int = 0  # the index of the layer, which selects its mechanism

    def setup(self) -> None:
        c = self.c
        self.setup_keys()
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", (0, 1), 2)
        axes = ("heads", "d_v", "d_model")
        self.W_O = parameter(self, "W_O", (c.h, c.d_v, c.d_model), axes, init, self.dtype)
        if c.attention_gate != "none":
            self.W_G = self.matrix("W_G", c.h, c.d_v if c.attention_gate == "element" else 1, "d_v")
        if c.qk_norm != "none":
            self.norm_q = norm(c.qk_norm, self.dtype, axis="d_k")
            self.norm_k = norm(c.qk_norm, self.dtype, axis="d_k")
        self.conv = c.decoder_conv if self.role == "decoder" else 0
        if self.conv:
            self.filter_Q = self._filter("filter_Q", c.h, c.d_k, "d_k")
            self.filter_K = self._filter("filter_K", c.h_kv or c.h, c.d_k, "d_k")
            self.filter_V = self._filter("filter_V", c.h_kv or c.h, c.d_v, "d_v")
        mechanism = of_layer(getattr(c, f"{self.role}_attention"), self.layer)
        self.gates = entry(mechanism).gates(c.d_k)
        if self.gates:
            self.W_gates = self.matrix("W_gates", c.h_kv or c.h, self.gates, "gates")
        self.attention = build(mechanism)

    def setup_keys(self) -> None:
        c = self.c
        self.W_Q = self.matrix("W_Q", c.h, c.d_k, "d_k")
        self.W_K = self.matrix("W_K", c.h_kv or c.h, c.d_k, "d_k")
        self.W_V = self.matrix("W_V", c.h_kv or c.h, c.d_v, "d_v")

    def matrix(self, name: str, h: int, width: int, axis: str, of: str = "d_model") -> Array:
        """From features, whose number is the field `of`, to the features of h heads."""
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", 0, (1, 2))
        shape, axes = (getattr(self.c, of), h, width), (of, "heads", axis)
        return parameter(self, name, shape, axes, init, self.dtype)

    def __call__(
        self, x: Array, y: Array, visibility: Visibility, train: bool, bias: Bias = None
    ) -> Array:
        """Queries from x [B, T, d_model], keys and values from y [B, S, d_model] -> as x."""
        fused = has_kernels(self.c.kernels)
        x_present = length_mask(visibility.q_lengths, x.shape[1]) if fused else None
        y_present = length_mask(visibility.kv_lengths, y.shape[1]) if fused else None
        q = self._projected(x, "Q", 0, x_present)
        # Repeated keys and values cost no parameters; decoding stores h_kv heads.
        k, v = (repeat_heads(z, self.c.h) for z in self._keys_and_values(y, 0, y_present))
        drop = None
        if train and self.c.P_drop_attention:
            key = self.make_rng("dropout")
            drop = partial(dropout, rate=self.c.P_drop_attention, key=key)
        out = self.attention(q, k, v, visibility, drop, bias, fused)
        return self._merge(out, x, x_present)

    def start_self(self, x: Array, capacity: int) -> Any:
        """State for causal decoding of up to `capacity` positions, with the batch and type of x."""
        B, h = x.shape[0], self.c.h_kv or self.c.h
        k = jnp.zeros((B, capacity, h, self.c.d_k + self.gates), x.dtype)
        v = jnp.zeros((B, capacity, h, self.c.d_v), x.dtype)
        none_yet = Visibility(kv_lengths=jnp.zeros(B, jnp.int32), causal=True)
        state = self.attention.start(*self._stored(k, v), none_yet)
        if not self.conv:
            return state
        return {"heads": state, "inputs": jnp.zeros((B, self.conv - 1, x.shape[-1]), x.dtype)}

    def start_cross(self, y: Array, visibility: Visibility) -> Any:
        """What attention over y [B, S, d_model] needs, computed once for each sentence."""
        return self.attention.start(*self._stored(*self._keys_and_values(y)), visibility)

    def step_self(self, state: Any, x: Array, t: Array, bias: Bias = None) -> tuple[Array, Any]:
        """Position t: x [B, 1, d_model] attends to itself and to all positions before it."""
        inputs, first, heads = x, t, state
        if self.conv:  # the last inputs are projected again
            inputs, heads = jnp.concatenate([state["inputs"], x], 1), state["heads"]
            first = t - (self.conv - 1)
        k, v = self._keys_and_values(inputs, first)
        q = self._projected(inputs, "Q", first)
        if self.conv:
            q, k, v = (y[:, -1:] for y in (q, k, v))
        out, heads = self.attention.step(heads, q, t, *self._stored(k, v), bias)
        state = {"heads": heads, "inputs": inputs[:, 1:]} if self.conv else heads
        return self._merge(out, x), state

    def step_cross(self, state: Any, x: Array, t: Array) -> Array:
        """Position t: x [B, 1, d_model] attends to the source."""
        out, _ = self.attention.step(state, self._projected(x, "Q", t), t)
        return self._merge(out, x)

    def _projected(
        self, x: Array, name: str, first: Array | int, present: Array | None = None
    ) -> Array:
        """Queries (Q) or keys (K) at positions first, first + 1, ..., normalised and rotated."""
        W, norm = (self.W_Q, "norm_q") if name == "Q" else (self.W_K, "norm_k")
        y = self._convolved(self._heads(x, W, present), name)
        if self.c.qk_norm != "none":
            y = getattr(self, norm)(y)
        if present is not None and (self.conv or self.c.qk_norm != "none"):
            # A kernel leaves the gradient of padding undefined.
            y = jnp.where(present[:, :, None, None], y, 0)
        return self._rotated(y, first)

    def _rotated(self, y: Array, first: Array | int) -> Array:
        return y if self.role == "cross" else rotate(self.c.positions, y, first)

    def _keys_and_values(
        self, y: Array, first: Array | int = 0, present: Array | None = None
    ) -> tuple[Array, Array]:
        """Keys with the features of gates, and values, of h_kv heads."""
        k = self._projected(y, "K", first, present)
        if self.gates:
            k = jnp.concatenate([k, self._heads(y, self.W_gates, present)], -1)
        v = self._convolved(self._heads(y, self.W_V, present), "V")
        if self.conv and present is not None:
            v = jnp.where(present[:, :, None, None], v, 0)
        return k, v

    def _filter(self, name: str, h: int, width: int, axis: str) -> Array:
        def identity(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
            return jnp.zeros(shape, dtype).at[-1].set(1)

        shape, axes = (self.conv, h, width), ("position", "heads", axis)
        return parameter(self, name, shape, axes, identity, jnp.float32)

    def _convolved(self, y: Array, name: str) -> Array:
        """y [B, L, h, d]; with filters, sums over this position and those before it."""
        if not self.conv:
            return y
        filters, L = getattr(self, f"filter_{name}"), y.shape[1]
        past = jnp.pad(y, ((0, 0), (self.conv - 1, 0), (0, 0), (0, 0)))
        terms = (filters[i][None, None] * past[:, i : i + L] for i in range(self.conv))
        return sum(terms, jnp.zeros(y.shape, jnp.float32)).astype(y.dtype)

    def _stored(self, *keys_and_values: Array) -> list[Array]:
        """Keys and values of h_kv heads, as the mechanism stores them in decoding."""
        h = self.c.h
        return [x if self.attention.grouped else repeat_heads(x, h) for x in keys_and_values]

    def _heads(self, x: Array, W: Array, present: Array | None = None) -> Array:
        y = matmul(x, W, present=present, undefined="dy")
        return nn.with_logical_constraint(y, ("batch", "length", "heads", None))

    def _merge(self, heads: Array, x: Array, present: Array | None = None) -> Array:
        """Concat(head_1 .. head_h) W_O, gated by x; zero in padding if `present` is given."""
        if self.c.attention_gate != "none":
            heads = heads * jax.nn.sigmoid(self._heads(x, self.W_G, present))
        y = matmul(heads, self.W_O, axes=2, present=present, undefined="x")
        return y if present is None else jnp.where(present[:, :, None], y, 0)
