"""Linear attention with decay, and with the delta rule. See `recurrence`."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.memory import Memory
from t2t_jax.attention.parameters import PerHead, log_rate, log_time
from t2t_jax.attention.recurrence import Keys


class Retention(Memory):
    """RetNet (Sun et al. 2023, equations 6 and 8): head i = 0 .. h - 1 decays by 1 - 2^(-5 - i).

    Their rotation of queries and keys is positions=rotary. They also divide the scores by sums,
    which changes nothing where the output is normalised. Their norm is a group norm; as in their
    code, the mean is not subtracted.
    """

    def queries(self, q: Array) -> Array:
        return q / q.shape[-1] ** 0.5

    def keys(self, k: Array, v: Array) -> Keys:
        log_a = jnp.log1p(-(2.0 ** (-5 - jnp.arange(k.shape[2], dtype=k.dtype))))
        return Keys(k, v, jnp.broadcast_to(log_a[None, None, :, None], (*k.shape[:3], 1)))


class GatedLinear(Memory):
    """Gated linear attention (Yang et al. 2024, equation 3 and section 4.4).

    Each feature of a key has a decay of its own, a = sigmoid(W x + b)^(1/16). Their W has
    rank 16, this one has full rank; and their output is normalised by a layer norm.
    """

    def setup(self) -> None:
        self.b = PerHead(("d_k",), jax.nn.initializers.zeros)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate = jnp.split(k, 2, axis=-1)
        b = self.b(k, k.shape[-1])
        return Keys(k, v, jax.nn.log_sigmoid(gate + b[None, None]) / 16)


class Mamba2(Memory):
    """Mamba-2 (Dao and Gu 2024, section 2.4): queries are C, keys are B, and values are x.

    The decay is exp(-Delta exp(A_log)), and the value is Delta x with Delta = softplus(W x + b). In
    Mamba-2, heads share B and C, and one norm follows the output gate; here each head has its own B
    and C, and its own norm. The short convolution with its SiLU and the skip connection D are left
    out.
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


class Delta(Memory):
    """DeltaNet: S_t = (I - beta k k^T) S_{t-1} + beta k v^T (Yang et al. 2024, section 2.2).

    The paper is "Parallelizing Linear Transformers with the Delta Rule"; the rule is from Schlag
    et al. (2021). Queries and keys are SiLU(x) / |SiLU(x)|, and beta = sigmoid(W x). The short
    convolution is left out, and so is the SiLU of the values that follows it.
    """

    def queries(self, q: Array) -> Array:
        return _unit(q)

    def keys(self, k: Array, v: Array) -> Keys:
        k, beta = _unit(k[..., :-1]), jax.nn.sigmoid(k[..., -1:])
        return Keys(k, beta * v, jnp.zeros_like(beta), beta * k)


class GatedDelta(Memory):
    """Gated DeltaNet: S_t = alpha_t (I - beta k k^T) S_{t-1} + beta k v^T.

    This is equation 10 of Yang et al. (2025), "Gated Delta Networks", with S transposed. The decay
    alpha is the decay of Mamba-2, exp(-exp(A_log) softplus(W x + b)). The rest is as in `Delta`.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), log_rate), PerHead((), log_time)

    def queries(self, q: Array) -> Array:
        return _unit(q)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate, beta = _unit(k[..., :-2]), k[..., -2:-1], jax.nn.sigmoid(k[..., -1:])
        log_a, _ = decay_and_step(gate, self.A_log(k), self.b(k))
        return Keys(k, beta * v, log_a, beta * k)


def _unit(x: Array) -> Array:
    """SiLU(x) / |SiLU(x)|; zero remains zero."""
    x = jax.nn.silu(x)
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)
