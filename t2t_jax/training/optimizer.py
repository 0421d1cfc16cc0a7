"""Adam and the learning-rate schedules (section 5.3)."""

from typing import Literal

import jax
import jax.numpy as jnp
import optax

from t2t_jax import config


def adam(c: config.Training) -> optax.GradientTransformation:
    """Adam's direction; the learning rate is applied by the step."""
    return optax.scale_by_adam(c.beta1, c.beta2, c.eps)


def peak_lr(c: config.Config) -> float:
    """The learning rate at the end of the warm-up; in the paper (d_model warmup)^-0.5."""
    t = c.training
    return t.lr_scale * (t.peak_lr or (c.model.d_model * t.warmup) ** -0.5)


def learning_rate(
    step: jax.Array,
    peak: jax.Array,
    warmup: jax.Array,
    steps: jax.Array,
    schedule: Literal["inverse_sqrt", "linear"],
) -> jax.Array:
    """The learning rate of step 1, 2, ... `steps`.

    inverse_sqrt (equation 3): peak min(step / warmup, (warmup / step)^0.5).
    linear: the same warm-up, then a straight line that reaches zero after the last step.
    """
    step = jnp.maximum(step, 1).astype(jnp.float32)
    if schedule == "inverse_sqrt":
        after = jnp.sqrt(warmup / step)
    else:
        after = jnp.clip((steps + 1 - step) / jnp.maximum(steps + 1 - warmup, 1), 0, 1)
    return peak * jnp.minimum(step / warmup, after)
