"""The programs of a run: what it computes, as hashes of its lowered programs.

Each program is lowered for one device and canonical shapes, whatever the corpus and the mesh. Its
text has no locations, and its symbols are renumbered in order of appearance. So code may be renamed
and moved without changing a hash, and whatever changes the computation changes one, wherever it is
written. A text also depends on the versions of JAX, Flax and Optax and on the device, so that only
hashes made with the same ones are comparable.

What the host does between programs is no part of them: how batches are drawn (`batches` hashes the
first ones), which checkpoints are averaged, how subwords become text.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from t2t_jax.config import Config
from t2t_jax.data.batches import Batches
from t2t_jax.data.corpora import CORPORA
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.evaluation.predictions import negative_log_likelihood, predictions, token_nll
from t2t_jax.inference.translate import decode, output_rule
from t2t_jax.models import build
from t2t_jax.runs.identity import compile_key
from t2t_jax.training import sharding, step

ROWS, S, T = 4, 48, 40  # of the canonical batch; S and T are at most max_length
BATCHES = 3  # first batches of training that are hashed
_SYMBOL = re.compile(r'@(?:\w+|"[^"]*")')


def fingerprint(text: str) -> str:
    """Returns twelve hex digits of a program's text, whatever its symbols are called."""
    numbers: dict[str, str] = {}
    renumbered = _SYMBOL.sub(lambda m: numbers.setdefault(m[0], f"@{len(numbers)}"), text)
    return hashlib.sha256(renumbered.encode()).hexdigest()[:12]


def programs(c: Config, V: int) -> dict[str, str]:
    """Returns the hash of each program of a run: initialisation, step, likelihood and decoding.

    The hash of the step covers the values of the traced hyperparameters, except for the seed. A
    run that is scored on predictions has a program `prediction` in place of decoding.
    """
    hashes = dict(_lowered(compile_key(c), V))
    traced = vars(step.hyper(c)).items()
    values = {name: x.item() for name, x in traced if name != "seed" and x is not None}
    return hashes | {"step": fingerprint(hashes["step"] + str(values))}


def first_batches(batches: Batches) -> str:
    """Returns twelve hex digits of the first training batches, drawn from seed 0."""
    digest, stream = hashlib.sha256(), batches.with_seed(0).stream()
    for _ in range(BATCHES):
        _, batch = next(stream)
        for side, tokens in sorted(batch.items()):
            digest.update(f"{side} {tokens.shape}".encode() + tokens.tobytes())
    return digest.hexdigest()[:12]


@cache
def _lowered(c: Config, V: int) -> Mapping[str, str]:
    """Returns the hashes of the programs of configs that share a `compile_key`."""
    model, mesh, longest = build(c, V), sharding.mesh_of(()), c.data.max_length

    def lower(function: Callable[..., Any], *arguments: Any, **static: Any) -> str:
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        with sharding.use_mesh(mesh):
            return fingerprint(jitted.lower(*arguments, **static).as_text())

    source, target = (jax.ShapeDtypeStruct((ROWS, min(n, longest)), jnp.int32) for n in (S, T))
    batch = {"source": source, "target": target}
    state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), step.abstract(model, c, mesh)
    )
    lowered = {
        "initialisation": lower(step.drawing(model, c), jnp.uint32(0)),
        "step": lower(step.make_step(model, c), state, batch, step.hyper(c)),
        "likelihood": lower(negative_log_likelihood, model, state.params, batch),
    }
    if CORPORA[c.data.corpus].documents:
        return lowered | {"likelihood": lower(token_nll, model, state.params, batch)}
    if metric_of(c.data.corpus).teacher_forced:
        return lowered | {"prediction": lower(predictions, model, state.params, batch)}
    if not model.translates:
        return lowered
    capacity = source.shape[1] - 1 + c.decoding.max_extra
    shapes = dict(beam=c.decoding.beam, capacity=min(capacity, model.limit or capacity))
    limits = jnp.int32(c.decoding.max_extra), jnp.float32(c.decoding.alpha)
    rule = output_rule(c.decoding, [""] * V)
    search = lower(decode, model, state.params, source, *limits, **shapes, rule=rule)
    return lowered | {"decoding": search}
