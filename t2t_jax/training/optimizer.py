"""Optimizers and schedules of the learning rate (section 5.3); `parts.py` lists them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from t2t_jax import config
from t2t_jax.parts import OPTIMIZERS, SCHEDULES, implementation

_HOME = "t2t_jax.training"
Scalar = jax.Array  # float32 []


def make(t: config.Training) -> optax.GradientTransformation:
    """The optimizer of a config, without learning rate, weight decay and clipping.

    The step subtracts its updates, times the learning rate.
    """
    entry = OPTIMIZERS[t.optimizer]
    return implementation(entry.where, _HOME)(**{n: getattr(t, n) for n in entry.fields})


def adam(beta1: float, beta2: float, eps: float) -> optax.GradientTransformation:
    """Adam (Kingma and Ba 2015); with `weight_decay`, AdamW."""
    return optax.scale_by_adam(beta1, beta2, eps)


def lion(beta1: float, beta2: float) -> optax.GradientTransformation:
    """Lion (Chen et al. 2023)."""
    return optax.scale_by_lion(beta1, beta2)


def is_bias(path: Sequence[Any]) -> bool:
    """Whether a parameter is a bias, by its path; that of a gate has several axes."""
    return any(key.key == "b" or key.key.startswith("b_") for key in path)


def peak_lr(c: config.Config) -> float:
    """The learning rate at the end of warm-up; by default (d_model warmup)^-0.5, the paper's.

    Under muP it is (mup_width warmup)^-0.5, the same for every d_model.
    """
    t, m = c.training, c.model
    width = m.d_model if m.parametrization == "standard" else m.mup_width
    return t.lr_scale * (t.peak_lr or (width * t.warmup) ** -0.5)


def learning_rate(
    step: jax.Array, peak: Scalar, warmup: Scalar, steps: Scalar, schedule: str
) -> Scalar:
    """The learning rate of a step, counted from 1 to `steps`."""
    step = jnp.maximum(step, 1).astype(jnp.float32)
    return peak * implementation(SCHEDULES[schedule].where, _HOME)(step, warmup, steps)


def inverse_sqrt(step: Scalar, warmup: Scalar, steps: Scalar) -> Scalar:
    """Equation 3 divided by its maximum: min(step / warmup, (warmup / step)^0.5)."""
    after = jnp.sqrt(warmup / step)
    return jnp.minimum(step / warmup, after)


def linear(step: Scalar, warmup: Scalar, steps: Scalar) -> Scalar:
    """Rises linearly during warm-up, then falls linearly, to zero one step after the last."""
    after = jnp.clip((steps + 1 - step) / jnp.maximum(steps + 1 - warmup, 1), 0, 1)
    return jnp.minimum(step / warmup, after)
