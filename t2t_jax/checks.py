"""Checks of configs: of each field, of fields against each other, and of positions against data.

Only what is to be trained must have positions for its sentences: a study's rows have the paper's
max_length until a preset lowers it, and stored runs are shown whatever their config.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from t2t_jax import config
from t2t_jax.attention import choice
from t2t_jax.config import Config, Model, has
from t2t_jax.data.cache import Split
from t2t_jax.data.corpora import CORPORA, parse_options
from t2t_jax.errors import UsageError, near
from t2t_jax.parts import ARCHITECTURES, FEED_FORWARD, OF_OPTIMIZERS, OPTIMIZERS, POSITIONS


def validate(c: Config) -> None:
    """Raises an error if a value is impossible, has no effect, or does not fit another."""
    values, m = config.flatten(c).items(), c.model
    of_values = (problem for name, value in values for problem in _value(name, value))
    for problem in chain(of_values, _idle(c), _attention(m), _widths(m), _others(c)):
        raise UsageError(problem)


def _value(name: str, value: Any) -> Iterator[str]:
    """Yields why a value is not of the type, the choices or the range of its field."""
    kind = config.field_type(name)
    if isinstance(kind, tuple):
        if value not in kind:
            yield f"{name} cannot be {value!r}: {near(str(value), kind)}"
    elif type(value) is not kind and not (kind is float and type(value) is int):
        yield f"{name} must be of type {kind.__name__}, not {value!r}."
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{name} must be a finite number, not {value}."
    for check in getattr(config.HINTS[name], "__metadata__", ()):
        if not check.holds(value):
            yield f"{name} {check.words}, so {value} is impossible."


def _idle(c: Config) -> Iterator[str]:
    """Yields which fields are set and have no effect."""
    used = OPTIMIZERS[c.training.optimizer].fields
    for name, value in config.flatten(c).items():
        setting = config.setting_without(c.model, name)
        if name in OF_OPTIMIZERS and name not in used:
            setting = f"optimizer={c.training.optimizer}"
        if setting and value != config.FIELDS[name].default:
            yield f"{name}={value} has no effect with {setting}: leave {name} out."


def _attention(c: Model) -> Iterator[str]:
    """Yields why heads, mechanisms and layers do not fit each other."""
    if c.h_kv and c.h % c.h_kv:
        yield (
            f"h_kv={c.h_kv} does not divide h={c.h}, so that heads of queries cannot share heads "
            "of keys and values in groups of equal size: choose a divisor of h."
        )
    width = c.d_k if has(c, "d_k") else c.d_model
    recurrent = c.architecture == "recurrent"
    layers = 1 if recurrent else c.N
    for role in ("encoder", "decoder", "cross"):
        partners = {"dropout": "P_drop_attention > 0"} if c.P_drop_attention else {}
        if c.d_c:
            partners["latent"] = f"d_c={c.d_c}"
        if c.parametrization == "mup":
            partners["mup"] = "parametrization=mup"
        if c.document_attention == "within" and role == "decoder":
            partners["documents"] = "document_attention=within"
            if c.decoder_conv:
                yield (
                    f"decoder_conv={c.decoder_conv} crosses the borders of documents: leave out "
                    "decoder_conv or document_attention=within."
                )
        if role != "cross":
            needed = POSITIONS[c.positions].partners
            partners |= dict.fromkeys(needed, f"positions={c.positions}")
        pieces = choice.pieces(getattr(c, f"{role}_attention"))
        for piece in pieces:
            choice.check(piece, role, width, partners, recurrent)
            if choice.entry(piece).gates(c.d_k) and not has(c, "h"):
                yield (
                    f"{role}_attention={piece} needs gates, which architecture={c.architecture} "
                    "does not project: use a mechanism without gates."
                )
        if len(pieces) > layers:
            yield (
                f"{role}_attention={','.join(pieces)} names {len(pieces)} mechanisms, but the "
                f"attention layers that take them in turn are {layers}: name at most {layers}."
            )


def _widths(c: Model) -> Iterator[str]:
    """Yields why positions or directions do not fit the architecture or its widths."""
    if c.encoder_direction == "both" and c.d_model % 2:
        yield f"encoder_direction=both halves d_model, so it must be even, not {c.d_model}."
    positions = POSITIONS[c.positions]
    if not has(c, "positions"):
        return
    if positions.partners and not (has(c, "encoder_attention") or has(c, "decoder_attention")):
        yield (
            f"positions={c.positions} are for self-attention, which architecture={c.architecture} "
            "lacks: use learned or sinusoid."
        )
    if c.d_c and positions.rotate and c.d_k < 4:
        yield f"d_c with positions={c.positions} rotates half of d_k={c.d_k}: set 4 or more."
    if positions.even and (width := getattr(c, positions.even)) % 2:
        yield (
            f"{c.positions} positions pair features, so {positions.even} must be even, not "
            f"{width}; use positions=learned for an odd width."
        )


def _others(c: Config) -> Iterator[str]:
    """Yields why other fields of the model, the data and the training do not fit each other."""
    m, d, optimizer = c.model, c.data, c.training.optimizer
    if m.P_drop_ff and not FEED_FORWARD[m.feed_forward].dropout:
        yield f"feed_forward={m.feed_forward} has no dropout of its own: leave P_drop_ff out."
    parse_options(d.corpus, d.task_options)
    if m.architecture == "encoder" and (CORPORA[d.corpus].prompts or CORPORA[d.corpus].words):
        yield (
            f"architecture=encoder predicts masked words, which corpus {d.corpus} does not ask "
            "for: use architecture=decoder or transformer."
        )
    if m.document_attention != "across" and not CORPORA[d.corpus].documents:
        yield (
            f"document_attention={m.document_attention} has no effect on corpus {d.corpus}, which "
            "has no documents: leave it out."
        )
    architecture = ARCHITECTURES[m.architecture]
    if CORPORA[d.corpus].documents and (architecture.translates or architecture.masked):
        causal = (n for n, x in ARCHITECTURES.items() if not (x.translates or x.masked))
        yield (
            f"architecture={m.architecture} does not predict the next word of documents, of which "
            f"corpus {d.corpus} consists: use architecture={' or '.join(causal)}."
        )
    rule = c.decoding.output_rule
    if rule not in ("none", CORPORA[d.corpus].output_rule):
        yield f"output_rule={rule} is not for outputs of corpus {d.corpus}: leave it out."
    if m.parametrization == "mup" and not OPTIMIZERS[optimizer].mup:
        able = ", ".join(name for name, other in OPTIMIZERS.items() if other.mup)
        yield (
            f"parametrization=mup has no learning rates for optimizer={optimizer}, only for "
            f"{able}: choose one of these, or parametrization=standard."
        )
    if d.max_length > d.batch_tokens:
        yield (
            f"a batch of {d.batch_tokens} tokens (batch_tokens) cannot hold one sentence of "
            f"{d.max_length} (max_length): raise the first or lower the second."
        )


def check_positions(c: Config) -> None:
    """Raises an error if a mechanism lacks positions that sentences of max_length need."""
    longest = c.data.max_length
    translates = ARCHITECTURES[c.model.architecture].translates
    source, target = _translated(c, longest) if translates else (longest, longest)
    sentences = f"sentences of up to max_length={longest} tokens"
    _check_capacity(c, source, target, sentences, ", or lower max_length")


def check_split(c: Config, name: str, split: Split, limit: int | None, translated: bool) -> None:
    """Raises an error if the model lacks positions that the sentences of a split need.

    `limit` is its number of learned positions. A split that is not `translated` is read under
    teacher forcing.
    """
    source, target = (int(side.lengths.max()) for side in (split.source, split.target))
    if not translated and limit is not None and max(source, target) > limit:
        raise UsageError(
            f"{name} has a sentence of {max(source, target)} subwords and the model {limit} "
            "learned positions (max_length + max_extra): raise max_length, or set "
            "positions=sinusoid."
        )
    if not ARCHITECTURES[c.model.architecture].translates:
        source = target  # the only sequence that a language model reads
    sentences = f"the sentences of {name}, of up to {max(source, target)} tokens,"
    if translated:
        source, target = _translated(c, source)
    _check_capacity(c, source, target, sentences)


def _translated(c: Config, source: int) -> tuple[int, int]:
    """Returns the positions of the source and of the output when it is translated.

    Translation pads sources to a power of two, and outputs are up to max_extra tokens longer.
    """
    padded = 1 << max(4, (source - 1).bit_length())
    return padded, padded + c.decoding.max_extra - 1


def _check_capacity(c: Config, source: int, target: int, sentences: str, remedy: str = "") -> None:
    for role, needed in (("encoder", source), ("cross", source), ("decoder", target)):
        name = f"{role}_attention"
        for piece in choice.pieces(getattr(c.model, name)) if has(c.model, name) else ():
            option, given = choice.capacity(piece)
            if given < needed:
                raise UsageError(
                    f"{name}={piece} has {given} positions, but {sentences} need {needed}: set its "
                    f"{option} to {needed} or more{remedy}."
                )
