"""Sentences in, translations out, in order."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax import config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.inference import beam as beam_search
from t2t_jax.tokens import EOS, PAD
from t2t_jax.training import sharding

_ROWS = 64  # sentences decoded together, fewer where they are longer than _LENGTH
_LENGTH = 64
_MANY = 32  # batches for which it pays to compile the search for more shapes
_SHORTEST = 16  # source lengths are padded to this or to a power of two above it
Warn = Callable[[str], Any]


class Tokens(Protocol):
    """Sentences as token ids, EOS included: lists, or a `Ragged` of the cache."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Sequence[int] | np.ndarray: ...


def translate(
    model: Any,
    params: Any,
    sentences: Sequence[str],
    vocabulary: Vocabulary,
    decoding: config.Decoding,
    *,
    longest: int | None = None,
    warn: Warn = warnings.warn,
) -> list[str]:
    """One translation for each sentence, in order; a blank sentence gives an empty one.

    Args:
      model: anything with the model interface (`encode`, `start`, `step`); hashable.
      params: its parameters, wherever they are placed.
      decoding: beam, length penalty, and the longest output beyond the input's length.
      longest: the positions the model has, EOS included, if it has a limit.
      warn: is told of every sentence that `longest` cuts, by its line number.
    """
    ids = [[*tokens, EOS] for tokens in vocabulary.encode([s.strip() for s in sentences])]
    return vocabulary.decode(
        translate_tokens(model, params, ids, decoding, longest=longest, warn=warn)
    )


def translate_tokens(
    model: Any,
    params: Any,
    sentences: Tokens,
    decoding: config.Decoding,
    *,
    longest: int | None = None,
    warn: Warn = warnings.warn,
) -> list[list[int]]:
    """`translate` on token ids, EOS included in the input and left out of the output.

    An output has at most `max_extra` subwords more than its input. Sentences are decoded longest
    first in batches of few shapes, each compiled once a process.
    """
    longest = longest or np.iinfo(np.int32).max
    outputs: list[list[int]] = [[] for _ in range(len(sentences))]
    mesh, compiling = sharding.mesh_of(params), threading.Lock()

    def decoded(batch: tuple[list[int], np.ndarray]) -> np.ndarray:
        _, source = batch
        with compiling, sharding.on(mesh):
            tokens, _ = decode(
                model,
                params,
                sharding.put_batch(source, mesh),
                np.int32(decoding.max_extra),
                np.float32(decoding.alpha),
                beam=decoding.beam,
                capacity=min(source.shape[1] - 1 + decoding.max_extra, longest),
                few=len(source) // 4 if len(batches) >= _MANY else 0,
            )
        return np.asarray(tokens)

    batches = list(_batches(sentences, longest, warn))
    # Operations of a step are too small for all cores; what devices exchange needs one order.
    with ThreadPoolExecutor(2 if mesh.size == 1 else 1) as pool:
        found = list(pool.map(decoded, batches))
    for (rows, _), tokens in zip(batches, found, strict=True):
        for i, row in zip(rows, tokens, strict=False):
            outputs[i] = _until_end(row)
            room = len(sentences[i]) - 1 + decoding.max_extra
            if len(outputs[i]) == longest < room:
                warn(f"line {i + 1}: the translation is cut at the model's {longest} positions.")
    return outputs


@partial(jax.jit, static_argnames=("model", "beam", "capacity", "few"))
def decode(
    model: Any,
    params: Any,
    source: Array,
    max_extra: Array,
    alpha: Array,
    *,
    beam: int,
    capacity: int,
    few: int = 0,
) -> tuple[Array, Array]:
    """Beam search from source int32 [B, S] -> tokens int32 [B, capacity], scores float32 [B].

    An output is at most `max_extra` longer than its source, not counting the source's EOS; a row
    that is all PAD stays so.
    """
    variables = {"params": params}
    subwords = (source != PAD).sum(axis=1) - 1
    encoded = model.apply(variables, source, method="encode")
    memory, state = model.apply(variables, encoded, capacity, method="start")
    found = beam_search.search(
        partial(model.apply, variables, method="step"),
        memory,
        state,
        max_lengths=jnp.where(subwords < 0, 0, subwords + max_extra),
        capacity=capacity,
        beam=beam,
        alpha=alpha,
        few=few,
    )
    return nn.with_logical_constraint(found, ((None, None), (None,)))  # whole, on every host


def _batches(sentences: Tokens, longest: int, warn: Warn) -> Iterator[tuple[list[int], np.ndarray]]:
    """Batches (indices, source int32 [B, S]) that cover every sentence that is not empty."""
    lengths = np.array([len(sentences[i]) for i in range(len(sentences))], int)
    for line in np.flatnonzero(lengths > longest) + 1:
        warn(
            f"line {line}: the sentence has {lengths[line - 1]} subwords with its end mark, but "
            f"the model only {longest} positions: the rest is cut off."
        )
    order = [int(i) for i in np.argsort(-lengths, kind="stable") if lengths[i] > 1]
    most = min(_ROWS, _power_of_two(len(order)))
    bucket = max(_SHORTEST, _power_of_two(int(lengths.max(initial=0))))
    by = 2 if len(order) >= _MANY * _ROWS else 4
    while order:
        while bucket // by >= max(_SHORTEST, lengths[order[0]]):
            bucket //= by
        S = min(bucket, longest)
        B = max(1, min(most, _ROWS * _LENGTH // S))
        rows, order = order[:B], order[B:]
        source = np.full((B, S), PAD, np.int32)
        for row, i in zip(source, rows, strict=False):
            kept = sentences[i][: S - 1]
            row[: len(kept)] = kept
            row[min(int(lengths[i]), S) - 1] = EOS
        yield rows, source


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _until_end(tokens: np.ndarray) -> list[int]:
    stop = np.flatnonzero((tokens == EOS) | (tokens == PAD))
    return tokens[: stop[0] if len(stop) else None].tolist()
