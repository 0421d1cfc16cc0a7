"""Linear attention with decay: retention, gated linear attention, Mamba-2. See `memory`."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.memory import Keys, Memory
from t2t_jax.attention.parameters import PerHead, log_rate, log_time


class Retention(Memory):
    """Sun et al. (2023), equations 6 and 8: head i = 0 .. h - 1 has the decay 1 - 2^(-5 - i).

    The rotation of queries and keys is that of positions=rotary. The norm of the output makes the
    paper's other normalisations, which divide the scores, superfluous. The paper's is a group norm;
    as in the authors' code, the mean is not subtracted.
    """

    def queries(self, q: Array) -> Array:
        return q / q.shape[-1] ** 0.5

    def keys(self, k: Array, v: Array) -> Keys:
        log_a = jnp.log1p(-(2.0 ** (-5 - jnp.arange(k.shape[2], dtype=k.dtype))))
        return Keys(k, v, jnp.broadcast_to(log_a[None, None, :, None], (*k.shape[:3], 1)))


class GatedLinear(Memory):
    """Yang et al. (2024), "Gated Linear Attention", equation 3 and section 4.4.

    Each feature of a key has a decay of its own, a = sigmoid(W x + b)^(1/16). W has full rank; the
    paper's has rank 16.
    """

    def setup(self) -> None:
        self.b = PerHead(("d_k",), jax.nn.initializers.zeros)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate = jnp.split(k, 2, axis=-1)
        b = self.b(k, k.shape[-1])
        return Keys(k, v, jax.nn.log_sigmoid(gate + b[None, None]) / 16)


class Mamba2(Memory):
    """Dao and Gu (2024): state space duality, with queries as C, keys as B, and values as x.

    The decay is exp(-Delta exp(A_log)) and the value Delta x, with Delta = softplus(W x + b).
    B and C differ between heads, and the output is normalised for each head. Left out are the short
    convolution with its SiLU, the skip connection D, and the output gate.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), log_rate), PerHead((), log_time)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate = k[..., :-1], k[..., -1:]
        log_a, step = decay_and_step(gate, self.A_log(k), self.b(k))
        return Keys(k, step * v, log_a)


def decay_and_step(gate: Array, A_log: Array, b: Array) -> tuple[Array, Array]:
    """-Delta exp(A_log) and Delta = softplus(gate + b) of Mamba-2, [B, S, h, 1] each.

    Args:
      gate: [B, S, h, 1].
      A_log, b: [h].
    """
    step = jax.nn.softplus(gate + b[None, None, :, None])
    return -step * jnp.exp(A_log)[None, None, :, None], step
