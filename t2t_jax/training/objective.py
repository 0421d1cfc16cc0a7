"""Cross-entropy with label smoothing (section 5.4), and without it, for perplexity."""

import jax
import jax.numpy as jnp

from t2t_jax.ops import cross_entropy as ops
from t2t_jax.ops.target_logit import target_logit
from t2t_jax.tokens import PAD


def cross_entropy(
    logits: jax.Array,
    target: jax.Array,
    eps_ls: jax.Array | float,
    smoothing: str = "uniform",
    axis: int | tuple[()] | None = None,
    z_loss: jax.Array | float | None = None,
) -> dict[str, jax.Array]:
    """Sums over the tokens of a batch that are not padding, in float32 (nats).

    They are `loss` (smoothed, with the z-loss), `nll` (without both) and `tokens`.

    Args:
      logits: [B, T, V].
      target: int32 [B, T], padded with 0.
      eps_ls: the probability that smoothing takes from the target, scalar.
      smoothing: `uniform` spreads it over all V (Szegedy et al. 2016); `others` over the V - 1 that
        are not the target, minus the constant that makes the loss of a perfect prediction zero
        (tensor2tensor).
      axis: the axis of [B, T] to sum over; None sums over both, () over none.
      z_loss: the factor of log^2 Z that is added to the loss of a token (PaLM, section 5); scalar.
    """
    V = logits.shape[-1]
    log_z = jax.nn.logsumexp(logits, axis=-1)
    chosen = target_logit(logits, target)
    total = logits.sum(axis=-1)
    nll = log_z - chosen
    if smoothing == "uniform":
        loss = log_z - (1 - eps_ls) * chosen - eps_ls * total / V
    else:
        other = eps_ls / (V - 1)
        entropy = -_xlogx(1 - eps_ls) - (V - 1) * _xlogx(other)
        loss = log_z - (1 - eps_ls) * chosen - other * (total - chosen) - entropy
    if z_loss is not None:
        loss += z_loss * log_z**2
    present = target != PAD
    return {
        "loss": jnp.where(present, loss, 0).sum(axis),
        "nll": jnp.where(present, nll, 0).sum(axis),
        "tokens": present.sum(axis, dtype=jnp.float32),
    }


def fused_cross_entropy(
    x: jax.Array,
    W: jax.Array,
    target: jax.Array,
    eps_ls: jax.Array | float,
    smoothing: str = "uniform",
    z_loss: jax.Array | float | None = None,
) -> dict[str, jax.Array]:
    """`cross_entropy` of the logits x W^T, x [B, T, d] and W [V, d], summed over the batch.

    Only the loss has a gradient.
    """
    V, tokens = W.shape[0], (target != PAD).sum(dtype=jnp.float32)
    # The loss is log Z - a chosen - b total - constant in the terms of `cross_entropy`.
    eps_ls = jnp.asarray(eps_ls, jnp.float32)
    if smoothing == "uniform":
        a, b, constant = 1 - eps_ls, eps_ls / V, jnp.float32(0)
    else:
        b = eps_ls / (V - 1)
        a, constant = 1 - eps_ls - b, -_xlogx(1 - eps_ls) - (V - 1) * _xlogx(b)
    factors = (a, b) if z_loss is None else (a, b, jnp.asarray(z_loss, jnp.float32))
    loss, nll = ops.cross_entropy(x, W, target, factors)
    return {"loss": loss - constant * tokens, "nll": nll, "tokens": tokens}


def _xlogx(x: jax.Array | float) -> jax.Array:
    return x * jnp.log(jnp.maximum(x, 1e-30))
