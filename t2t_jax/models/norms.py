"""Norms over the last axis: layer norm (the paper's) and others. `parts.NORMS` lists them."""

from typing import Any

import flax.linen as nn
from jax import Array

from t2t_jax.parts import NORMS, implementation

EPSILON = 1e-6


def norm(kind: str, dtype: Any, *, axis: str = "d_model", **attributes: Any) -> nn.Module:
    """The module of a norm in `parts.NORMS`; `axis` is the logical axis of its parameters."""
    return implementation(NORMS[kind].where, "t2t_jax.models")(dtype, axis, **attributes)


def _affine(kind: Any, module: Any, x: Array, **others: Any) -> Array:
    """Applies a kind of norm of Flax, whose scale has the logical axis of `module`."""
    scale = nn.with_logical_partitioning(nn.initializers.ones, (module.axis,))
    return kind(epsilon=EPSILON, dtype=module.dtype, scale_init=scale, name="affine", **others)(x)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + EPSILON) * scale + bias (Ba et al. 2016)."""

    dtype: Any
    axis: str = "d_model"
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        bias = nn.with_logical_partitioning(nn.initializers.zeros, (self.axis,))
        return _affine(nn.LayerNorm, self, x, use_bias=self.use_bias, bias_init=bias)


class LayerNormNoBias(LayerNorm):
    """(x - mean) / sqrt(variance + EPSILON) * scale (PaLM, section 2)."""

    use_bias: bool = False


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + EPSILON) * scale (Zhang and Sennrich 2019)."""

    dtype: Any
    axis: str = "d_model"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return _affine(nn.RMSNorm, self, x)
