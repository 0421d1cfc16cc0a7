"""Translation of sentences in batches, with the outputs in the order of the inputs."""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax import config
from t2t_jax.data.batches import gather
from t2t_jax.data.cache import Ragged, ragged
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.inference import beam as beam_search
from t2t_jax.inference.well_formed import constrain
from t2t_jax.parts import OUTPUT_RULES, implementation
from t2t_jax.tokens import EOS, PAD
from t2t_jax.training import sharding

_ROWS = 64  # sentences in a batch; fewer if it is padded to more than _LENGTH
_LENGTH = 64
_MANY = 2048  # for so many sentences, it pays to compile the search for more shapes
_LISTED = 10  # line numbers in a warning, at most
_SHORTEST = 16  # sources are padded to this length, or to a larger power of two
Warn = Callable[[str], Any]
T = TypeVar("T")


class Translations(list[T]):
    """Translations in the order of the sentences."""

    cut: Sequence[int] = ()  # indices of those that ended at the limit of their length


def output_limit(decoding: config.Decoding, source: np.ndarray, target: np.ndarray) -> int:
    """How much longer than its input an output may be, given the lengths of the training pairs.

    The default of `max_extra` is raised if more than 1% of the targets exceed their source by more.
    """
    extra, default = target - source, config.Decoding().max_extra
    too_short = decoding.max_extra == default and np.mean(extra > default) > 0.01
    return int(extra.max()) + 1 if too_short else decoding.max_extra  # 1 for the end mark


def output_rule(decoding: config.Decoding, pieces: Iterable[str]) -> Any:
    """The rule that outputs keep, as a pytree (`well_formed.py`); None if there is none."""
    if decoding.output_rule == "none":
        return None
    return implementation(OUTPUT_RULES[decoding.output_rule].where, __package__).of([*pieces])


def translate(
    model: Any,
    params: Any,
    sentences: Sequence[str],
    vocabulary: Vocabulary,
    decoding: config.Decoding,
    **limits: Any,
) -> Translations[str]:
    """The translation of each sentence, in order; a blank sentence has an empty one.

    See `translate_tokens` for the other arguments.
    """
    ids = [[*tokens, EOS] for tokens in vocabulary.encode([s.strip() for s in sentences])]
    rule = output_rule(decoding, (vocabulary.pieces([i])[0] for i in range(vocabulary.size)))
    outputs = translate_tokens(model, params, ids, decoding, rule=rule, **limits)
    texts = Translations(vocabulary.decode(outputs))
    texts.cut = outputs.cut
    return texts


def translate_tokens(
    model: Any,
    params: Any,
    sentences: Sequence[Sequence[int]] | Ragged,
    decoding: config.Decoding,
    *,
    max_length: int | None = None,
    first: int = 1,
    rule: Any = None,
    warn: Warn = warnings.warn,
) -> Translations[list[int]]:
    """The translations of token ids: inputs end in EOS, outputs do not.

    An output has at most `max_extra` subwords more than its input. The longest sentences are
    decoded first, in batches of few shapes, each of which a process compiles once.

    Args:
      model: hashable, with the model interface (`encode`, `start`, `step`).
      params: the model's parameters, on any devices.
      max_length: length of the longest training sentence, EOS included.
      first: line number of the first sentence.
      rule: the rule that outputs keep, as `output_rule` makes it.
      warn: called with a message about sentences that are too long, or translations that are cut.
    """
    longest = model.limit or np.iinfo(np.int32).max
    sources = sentences if isinstance(sentences, Ragged) else ragged(sentences)
    _warn_of_long(sources.lengths, longest, max_length or longest, first, warn)
    mesh, compiling = sharding.mesh_of(params), threading.Lock()
    batches = list(_batches(sources, longest))

    def decode_batch(source: np.ndarray) -> np.ndarray:  # [B, S] -> [B, capacity]
        with compiling, sharding.use_mesh(mesh):
            tokens, _ = decode(
                model,
                params,
                sharding.put_batch(source, mesh),
                np.int32(decoding.max_extra),
                np.float32(decoding.alpha),
                beam=decoding.beam,
                capacity=min(source.shape[1] - 1 + decoding.max_extra, longest),
                rule=rule,
            )
        return np.asarray(tokens)

    # On one device two batches run at once: the operations of one are too small to use all cores.
    # On several devices collective operations must run in the same order everywhere.
    with ThreadPoolExecutor(2 if mesh.size == 1 else 1) as pool:
        decoded = list(pool.map(decode_batch, [source for _, source in batches]))
    outputs, cut = Translations[list[int]]([] for _ in range(len(sources))), []
    for (rows, _), tokens in zip(batches, decoded, strict=True):
        for i, row in zip(rows, tokens, strict=False):
            ends = np.flatnonzero((row == EOS) | (row == PAD))
            outputs[i] = row[: ends[0] if len(ends) else None].tolist()
            if EOS not in row:
                cut.append(i)
    outputs.cut = sorted(cut)
    if cut:
        limit = f"{decoding.max_extra:,} subwords more than the input (max_extra)"
        limit += f" or the model's {longest:,} positions" * (longest < np.iinfo(np.int32).max)
        warn(f"{_lines(outputs.cut, first)} of {len(sources):,}: translations are cut at {limit}.")
    return outputs


@partial(jax.jit, static_argnames=("model", "beam", "capacity"))
def decode(
    model: Any,
    params: Any,
    source: Array,
    max_extra: Array,
    alpha: Array,
    *,
    beam: int,
    capacity: int,
    rule: Any = None,
) -> tuple[Array, Array]:
    """Beam search: source int32 [B, S] -> tokens int32 [B, capacity], scores float32 [B].

    An output is at most `max_extra` longer than its source without EOS, and keeps the rule, if
    there is one. The output of a row that is all PAD is all PAD.
    """
    variables = {"params": params}
    subwords = (source != PAD).sum(axis=1) - 1
    encoded = model.apply(variables, source, method="encode")
    memory, state = model.apply(variables, encoded, capacity, method="start")
    step: beam_search.Step = partial(model.apply, variables, method="step")
    max_lengths = jnp.where(subwords < 0, 0, subwords + max_extra)
    if rule is not None:
        state = state, jax.vmap(rule.start)(source, jnp.minimum(max_lengths, capacity))
        step = constrain(step, rule, model.V)
    result = beam_search.search(
        step, memory, state, max_lengths=max_lengths, capacity=capacity, beam=beam, alpha=alpha
    )
    return nn.with_logical_constraint(result, ((None, None), (None,)))  # replicated on every host


def _warn_of_long(lengths: np.ndarray, limit: int, max_length: int, first: int, warn: Warn) -> None:
    """Warns of sentences longer than the model's positions or than its training sentences."""
    cut = lengths > limit
    for chosen, consequence in (
        (cut, f"the model has only {limit:,} positions: the rest is cut off."),
        (
            (lengths > max_length) & ~cut,
            f"the model was trained on sentences of at most {max_length:,}: the translation will "
            "be cut short or unreliable, so split such lines into sentences.",
        ),
    ):
        if chosen.any():
            has = "have up to" if chosen.sum() > 1 else "has"
            lines = f"{_lines(np.flatnonzero(chosen), first)} {has} {lengths[chosen].max():,}"
            warn(f"{lines} subwords with the end mark, but {consequence}")


def _lines(rows: Sequence[int] | np.ndarray, first: int) -> str:
    """Names lines by their numbers: `line 7`, or `2 lines (7, 9)`."""
    listed = ", ".join(str(first + i) for i in rows[:_LISTED]) + ", ..." * (len(rows) > _LISTED)
    return f"{len(rows):,} lines ({listed})" if len(rows) > 1 else f"line {listed}"


def _batches(sources: Ragged, longest: int) -> Iterator[tuple[list[int], np.ndarray]]:
    """Batches (indices of sentences, source int32 [B, S]); empty sentences are left out."""
    lengths = sources.lengths
    order = [int(i) for i in np.argsort(-lengths, kind="stable") if lengths[i] > 1]
    most = min(_ROWS, _power_of_two(len(order)))
    bucket = max(_SHORTEST, _power_of_two(int(lengths.max(initial=0))))
    by = 2 if len(order) >= _MANY else 4
    while order:
        while bucket // by >= max(_SHORTEST, lengths[order[0]]):
            bucket //= by
        S = min(bucket, longest)
        B = max(1, min(most, _ROWS * _LENGTH // S))
        rows, order = order[:B], order[B:]
        source = gather(sources, np.array(rows), B, S)
        source[: len(rows)][lengths[rows] > S, -1] = EOS
        yield rows, source


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
