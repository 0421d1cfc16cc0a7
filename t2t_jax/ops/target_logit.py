"""The target's logit, whose gradient is a comparison that XLA fuses instead of a scatter.

Gain: 1.1 times as fast on a CPU (`experiments/tools/ops.py`); not measured on a GPU.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def plain(logits: Array, target: Array) -> Array:
    """The logit of each target: logits [B, T, V], target int32 [B, T] -> [B, T]."""
    return jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]


@jax.custom_vjp
def target_logit(logits: Array, target: Array) -> Array:
    """`plain`."""
    return plain(logits, target)


def _forward(logits: Array, target: Array) -> tuple[Array, Any]:
    return target_logit(logits, target), (target, jnp.arange(logits.shape[-1])[None, None])


def _backward(saved: Any, gradient: Array) -> tuple[Array, None]:
    target, subwords = saved
    return jnp.where(subwords == target[..., None], gradient[..., None], 0), None


target_logit.defvjp(_forward, _backward)
