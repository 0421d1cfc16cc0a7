"""Label-smoothed cross-entropy (section 5.4), and the unsmoothed one that perplexity comes from."""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from t2t_jax.tokens import PAD


def cross_entropy(
    logits: jax.Array,
    target: jax.Array,
    eps_ls: jax.Array | float,
    smoothing: Literal["uniform", "others"] = "uniform",
) -> dict[str, jax.Array]:
    """Sums over the real tokens of a batch, in float32 (nats).

    Args:
      logits: [B, T, V].
      target: int32 [B, T], padded with 0.
      eps_ls: the probability that smoothing takes from the target, scalar.
      smoothing: `uniform` spreads it over all V (Szegedy et al. 2016); `others` over the V - 1 that
        are not the target, less the constant that makes a perfect prediction cost nothing
        (tensor2tensor).

    Returns:
      `loss` (smoothed), `nll` (unsmoothed), `tokens`.
    """
    V = logits.shape[-1]
    log_z = jax.nn.logsumexp(logits, axis=-1)
    chosen = _at(logits, target)
    total = logits.sum(axis=-1)
    nll = log_z - chosen
    if smoothing == "uniform":
        loss = log_z - (1 - eps_ls) * chosen - eps_ls * total / V
    else:
        other = eps_ls / (V - 1)
        entropy = -_xlogx(1 - eps_ls) - (V - 1) * _xlogx(other)
        loss = log_z - (1 - eps_ls) * chosen - other * (total - chosen) - entropy
    real = target != PAD
    return {
        "loss": jnp.where(real, loss, 0).sum(),
        "nll": jnp.where(real, nll, 0).sum(),
        "tokens": real.sum(dtype=jnp.float32),
    }


@jax.custom_vjp
def _at(logits: jax.Array, target: jax.Array) -> jax.Array:
    """The target's logit [B, T]; its gradient is a comparison that fuses, and no scatter."""
    return jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]


def _at_forward(logits: jax.Array, target: jax.Array) -> tuple[jax.Array, Any]:
    return _at(logits, target), (target, jnp.arange(logits.shape[-1])[None, None])


def _at_backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, None]:
    target, places = kept
    return jnp.where(places == target[..., None], gradient[..., None], 0), None


_at.defvjp(_at_forward, _at_backward)


def _xlogx(x: jax.Array | float) -> jax.Array:
    return x * jnp.log(jnp.maximum(x, 1e-30))
