"""Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.mechanism import Bias, repeat_heads
from t2t_jax.attention.visibility import Visibility
from t2t_jax.config import rotary_width
from t2t_jax.models.layers import parameter
from t2t_jax.models.multihead import MultiHead
from t2t_jax.models.norms import norm
from t2t_jax.ops.matmul import matmul


class Latent(MultiHead):
    """Heads whose keys c W_UK_i and values c W_UV_i are of a latent c = RMSNorm(y W_DKV).

    These are equations 9 to 11, with the norm of section 3.1.2. If positions rotate, queries and
    keys have about d_k / 2 more features (an even number), which alone are rotated; all heads share
    these features of keys, y W_KR (equations 14 to 18). W_QR is a part of W_Q, and W_KR of W_DKV.

    Decoding stores c and the rotated features. As q_i (c W_UK_i)^T = (q_i W_UK_i^T) c^T, it is
    multi-query attention with c as key and value, followed by W_UV_i. Their low-rank queries
    (equations 12 and 13), which save memory in training only, are left out.
    """

    def setup_keys(self) -> None:
        c, self.rotary = self.c, rotary_width(self.c, self.role)
        init, shape = nn.initializers.glorot_uniform(), (c.d_model, c.d_c + self.rotary)
        self.W_Q = self.matrix("W_Q", c.h, c.d_k + self.rotary, "d_k")
        self.W_DKV = parameter(self, "W_DKV", shape, ("d_model", "d_c"), init, self.dtype)
        self.norm_c = norm("rms_norm", self.dtype, axis="d_c")
        self.W_UK = self.matrix("W_UK", c.h, c.d_k, "d_k", of="d_c")
        self.W_UV = self.matrix("W_UV", c.h, c.d_v, "d_v", of="d_c")

    def start_self(self, x: Array, capacity: int) -> Any:
        room = jnp.zeros((len(x), capacity, 1, self.c.d_c + self.rotary), x.dtype)
        none_yet = Visibility(kv_lengths=jnp.zeros(len(x), jnp.int32), causal=True)
        return self._start(room, none_yet)

    def start_cross(self, y: Array, visibility: Visibility) -> Any:
        return self._start(self._latent(y), visibility)

    def _start(self, latent: Array, visibility: Visibility) -> Any:
        """The state of a mechanism without its values, which are its keys."""
        state = self.attention.start(latent, latent, visibility)
        return {name: z for name, z in state.items() if name[0] != "v"}

    def step_self(self, state: Any, x: Array, t: Array, bias: Bias = None) -> tuple[Array, Any]:
        latent = self._latent(x, t)
        return self._step(state, x, t, latent, latent, bias)

    def step_cross(self, state: Any, x: Array, t: Array) -> Array:
        return self._step(state, x, t)[0]

    def _step(self, state: Any, x: Array, t: Array, *new: Any) -> tuple[Array, Any]:
        values = {f"v{name[1:]}": z for name, z in state.items() if name[0] == "k"}
        out, state = self.attention.step(state | values, self._absorbed(x, t), t, *new)
        out = jnp.einsum("bthc,chd->bthd", out[..., : self.c.d_c], self.W_UV)
        return self._merge(out, x), {name: z for name, z in state.items() if name not in values}

    def _keys_and_values(
        self, y: Array, first: Array | int = 0, present: Array | None = None
    ) -> tuple[Array, Array]:
        c, rotated = jnp.split(self._latent(y, first, present), [self.c.d_c], -1)
        k, v = (self._heads(c[:, :, 0], W, present) for W in (self.W_UK, self.W_UV))
        return jnp.concatenate([k, repeat_heads(rotated, self.c.h)], -1), v

    def _latent(self, y: Array, first: Array | int = 0, present: Array | None = None) -> Array:
        """c and the rotated features of y [B, L, d_model]: [B, L, 1, d_c + rotary]."""
        z = matmul(y, self.W_DKV, present=present, undefined="dy")[:, :, None]
        c, rotated = jnp.split(self._rotated(z, first), [self.c.d_c], -1)
        return jnp.concatenate([self.norm_c(c), rotated], -1)

    def _rotated(self, y: Array, first: Array | int) -> Array:
        rest, last = jnp.split(y, [y.shape[-1] - self.rotary], -1)
        return jnp.concatenate([rest, super()._rotated(last, first)], -1)

    def _absorbed(self, x: Array, t: Array) -> Array:
        """The query of x [B, 1, d_model] for keys that are latents."""
        q, rotated = jnp.split(self._projected(x, "Q", t), [self.c.d_k], -1)
        absorbed = jnp.concatenate([jnp.einsum("bthd,chd->bthc", q, self.W_UK), rotated], -1)
        # The mechanism divides by a power of the width of the query that it gets.
        widths = absorbed.shape[-1] / (self.c.d_k + self.rotary)
        return absorbed * widths**self.attention.power
