"""Attention weights of every layer and head of a trained model, for any mechanism.

Before `finish`, the output of a mechanism is a weighted sum of values. If unit vectors are appended
to the values, the corresponding columns of the sum are the weights. Linear and low-rank attention
never form weights; theirs are effective weights, such as phi(q_t) phi(k_s) divided by the sum over
s. Weights of a memory, of talking heads and of differential attention may be negative.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax import config
from t2t_jax.attention.linear import Linear
from t2t_jax.attention.lowrank import Linformer, Nystrom
from t2t_jax.attention.mechanism import Mechanism
from t2t_jax.attention.memory import Memory
from t2t_jax.data.batches import gather
from t2t_jax.data.cache import ragged
from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS

_ROLES = "encoder", "decoder", "cross"
_ROWS = 32  # pairs in a batch


class Map(NamedTuple):
    """Weights [h, T, S] of one attention layer on one sentence pair."""

    role: str  # encoder, decoder or cross
    layer: int
    effective: bool  # whether these are effective weights, which the mechanism itself never forms
    weights: np.ndarray


def attention_maps(
    model: Any, params: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[Map]]:
    """For each pair the maps of all attention layers, the encoder's first, cross-attention last.

    Under teacher forcing, row t of a decoder's map belongs to the prediction of target token t, and
    column s to input s; the inputs are BOS and the target without its last token. Sources and
    targets are token ids, EOS included. Raises UsageError if a mechanism has no weights, or the
    model is masked.
    """
    if model.masked:
        raise UsageError("a masked language model reads no shifted target: give another model.")
    # Without kernels, as they do not support the columns that are appended to the values.
    model, out = model.clone(c=replace(model.c, kernels="plain")), []
    for first in range(0, len(sources), _ROWS):
        some = slice(first, first + _ROWS)
        inputs = [[BOS, *target[:-1]] for target in targets[some]]
        sides = [_padded(side, model.limit) for side in (sources[some], inputs)]
        effective: dict[tuple[str, ...], bool] = {}
        with jax.disable_jit() if _attends_in_loop(model.c) else nullcontext():
            traced = jax.jit(partial(_traced, model, effective))(params, *sides)
        weights = {(*_place(path), path): np.asarray(x, np.float32) for path, x in traced.items()}
        order = sorted(weights, key=lambda x: (_ROLES.index(x[0]), x[1]))
        for i, (source, target) in enumerate(zip(sources[some], inputs, strict=True)):
            maps = []
            for role, layer, path in order:
                T = len(source if role == "encoder" else target)
                S = len(target if role == "decoder" else source)
                own = weights[role, layer, path][i, :, :T, :S]
                maps.append(Map(role, layer, effective[path], own))
            out.append(maps)
    return out


def _padded(rows: Sequence[Sequence[int]], limit: int | None) -> np.ndarray:
    """Rows padded to int32 [B, L]; L is a multiple of 16, or `limit`, so that few shapes occur."""
    L = -(-max(map(len, rows)) // 16) * 16
    return gather(ragged(rows), np.arange(len(rows)), len(rows), min(L, limit) if limit else L)


def _traced(
    model: Any, effective: dict[tuple[str, ...], bool], params: Any, source: Array, target_in: Array
) -> dict[tuple[str, ...], Array]:
    """Weights [B, h, T, S] by the path of the module; fills in which of them are effective."""
    weights: dict[tuple[str, ...], list[Array]] = {}
    units: dict[tuple[str, ...], int] = {}
    inside: set[tuple[str, ...]] = set()  # modules whose values have the columns already

    def watch(call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        module, method = context.module, context.method_name
        if not isinstance(module, Mechanism):
            return call(*args, **kwargs)
        if not module.weighted:
            raise UsageError(
                f"{type(module).__name__} has no attention weights, as its outputs are no weighted "
                "sums of values: name a model with another mechanism."
            )
        if method in ("start", "__call__") and module.path not in inside:
            i = 1 if method == "start" else 2  # start(k, v, ...), __call__(q, k, v, ...)
            B, S, h, _ = args[i].shape
            units[module.path] = S
            eye = jnp.broadcast_to(jnp.eye(S, dtype=args[i].dtype)[None, :, None], (B, S, h, S))
            inside.add(module.path)
            out = call(*args[:i], jnp.concatenate([args[i], eye], -1), *args[i + 1 :], **kwargs)
            inside.remove(module.path)
            return out
        if method == "finish":
            (out,), S = args, units[module.path]
            effective[module.path] = isinstance(module, Linear | Memory | Linformer | Nystrom)
            weights.setdefault(module.path, []).append(out[..., -S:])
            return call(out[..., :-S])
        return call(*args, **kwargs)

    def run(module: Any) -> None:
        encoded = module.encode(source)
        if not _attends_in_loop(module.c):
            module.decode(encoded, target_in)
            return
        memory, state = module.start(encoded, target_in.shape[1])
        for t in range(target_in.shape[1]):
            _, state = module.step(memory, state, target_in[:, t], jnp.int32(t))

    with nn.intercept_methods(watch):
        model.apply({"params": params}, method=run)
    return {path: jnp.concatenate(x, 1).swapaxes(1, 2) for path, x in weights.items()}


def _attends_in_loop(c: config.Model) -> bool:
    """Whether attention is computed within a loop over positions, whose weights cannot leave it."""
    return c.architecture == "recurrent" and c.attention_feeding == "input"


def _place(path: tuple[str, ...]) -> tuple[str, int]:
    """Role and layer of a mechanism, from the path of its module."""
    name, _, number = path[0].rpartition("_")
    layer = int(number) if number.isdigit() else 0
    role = name if name in ("encoder", "decoder") and "cross_attention" not in path else "cross"
    return role, layer
