"""Every hyperparameter, in the paper's symbols; the defaults are Table 3's base row.

A `Config` has four sections whose field names are all different, so that a difference from base is
a flat mapping: `replace(Config(), h=4, d_k=128, d_v=128)` is a row (A) of Table 3.
"""

import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, Literal

from t2t_jax.attention import registry
from t2t_jax.data.corpora import CORPORA, parse_options
from t2t_jax.errors import UsageError, near
from t2t_jax.parts import (
    ARCHITECTURES,
    FEED_FORWARD,
    NORM_PLACEMENTS,
    NORMS,
    OF_OPTIMIZERS,
    OPTIMIZERS,
    POSITIONS,
    SCHEDULES,
)
from t2t_jax.synonyms import ALSO


def _field(default: Any, help: str, *choices: Iterable[str]) -> Any:
    """Declares a field; `choices` may be tables, to which study files add entries."""
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class Model:
    """Figure 1 and section 3 of the paper, and the fields of other architectures.

    These fields are static: changing one compiles another program. A field that the architecture
    lacks keeps its default.
    """

    architecture: str = _field(
        "transformer",
        "the model; encoder and decoder use one stack of Figure 1 as a language model",
        ARCHITECTURES,
    )
    N: int = _field(6, "layers in the encoder, and in the decoder")
    d_model: int = _field(512, "width of the residual stream")
    d_ff: int = _field(2048, "width of the feed-forward layer")
    h: int = _field(8, "attention heads")
    h_kv: int = _field(
        0,
        "heads of keys and values, each shared by h / h_kv heads of queries (multi-query: 1); 0 "
        "means h",
    )
    d_k: int = _field(64, "width of a head's queries and keys")
    d_v: int = _field(64, "width of a head's values")
    positions: str = _field("sinusoid", "position scheme (`list parts`)", POSITIONS)
    norm: str = _field("layer_norm", "norm of Add & Norm (`list parts`)", NORMS)
    norm_placement: str = _field(
        "post",
        "norm after the residual connection (paper), or before each sub-layer",
        NORM_PLACEMENTS,
    )
    feed_forward: str = _field("relu", "feed-forward layer (`list parts`)", FEED_FORWARD)
    qk_norm: str = _field(
        "none", "norm of each head's queries and keys (the paper has none)", ("none",), NORMS
    )
    attention_gate: Literal["none", "head", "element"] = _field(
        "none",
        "sigmoid gate of each head's output, computed from the queries' input: one factor a head, "
        "or one an element (the paper has none)",
    )
    encoder_attention: str = _field(
        "scaled_dot_product",
        "mechanism of encoder self-attention, or one for each layer in turn: linear,local:w=8",
    )
    decoder_attention: str = _field(
        "scaled_dot_product", "mechanism of decoder self-attention, likewise"
    )
    cross_attention: str = _field(
        "scaled_dot_product", "mechanism of encoder-decoder attention, likewise"
    )
    cell: Literal["lstm", "gru"] = _field("lstm", "recurrent: the recurrence")
    encoder_direction: Literal["forward", "both"] = _field(
        "forward",
        "recurrent: read the source forward, or in both directions with half of d_model each",
    )
    attention_feeding: Literal["none", "output", "input"] = _field(
        "none",
        "recurrent: what attention feeds: nothing (a single context vector), the output (Luong) or "
        "the recurrence (Bahdanau)",
    )
    kernel: int = _field(3, "convolutional: width of a convolution")
    dilation: int = _field(1, "convolutional: layer i is dilated by dilation^i (ByteNet: 2)")
    P_drop_attention: float = _field(0.0, "dropout of attention weights (the paper has none)")
    P_drop_ff: float = _field(0.0, "dropout of the hidden feed-forward layer (the paper has none)")
    parametrization: Literal["standard", "mup"] = _field(
        "standard",
        "standard (paper), or the maximal update parametrization, whose steps change activations "
        "by about as much at every width",
    )
    mup_width: int = _field(512, "mup: d_model at which it equals the standard parametrization")
    dtype: Literal["auto", "float32", "bfloat16"] = _field(
        "auto", "compute type; auto is bfloat16 on accelerators, float32 on a CPU"
    )
    kernels: Literal["auto", "plain", "fused"] = _field(
        "auto",
        "GPU kernels, and on TPUs a cross-entropy of one part of the tokens at a time "
        "(`t2t_jax/ops`): auto uses them on these devices in bfloat16, plain never, fused always "
        "(interpreted on a CPU; a GPU needs bfloat16)",
    )


@dataclass(frozen=True)
class Data:
    """Section 5.1: the corpus, its subwords and its batches."""

    corpus: str = _field("wmt14", "the corpus", CORPORA)
    source: str = _field("en", "source language")
    target: str = _field("de", "target language")
    directory: str = _field("", "directory with the files of the corpus")
    train: str = _field("", "text: path of the training files, without .LANGUAGE[.gz]")
    dev: str = _field("", "text: path of the development files, likewise")
    test: str = _field("", "text: path of the test files, likewise")
    grade: Literal["easy", "normal", "hard"] = _field(
        "normal", "grammar: difficulty of the sentences (`help corpus`)"
    )
    task_options: str = _field(
        "", "diagnostic tasks: options, such as keys=8,length=64 (`help corpus`)"
    )
    pairs: int = _field(
        0,
        "training pairs, a random sample of the corpus; 0 means all (grammar: 60,000, and more on "
        "request; diagnostic tasks: 20,000, or as many as requested)",
    )
    vocabulary: int = _field(
        37_000,
        "number of subwords, shared by both languages; diagnostic tasks: the number of words, and "
        "4 special tokens",
    )
    max_length: int = _field(256, "longest training sentence, in subwords including EOS")
    batch_tokens: int = _field(25_000, "tokens in a batch, on each side")
    num_buckets: int = _field(8, "number of batch shapes, each compiled once")


@dataclass(frozen=True)
class Training:
    """Sections 5.2 to 5.4."""

    steps: int = _field(100_000, "training steps")
    optimizer: str = _field("adam", "optimizer (`list parts`)", OPTIMIZERS)
    schedule: str = _field("inverse_sqrt", "learning-rate schedule (`list parts`)", SCHEDULES)
    warmup: int = _field(4000, "steps of linear warm-up")
    peak_lr: float = _field(
        0.0,
        "learning rate at the end of warm-up; 0 means (d_model warmup)^-0.5 (mup: mup_width for "
        "d_model)",
    )
    lr_scale: float = _field(1.0, "factor on the learning rate")
    beta1: float = _field(0.9, "Adam: decay rate of the first moment; Lion: of the update")
    beta2: float = _field(0.98, "Adam: decay rate of the second moment; Lion: of the momentum")
    eps: float = _field(1e-9, "Adam: constant in the denominator")
    weight_decay: float = _field(
        0.0,
        "decoupled weight decay: a step subtracts learning rate * weight_decay * W from every "
        "parameter but biases and the scales of norms (the paper has none)",
    )
    clip_norm: float = _field(
        0.0, "norm of all gradients that a step does not exceed; 0 means any (paper)"
    )
    P_drop: float = _field(0.1, "dropout of sub-layer outputs and of embeddings")
    eps_ls: float = _field(0.1, "label smoothing")
    smoothing: Literal["uniform", "others"] = _field(
        "uniform",
        "spread eps_ls over all subwords (paper), or over all but the target (tensor2tensor)",
    )
    accumulate: int = _field(1, "micro-batches whose gradients a step sums")
    evaluate_every: int = _field(1000, "steps between checkpoints, each with a dev perplexity")
    patience: int = _field(0, "stop after this many evaluations without improvement; 0 means never")
    average: int = _field(
        1, "number of last checkpoints averaged at the end; 1 means no averaging (Table 3)"
    )
    seed: int = _field(0, "seed of initialisation, dropout and batch order")


@dataclass(frozen=True)
class Decoding:
    """Section 6.1."""

    beam: int = _field(4, "beam size; 1 is greedy")
    alpha: float = _field(0.6, "length penalty, GNMT form")
    max_extra: int = _field(50, "subwords by which an output may exceed its input")


@dataclass(frozen=True)
class Config:
    model: Model = Model()
    data: Data = Data()
    training: Training = Training()
    decoding: Decoding = Decoding()

    def __post_init__(self) -> None:
        _validate(self)


SECTIONS: dict[str, type] = {
    "model": Model,
    "data": Data,
    "training": Training,
    "decoding": Decoding,
}
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Model)}
SECTION_OF = {f.name: s for s, cls in SECTIONS.items() for f in dataclasses.fields(cls)}
# A compiled step takes these as arrays (`training.step.Hyper`): runs that differ in them share it.
TRACED = ("P_drop", "eps_ls", "peak_lr", "lr_scale", "warmup", "seed")
PATHS = ("directory", "train", "dev", "test")  # the content of these files is fingerprinted
# Fields that determine the sentences.
SENTENCES = ("corpus", "source", "target", "grade", "task_options", *PATHS)

# Fields in which tensor2tensor's transformer_base_v2 differs from the paper.
T2T: Mapping[str, Any] = dict(
    norm_placement="pre",
    P_drop_attention=0.1,
    P_drop_ff=0.1,
    positions="sinusoid_halves",
    lr_scale=2.0,
    warmup=8000,
    smoothing="others",
    max_extra=100,
)
PROFILES: dict[str, Mapping[str, Any]] = {"paper": {}, "t2t": T2T}


def replace(config: Config, **changes: Any) -> Config:
    """Returns `config` with the named fields changed, in any section.

    With another architecture, fields that it lacks are reset to their defaults.

    Raises:
      UsageError: a name is no field, or a value is out of its range.
    """
    if changes.get("architecture", config.model.architecture) != config.model.architecture:
        new = ARCHITECTURES.get(changes["architecture"])
        fields = new.fields if new else ()
        lacking = (n for n in ARCHITECTURES[config.model.architecture].fields if n not in fields)
        changes = {n: _DEFAULTS[n] for n in lacking} | changes
    sections: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        sections.setdefault(_section(name), {})[name] = value
    updated = {s: dataclasses.replace(getattr(config, s), **c) for s, c in sections.items()}
    return dataclasses.replace(config, **updated)


def flatten(config: Config) -> dict[str, Any]:
    """Returns all fields and their values, in order; the inverse is `replace(Config(), **flat)`."""
    return {name: getattr(getattr(config, s), name) for name, s in SECTION_OF.items()}


def difference(config: Config, base: Config) -> dict[str, tuple[Any, Any]]:
    """Returns the fields in which two configs differ: name -> (in `config`, in `base`)."""
    values, base_values = flatten(config), flatten(base)
    return {n: (x, base_values[n]) for n, x in values.items() if x != base_values[n]}


def describe(config: Config, paper: Config) -> str:
    """Returns the differences from the paper's config as text: `N 3 (paper: 6), steps 50 (...)`.

    Paths and the seed are left out.
    """
    fields = difference(config, paper)
    names = (n for n in fields if n not in (*PATHS, "seed"))
    return ", ".join(f"{n} {fields[n][0]} (paper: {fields[n][1]})" for n in names)


def profile(name: str) -> Config:
    """Returns the base config of the paper (`paper`) or of tensor2tensor (`t2t`)."""
    if name not in PROFILES:
        raise UsageError(f"there is no profile {name!r}: {near(name, PROFILES)}")
    return replace(Config(), **PROFILES[name])


def field_type(name: str) -> type | tuple[str, ...]:
    """Returns the type of a field: a class, or the tuple of its choices."""
    hint, choices = _declared(_section(name), name)
    return tuple(chain(*choices)) or typing.get_args(hint) or hint


@cache
def _declared(section: str, name: str) -> tuple[Any, tuple[Iterable[str], ...]]:
    """Returns the annotation and the choices of a field."""
    cls = SECTIONS[section]
    choices = {f.name: f.metadata["choices"] for f in dataclasses.fields(cls)}[name]
    return typing.get_type_hints(cls)[name], choices


def _section(name: str) -> str:
    if name not in SECTION_OF:
        raise UsageError(f"there is no config field {name!r}: {near(name, SECTION_OF, ALSO)}")
    return SECTION_OF[name]


def has(c: Model, name: str) -> bool:
    """Returns whether a field has an effect on the model that `c` describes."""
    if name == "cross_attention" and c.architecture == "recurrent":
        return c.attention_feeding != "none"
    if name == "mup_width" and c.parametrization == "standard":
        return False
    specific = {n for architecture in ARCHITECTURES.values() for n in architecture.fields}
    return name not in specific or name in ARCHITECTURES[c.architecture].fields


_AT_LEAST_ONE = (
    "N d_model d_ff h d_k d_v mup_width kernel dilation vocabulary max_length batch_tokens "
    "num_buckets steps warmup accumulate evaluate_every average beam"
).split()
_AT_LEAST_ZERO = ("h_kv pairs peak_lr weight_decay clip_norm patience seed alpha max_extra").split()
_FRACTIONS = "P_drop P_drop_attention P_drop_ff eps_ls beta1 beta2".split()


def _validate(config: Config) -> None:
    flat = flatten(config)
    for name, value in flat.items():
        _validate_type(name, value)
    _validate_ranges(flat)
    _validate_architecture(config.model)
    _validate_attention(config.model)
    _validate_feed_forward(config.model)
    _validate_positions(config.model)
    _validate_task(config)
    _validate_optimizer(config)
    if flat["max_length"] > flat["batch_tokens"]:
        raise UsageError(
            f"a batch of {flat['batch_tokens']} tokens (batch_tokens) cannot hold one sentence of "
            f"{flat['max_length']} (max_length): raise the first or lower the second."
        )


def _validate_type(name: str, value: Any) -> None:
    kind = field_type(name)
    if isinstance(kind, tuple):
        if value not in kind:
            raise UsageError(f"{name} cannot be {value!r}: {near(str(value), kind)}")
    elif type(value) is not kind and not (kind is float and type(value) is int):
        raise UsageError(f"{name} must be of type {kind.__name__}, not {value!r}.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} must be a finite number, not {value}.")


def _validate_ranges(flat: Mapping[str, Any]) -> None:
    for name in _AT_LEAST_ONE:
        if flat[name] < 1:
            raise UsageError(f"{name} must be at least 1, not {flat[name]}.")
    for name in _AT_LEAST_ZERO:
        if flat[name] < 0:
            raise UsageError(f"{name} cannot be negative, but is {flat[name]}.")
    for name in _FRACTIONS:
        if not 0 <= flat[name] < 1:
            raise UsageError(f"{name} must be at least 0 and below 1, not {flat[name]}.")
    for name, maximum in (("seed", 2**32 - 1), ("num_buckets", 255)):
        if flat[name] > maximum:
            raise UsageError(f"{name} must be at most {maximum:,}, not {flat[name]:,}.")
    for name in ("eps", "lr_scale"):
        if flat[name] <= 0:
            raise UsageError(f"{name} must be positive, not {flat[name]}.")


# The setting with which a field has no effect in an architecture that has the field.
_WITHOUT = {"cross_attention": "attention_feeding=none", "mup_width": "parametrization=standard"}


def _validate_architecture(c: Model) -> None:
    """Raises an error if a field is set that has no effect on the model."""
    for field_ in dataclasses.fields(c):
        name, value = field_.name, getattr(c, field_.name)
        if not has(c, name) and value != field_.default:
            setting = f"architecture={c.architecture}"
            if name in ARCHITECTURES[c.architecture].fields:
                setting += f" and {_WITHOUT[name]}"
            raise _without_effect(name, value, setting)
    if c.encoder_direction == "both" and c.d_model % 2:
        raise UsageError(
            f"encoder_direction=both halves d_model, so it must be even, not {c.d_model}."
        )


def _without_effect(name: str, value: Any, setting: str) -> UsageError:
    return UsageError(f"{name}={value} has no effect with {setting}: leave {name} out.")


def _validate_optimizer(c: Config) -> None:
    """Raises an error if a field has no effect on the optimizer, or muP has no rates for it."""
    entry, setting = OPTIMIZERS[c.training.optimizer], f"optimizer={c.training.optimizer}"
    for name in OF_OPTIMIZERS:
        value = getattr(c.training, name)
        if name not in entry.fields and value != getattr(Training, name):
            raise _without_effect(name, value, setting)
    if c.model.parametrization == "mup" and not entry.mup:
        able = ", ".join(name for name, other in OPTIMIZERS.items() if other.mup)
        raise UsageError(
            f"parametrization=mup has no learning rates for {setting}, only for {able}: choose one "
            "of these, or parametrization=standard."
        )


def _validate_task(c: Config) -> None:
    parse_options(c.data.corpus, c.data.task_options)
    if CORPORA[c.data.corpus].prompts and c.model.architecture == "encoder":
        raise UsageError(
            f"architecture=encoder predicts masked words, which corpus {c.data.corpus} does not "
            "ask for: use architecture=decoder or transformer."
        )


def _validate_attention(c: Model) -> None:
    """Raises an error if heads, mechanisms and layers do not fit each other."""
    if c.h_kv and c.h % c.h_kv:
        raise UsageError(
            f"h_kv={c.h_kv} does not divide h={c.h}, so that heads of queries cannot share "
            "heads of keys and values in groups of equal size: choose a divisor of h."
        )
    positions, width = POSITIONS[c.positions], c.d_k if has(c, "d_k") else c.d_model
    for role in ("encoder", "decoder", "cross"):
        partners = {"dropout": "P_drop_attention > 0"} if c.P_drop_attention else {}
        if c.parametrization == "mup":
            partners["mup"] = "parametrization=mup"
        if role != "cross":
            partners |= dict.fromkeys(positions.partners, f"positions={c.positions}")
        pieces = registry.pieces(getattr(c, f"{role}_attention"))
        for piece in pieces:
            registry.check(piece, role, width, partners, c.architecture == "recurrent")
            if not has(c, "h") and registry.gates(piece, c.d_k):
                raise UsageError(
                    f"{role}_attention={piece} needs gates, which architecture={c.architecture} "
                    "does not project: use a mechanism without gates."
                )
        layers = 1 if c.architecture == "recurrent" else c.N
        if len(pieces) > layers:
            raise UsageError(
                f"{role}_attention={','.join(pieces)} names {len(pieces)} mechanisms, but the "
                f"attention layers that take them in turn are {layers}: name at most {layers}."
            )


def _validate_feed_forward(c: Model) -> None:
    if c.P_drop_ff and not FEED_FORWARD[c.feed_forward].dropout:
        raise UsageError(
            f"feed_forward={c.feed_forward} has no dropout of its own: leave P_drop_ff out."
        )


def _validate_positions(c: Model) -> None:
    """Raises an error if the positions do not fit the architecture or its width."""
    positions = POSITIONS[c.positions]
    if not has(c, "positions"):
        return
    if positions.partners and not (has(c, "encoder_attention") or has(c, "decoder_attention")):
        raise UsageError(
            f"positions={c.positions} are for self-attention, which architecture={c.architecture} "
            "lacks: use learned or sinusoid."
        )
    if positions.even and getattr(c, positions.even) % 2:
        raise UsageError(
            f"{c.positions} positions pair features, so {positions.even} must be even, not "
            f"{getattr(c, positions.even)}; use positions=learned for an odd width."
        )
