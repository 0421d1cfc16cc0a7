"""Encoder-decoders behind one interface, which is all that training and decoding know of a model.

    encoded = encode(source)                         source int32 [B, S], padded with 0
    logits = decode(encoded, target_in)              target_in int32 [B, T] -> [B, T, V]
    memory, state = start(encoded, capacity)         before the first of `capacity` positions
    logits, state = step(memory, state, tokens, t)   tokens int32 [B] at position t -> [B, V]

`target_in` is the target moved right by one, a begin mark before it; for a model that is `masked`,
the target with some tokens masked. One that does not translate (`translates`) has no `start` and no
`step`. Logits are float32. `encode`
and `decode` also take P_drop (scalar, may be traced): training; without it: evaluation. Every leaf
of `memory` and `state` has the leading axis B; `memory` is never rewritten while decoding. `limit`
is the positions a model has, None if any number; `V` its vocabulary, `dtype` what it computes in.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from t2t_jax.config import Config

if TYPE_CHECKING:
    from t2t_jax.models.interface import Model


_WHERE = {
    "transformer": "transformer:Transformer",
    "recurrent": "recurrent:Recurrent",
    "convolutional": "convolutional:Convolutional",
    "encoder": "alone:Alone",
    "decoder": "alone:Alone",
}


def build(config: Config, V: int) -> "Model":
    """The model of `config` for a vocabulary of V subwords."""
    import jax
    import jax.numpy as jnp

    dtype = config.model.dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    longest = config.data.max_length + config.decoding.max_extra
    where, _, name = _WHERE[config.model.architecture].partition(":")
    make = getattr(import_module(f"{__name__}.{where}"), name)
    return make(config.model, V=V, longest=longest, dtype=jnp.dtype(dtype))
