"""The delta rule: a memory that replaces what it has stored at a key. See `recurrence`."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.gated import decay_and_step
from t2t_jax.attention.memory import Memory
from t2t_jax.attention.parameters import PerHead, log_rate, log_time
from t2t_jax.attention.recurrence import Keys


class Delta(Memory):
    """DeltaNet: S_t = (I - beta k k^T) S_{t-1} + beta k v^T (Yang et al. 2024, section 2.2).

    The paper is "Parallelizing Linear Transformers with the Delta Rule"; the rule is from Schlag
    et al. (2021). Queries and keys are SiLU(x) / |SiLU(x)|, and beta = sigmoid(W x). The short
    convolution is left out, and so is the SiLU of the values that follows it.
    """

    def queries(self, q: Array) -> Array:
        return _features(q)

    def keys(self, k: Array, v: Array) -> Keys:
        k, beta = _features(k[..., :-1]), jax.nn.sigmoid(k[..., -1:])
        return Keys(k, beta * v, jnp.zeros_like(beta), beta * k)


class GatedDelta(Memory):
    """Gated DeltaNet: S_t = alpha_t (I - beta k k^T) S_{t-1} + beta k v^T.

    This is equation 10 of Yang et al. (2025), "Gated Delta Networks", with S transposed. The decay
    alpha is the decay of Mamba-2, exp(-exp(A_log) softplus(W x + b)). The rest is as in `Delta`.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), log_rate), PerHead((), log_time)

    def queries(self, q: Array) -> Array:
        return _features(q)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate, beta = _features(k[..., :-2]), k[..., -2:-1], jax.nn.sigmoid(k[..., -1:])
        log_a, _ = decay_and_step(gate, self.A_log(k), self.b(k))
        return Keys(k, beta * v, log_a, beta * k)


def _features(x: Array) -> Array:
    """SiLU(x) / |SiLU(x)|; zero remains zero."""
    x = jax.nn.silu(x)
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)
