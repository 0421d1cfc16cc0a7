"""Adam and the learning-rate schedules (section 5.3)."""

import jax
import jax.numpy as jnp
import optax

from t2t_jax import config
from t2t_jax.parts import SCHEDULES, implementation


def adam(c: config.Training) -> optax.GradientTransformation:
    """Adam without the learning rate, by which the train step multiplies its updates."""
    return optax.scale_by_adam(c.beta1, c.beta2, c.eps)


def peak_lr(c: config.Config) -> float:
    """The learning rate at the end of warm-up; by default (d_model warmup)^-0.5, the paper's.

    Under muP it is (mup_width warmup)^-0.5, the same for every d_model.
    """
    t, m = c.training, c.model
    width = m.d_model if m.parametrization == "standard" else m.mup_width
    return t.lr_scale * (t.peak_lr or (width * t.warmup) ** -0.5)


def learning_rate(
    step: jax.Array,
    peak: jax.Array,
    warmup: jax.Array,
    steps: jax.Array,
    schedule: str,
) -> jax.Array:
    """The learning rate of a step, counted from 1 to `steps`.

    inverse_sqrt is the paper's equation 3: peak min(step / warmup, (warmup / step)^0.5).
    linear has the same warm-up, then falls linearly and reaches zero one step after the last.
    A schedule of a study file has the same warm-up, then its function's value times the peak.
    """
    step = jnp.maximum(step, 1).astype(jnp.float32)
    if schedule == "inverse_sqrt":
        after = jnp.sqrt(warmup / step)
    elif schedule == "linear":
        after = jnp.clip((steps + 1 - step) / jnp.maximum(steps + 1 - warmup, 1), 0, 1)
    else:
        factor = implementation(SCHEDULES[schedule].where, "")(step, warmup, steps)
        return peak * jnp.where(step < warmup, step / warmup, factor)
    return peak * jnp.minimum(step / warmup, after)
