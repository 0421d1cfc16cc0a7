"""The programs of a run: what it computes, as hashes of its lowered programs.

A program is lowered for one device and canonical shapes, whatever the corpus and the mesh. Its text
has no locations, and its symbols are renumbered in order of appearance. So renaming or moving code
changes no hash, and whatever changes the computation does, wherever it is written. The text depends
on the versions of JAX and Flax and on the platform: hashes are compared for equal ones only.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from t2t_jax.config import Config
from t2t_jax.runs.job import compile_key

B, S, T = 4, 48, 40  # rows, source and target positions of the canonical batch; the last at most
_SYMBOL = re.compile(r"@(?:\w+|\"[^\"]*\")")


def fingerprint(text: str) -> str:
    """Returns twelve hex digits of a lowered program's text, whatever its symbols are called."""
    numbers: dict[str, str] = {}
    renumbered = _SYMBOL.sub(lambda m: numbers.setdefault(m[0], f"@{len(numbers)}"), text)
    return hashlib.sha256(renumbered.encode()).hexdigest()[:12]


def programs(c: Config, V: int) -> dict[str, str]:
    """Returns the hash of each program of a run: initialisation, step, likelihood and decoding.

    The step's has the values of the traced hyperparameters without the seed, too. A model that
    does not translate has no decoding.

    Args:
      V: the size of the vocabulary.
    """
    hashes = dict(_lowered(compile_key(c), c.decoding, V))
    hashes["step"] = fingerprint(hashes["step"] + _hyperparameters(c))
    return hashes


def _hyperparameters(c: Config) -> str:
    """Returns the traced hyperparameters as text, without the seed."""
    import dataclasses

    from t2t_jax.training.step import hyper

    values = {f.name: getattr(hyper(c), f.name).item() for f in dataclasses.fields(hyper(c))}
    return str({name: x for name, x in values.items() if name != "seed"})


@cache
def _lowered(c: Config, decoding: Any, V: int) -> Mapping[str, str]:
    import jax
    import jax.numpy as jnp

    from t2t_jax.evaluation.perplexity import negative_log_likelihood
    from t2t_jax.inference.translate import decode
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training import step as training

    model, mesh = build(c, V), sharding.mesh_of(())
    longest = min(c.data.max_length, model.limit or c.data.max_length)
    source = jax.ShapeDtypeStruct((B, min(S, longest)), jnp.int32)
    batch = {"source": source, "target": jax.ShapeDtypeStruct((B, min(T, longest)), jnp.int32)}

    def lower(function: Callable[..., Any], *arguments: Any, **static: Any) -> str:
        with sharding.use_mesh(mesh):
            jitted = function if hasattr(function, "lower") else jax.jit(function)
            return fingerprint(jitted.lower(*arguments, **static).as_text())

    state = training.abstract(model, c, mesh)
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    hyper = jax.eval_shape(lambda: training.hyper(c))
    lowered = {
        "initialisation": lower(training.drawing(model, c), jnp.uint32(0)),
        "step": lower(training.make_step(model, c), state, batch, hyper),
        "likelihood": lower(negative_log_likelihood, model, state.params, batch),
    }
    if model.translates:
        capacity = min(source.shape[1] - 1 + decoding.max_extra, model.limit or longest * 99)
        limits = jnp.int32(decoding.max_extra), jnp.float32(decoding.alpha)
        shapes = dict(beam=decoding.beam, capacity=capacity)
        lowered["decoding"] = lower(decode, model, state.params, source, *limits, **shapes)
    return lowered
