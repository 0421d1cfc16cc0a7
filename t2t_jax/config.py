"""Every hyperparameter, in the paper's symbols; the defaults are Table 3's base row.

A `Config` has four sections whose field names are all different, so that a difference from base is
a flat mapping: `replace(Config(), h=4, d_k=128, d_v=128)` is a row (A) of Table 3.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

from t2t_jax import parts
from t2t_jax.data.corpora import CORPORA
from t2t_jax.errors import UsageError, near


class Check(NamedTuple):
    """What the value of a field must be: a condition, and its words in an error."""

    holds: Callable[[Any], bool]
    words: str


Count = Annotated[int, Check(lambda x: x >= 1, "must be at least 1")]
Size = Annotated[int, Check(lambda x: x >= 0, "cannot be negative")]
Amount = Annotated[float, Check(lambda x: x >= 0, "cannot be negative")]
Positive = Annotated[float, Check(lambda x: x > 0, "must be positive")]
Share = Annotated[float, Check(lambda x: 0 <= x < 1, "must be at least 0 and below 1")]
Seed = Annotated[Size, Check(lambda x: x < 2**32, "must be at most 2^32 - 1")]


def _field(default: Any, help: str, *tables: Iterable[str]) -> Any:
    """Declares a field; its values are the names in `tables`, to which study files add entries."""
    return field(default=default, metadata={"help": help, "tables": tables})


@dataclass(frozen=True)
class Model:
    """Figure 1 and section 3 of the paper, and the fields of other architectures.

    These fields are static: changing one compiles another program. A field that the architecture
    lacks keeps its default.
    """

    architecture: str = _field(
        "transformer", "the model; encoder and decoder are language models", parts.ARCHITECTURES
    )
    N: Count = _field(6, "layers in the encoder, and in the decoder")
    d_model: Count = _field(512, "width of the residual stream")
    d_ff: Count = _field(2048, "width of the feed-forward layer")
    h: Count = _field(8, "attention heads")
    h_kv: Size = _field(0, "heads of keys and values (multi-query: 1); 0 means h")
    d_k: Count = _field(64, "width of a head's queries and keys")
    d_v: Count = _field(64, "width of a head's values")
    d_c: Size = _field(
        0, "width of a latent of keys and values, which alone is stored in decoding (MLA); 0: none"
    )
    positions: str = _field("sinusoid", "position scheme (`list parts`)", parts.POSITIONS)
    norm: str = _field("layer_norm", "norm of Add & Norm (`list parts`)", parts.NORMS)
    norm_placement: str = _field(
        "post", "placement of norms and residual connections (`list parts`)", parts.NORM_PLACEMENTS
    )
    feed_forward: str = _field("relu", "feed-forward layer (`list parts`)", parts.FEED_FORWARD)
    embeddings: Literal["tied", "untied"] = _field(
        "tied", "one matrix for embeddings and softmax (paper), or one for each"
    )
    logit_cap: Amount = _field(
        0.0, "cap of logits x: cap tanh(x / cap), without a fused cross-entropy; 0: none (paper)"
    )
    qk_norm: str = _field(
        "none", "norm of each head's queries and keys (the paper has none)", ("none",), parts.NORMS
    )
    attention_gate: Literal["none", "head", "element"] = _field(
        "none", "sigmoid gate of each head's output, or of its elements (the paper has none)"
    )
    decoder_conv: Size = _field(
        0, "width of causal convolutions after W_Q, W_K and W_V of decoder self-attention; 0: none"
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
    document_attention: Literal["across", "within"] = _field(
        "across", "decoder: attention across the documents of a sequence, or within each"
    )
    cell: str = _field("lstm", "recurrent: the recurrence (`list parts`)", parts.CELLS)
    encoder_direction: Literal["forward", "both"] = _field(
        "forward", "recurrent: read the source forward, or both ways with half of d_model each"
    )
    attention_feeding: Literal["none", "output", "input"] = _field(
        "none", "recurrent: attention feeds nothing, the output (Luong), the recurrence (Bahdanau)"
    )
    kernel: Count = _field(3, "convolutional: width of a convolution")
    dilation: Count = _field(1, "convolutional: layer i is dilated by dilation^i (ByteNet: 2)")
    P_drop_attention: Share = _field(0.0, "dropout of attention weights (the paper has none)")
    P_drop_ff: Share = _field(0.0, "dropout of the hidden feed-forward layer (the paper has none)")
    parametrization: Literal["standard", "mup"] = _field(
        "standard", "standard (paper), or muP, whose learning rates suit every width"
    )
    mup_width: Count = _field(512, "mup: d_model at which it equals the standard parametrization")
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
    bleu_tokenizer: Literal[
        "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "none"
    ] = _field("auto", "sacreBLEU's tokeniser of BLEU; auto: of the target language, or 13a")
    directory: str = _field("", "directory with the files of the corpus")
    train: str = _field(
        "",
        "text: path of the training files, without .LANGUAGE[.gz]; documents: files, separated by "
        "commas, or a pattern in quotes",
    )
    dev: str = _field("", "text: path of the development files, likewise")
    test: str = _field("", "text: path of the test files, likewise")
    grade: Literal["easy", "normal", "hard"] = _field(
        "normal", "grammar and grammar_trees: difficulty of the sentences (`help corpus`)"
    )
    task_options: str = _field(
        "", "diagnostic tasks: options, such as keys=8,length=64 (`help corpus`)"
    )
    pairs: Size = _field(
        0,
        "training pairs, a random sample of the corpus; 0 means all (grammar, grammar_trees: "
        "60,000, and more on request; diagnostic tasks: 20,000, or as many as requested)",
    )
    vocabulary: Annotated[int, Check(lambda x: x > 4, "must exceed the 4 special tokens")] = _field(
        37_000, "subwords of both languages; diagnostic tasks: words, and 4 special tokens"
    )
    normalization: Literal["corpus", "identity", "nmt_nfkc"] = _field(
        "corpus",
        "Unicode normalisation of all text, outputs included: identity leaves it as it is (your "
        "own corpora, text, wmt14); nmt_nfkc writes ½ as 1⁄2 and … as three dots",
    )
    max_length: Count = _field(256, "longest training sentence, in subwords including EOS")
    batch_tokens: Count = _field(25_000, "tokens in a batch, on each side")
    num_buckets: Annotated[Count, Check(lambda x: x < 256, "must be at most 255")] = _field(
        8, "number of batch shapes, each compiled once"
    )


@dataclass(frozen=True)
class Training:
    """Sections 5.2 to 5.4."""

    steps: Count = _field(100_000, "training steps")
    optimizer: str = _field("adam", "optimizer (`list parts`)", parts.OPTIMIZERS)
    schedule: str = _field("inverse_sqrt", "learning-rate schedule (`list parts`)", parts.SCHEDULES)
    warmup: Count = _field(4000, "steps of linear warm-up")
    peak_lr: Amount = _field(
        0.0, "learning rate after warm-up; 0 means (d_model warmup)^-0.5 (mup: mup_width)"
    )
    lr_scale: Positive = _field(1.0, "factor on the learning rate")
    beta1: Share = _field(0.9, "Adam: decay rate of the first moment; Lion: of the update")
    beta2: Share = _field(0.98, "Adam: decay rate of the second moment; Lion: of the momentum")
    eps: Positive = _field(1e-9, "Adam: constant in the denominator")
    weight_decay: Amount = _field(
        0.0,
        "decoupled weight decay: a step subtracts learning rate * weight_decay * W from every "
        "matrix and table (the paper has none)",
    )
    clip_norm: Amount = _field(
        0.0, "norm of all gradients that a step does not exceed; 0 means any (paper)"
    )
    P_drop: Share = _field(0.1, "dropout of sub-layer outputs and of embeddings")
    eps_ls: Share = _field(0.1, "label smoothing")
    smoothing: Literal["uniform", "others"] = _field(
        "uniform",
        "spread eps_ls over all subwords (paper), or over all but the target (tensor2tensor)",
    )
    z_loss: Amount = _field(
        0.0, "factor of log^2 Z in the loss, Z the denominator of the softmax (PaLM: 1e-4)"
    )
    accumulate: Count = _field(1, "micro-batches whose gradients a step sums")
    evaluate_every: Count = _field(1000, "steps between checkpoints, each with a dev perplexity")
    patience: Size = _field(
        0, "stop after this many evaluations without improvement, with the best model; 0: never"
    )
    average: Count = _field(
        1, "checkpoints averaged at the end, the last (with patience the best); 1: none (Table 3)"
    )
    seed: Seed = _field(0, "seed of initialisation, batch order, and dropout and masks")
    init_offset: Seed = _field(0, "added to the seed of initialisation alone")
    order_offset: Seed = _field(0, "added to the seed of the batch order alone")
    dropout_offset: Seed = _field(0, "added to the seed of dropout and masks alone")

    def seed_of(self, source: Literal["init", "order", "dropout"]) -> int:
        """Returns the seed of one source of randomness, a uint32."""
        return int(self.seed + getattr(self, f"{source}_offset")) % 2**32


@dataclass(frozen=True)
class Decoding:
    """Section 6.1."""

    beam: Count = _field(4, "beam size; 1 is greedy")
    alpha: Amount = _field(0.6, "length penalty, GNMT form")
    max_extra: Size = _field(
        50, "subwords by which an output may exceed its input; 50 is raised to what training needs"
    )
    output_rule: str = _field(
        "none", "rule of outputs (`list parts`): trees for trees", ("none",), parts.OUTPUT_RULES
    )


@dataclass(frozen=True)
class Config:
    model: Model = Model()
    data: Data = Data()
    training: Training = Training()
    decoding: Decoding = Decoding()

    def __post_init__(self) -> None:
        from t2t_jax.checks import validate

        validate(self)


SECTIONS = dict[str, type](model=Model, data=Data, training=Training, decoding=Decoding)
SECTION_OF = {f.name: s for s, cls in SECTIONS.items() for f in dataclasses.fields(cls)}
FIELDS = {f.name: f for cls in SECTIONS.values() for f in dataclasses.fields(cls)}
HINTS = {
    name: hint
    for cls in SECTIONS.values()
    for name, hint in typing.get_type_hints(cls, include_extras=True).items()
}
# A compiled step takes these as arrays (`training.step.Hyper`): runs that differ in them share it.
OFFSETS = "init_offset", "order_offset", "dropout_offset"
TRACED = ("P_drop", "eps_ls", "z_loss", "peak_lr", "lr_scale", "warmup", "seed", *OFFSETS)
PATHS = ("directory", "train", "dev", "test")  # the content of these files is fingerprinted
# Fields that determine the sentences.
SENTENCES = ("corpus", "source", "target", "grade", "task_options", *PATHS)


def replace(config: Config, **changes: Any) -> Config:
    """Returns `config` with the named fields changed, in any section.

    With another architecture, fields that it lacks are reset to their defaults. A UsageError says
    which name is no field, or which value is impossible.
    """
    if changes.get("architecture", config.model.architecture) != config.model.architecture:
        before = parts.ARCHITECTURES[config.model.architecture].fields
        new = parts.ARCHITECTURES.get(changes["architecture"])
        lacking = (n for n in before if not new or n not in new.fields)
        changes = {n: FIELDS[n].default for n in lacking} | changes
    sections: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if field_type(name) is float and type(value) is int:
            value = float(value)  # 0 and 0.0 are one value, of one run
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
    """Returns differences from the paper, but no paths: `N 3 (paper: 6), steps 50 (...)`."""
    fields = difference(config, paper)
    names = (n for n in fields if n not in (*PATHS, "seed"))
    return ", ".join(f"{n} {fields[n][0]} (paper: {fields[n][1]})" for n in names)


def field_type(name: str) -> type | tuple[str, ...]:
    """Returns the type of a field: a class, or the tuple of its choices."""
    _section(name)
    hint = HINTS[name]
    choices = tuple(chain(*FIELDS[name].metadata["tables"]))
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
    return choices or getattr(hint, "__origin__", hint)


def _section(name: str) -> str:
    if name not in SECTION_OF:
        raise UsageError(f"there is no config field {name!r}: {near(name, SECTION_OF)}")
    return SECTION_OF[name]


def has(c: Model, name: str) -> bool:
    """Returns whether a field has an effect on the model that `c` describes."""
    return not setting_without(c, name)


def rotary_width(c: Model, role: str) -> int:
    """Returns the number of rotated features, in pairs, that heads have beside d_k."""
    rotates = c.d_c and role != "cross" and parts.POSITIONS[c.positions].rotate
    return c.d_k // 4 * 2 if rotates else 0


def setting_without(c: Model, name: str) -> str:
    """Returns the setting with which a field of the model has no effect; empty if it has one."""
    specific = {n for architecture in parts.ARCHITECTURES.values() for n in architecture.fields}
    if name in specific and name not in parts.ARCHITECTURES[c.architecture].fields:
        return f"architecture={c.architecture}"
    if name == "cross_attention" and c.architecture == "recurrent":
        without = c.attention_feeding == "none"
        return "architecture=recurrent and attention_feeding=none" * without
    if name in ("h_kv", "qk_norm", "decoder_conv") and c.d_c:  # keys are linear in one latent
        return f"d_c={c.d_c}"
    if name == "mup_width":
        return "parametrization=standard" * (c.parametrization == "standard")
    return ""
