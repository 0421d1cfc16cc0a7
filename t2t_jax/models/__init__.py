"""Encoder-decoders behind one interface, which is all that training and decoding know of a model.

    encoded = encode(source)                         source int32 [B, S], padded with 0
    logits = decode(encoded, target_in)              target_in int32 [B, T] -> [B, T, V]
    memory, state = start(encoded, capacity)         before the first of `capacity` positions
    logits, state = step(memory, state, tokens, t)   tokens int32 [B] at position t -> [B, V]

`target_in` is the target shifted right by one, a begin mark first; for a `masked` model, the target
with some tokens masked. A model that does not translate (`translates`) has no `start` and no
`step`; a causal language model has them, with int32 [B, 1] in place of `encoded`. Logits are
float32. In training, `encode` and `decode` also take P_drop (scalar, may be traced); without it,
they apply no dropout. Every leaf of `memory` and `state` has the leading axis B; `memory` does not
change while decoding. `limit` is the number of positions that a model has, None if there is no
limit; `V` is the size of its vocabulary, `dtype` its compute type.
"""

from typing import TYPE_CHECKING

from t2t_jax.config import Config
from t2t_jax.parts import ARCHITECTURES, implementation

if TYPE_CHECKING:
    from t2t_jax.models.interface import Model


def build(config: Config, V: int, platform: str = "") -> "Model":
    """The model of `config` for a vocabulary of V subwords.

    Args:
      platform: cpu, gpu or tpu, for which compute type and kernels are chosen; by default JAX's.

    Raises:
      UsageError: kernels are asked for in float32 on a GPU.
    """
    import dataclasses

    import jax
    import jax.numpy as jnp

    from t2t_jax.errors import UsageError

    platform, c = platform or jax.default_backend(), config.model
    dtype, kernels = c.dtype, c.kernels
    if dtype == "auto":
        dtype = "float32" if platform == "cpu" else "bfloat16"
    if kernels == "auto":
        kernels = "plain" if platform == "cpu" or dtype == "float32" else "fused"
    if (platform, dtype, kernels) == ("gpu", "float32", "fused"):
        raise UsageError("kernels=fused needs dtype=bfloat16 on a GPU: set one or the other.")
    c = dataclasses.replace(c, kernels=kernels)
    longest = config.data.max_length + config.decoding.max_extra
    cls = implementation(ARCHITECTURES[c.architecture].where, __name__)
    return cls(c, V=V, longest=longest, dtype=jnp.dtype(dtype))
