"""Architectures and the parts of their layers by name, without jax.

Each table has one entry per part, with what the checks of a config, the FLOPs and the export need
to know of it. The part itself is in the file of `t2t_jax/models` that the entry names, or in a
study file (`t2t_jax/extend.py`). `t2t-jax help part` and `help architecture` show how to add one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from t2t_jax.errors import UsageError


def implementation(where: str, home: str) -> Any:
    """Returns the class or function that an entry of a table names.

    `where` is its name in the module `home`, `file:name` in the package `home`, or `/PATH.py:name`.
    """
    file, _, name = where.rpartition(":")
    module = file if in_file(where) else f"{home}.{file}".rstrip(".")
    return getattr(import_module(module), name)


def options(text: str, defaults: Mapping[str, Any], of: str, shown: str) -> dict[str, Any]:
    """Returns the options that a text such as "w=8,l=4" sets, each of the type of its default.

    A whole number is at least 1, or 0 if that is its default; any other number is positive. A
    UsageError is raised if there is no such option, if its value is out of range, or if it is given
    twice; it names what has the options (`of`) and what gives them (`shown`).
    """
    values: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, _, value = map(str.strip, part.partition("="))
        if name not in defaults:
            known = ", ".join(defaults) or "none"
            raise UsageError(f"{of} has no option {name!r} in {shown}: it has {known}.")
        if name in values:
            raise UsageError(f"{shown} gives {name} twice: give it once.")
        whole, least = isinstance(defaults[name], int), min(1, defaults[name])
        try:
            values[name] = int(value) if whole else float(value)
        except ValueError:
            values[name] = math.nan
        if not (values[name] >= least if whole else 0 < values[name] < math.inf):
            kind = f"whole number of at least {least}" if whole else "positive number"
            raise UsageError(f"{name} in {shown} must be a {kind}.")
    return values


def in_file(where: str) -> bool:
    """Returns whether an entry names something in a file outside of this package."""
    return where.startswith("/") and ".py:" in where


# What a part is in models of other libraries (`inference/formats.py`): the options that say so.
Export = Mapping[str, Mapping[str, Any]]


def exported(models: str, **options: Any) -> dict[str, Mapping[str, Any]]:
    """Returns the same options for several models, whose names are separated by spaces."""
    return dict.fromkeys(models.split(), options)


@dataclass(frozen=True)
class Architecture:
    """A model.

    `products` is a function of (config.Model, S, T), as file:name: the multiply-adds of its forward
    pass on one pair of S and T positions, the logits apart. `fields` are its config fields besides
    those of every architecture (N, d_model, embeddings, logit_cap, dtype, kernels); the fields of
    other architectures are refused.
    """

    where: str  # its class, as file:name
    products: str
    fields: tuple[str, ...]
    translates: bool = True  # whether it can decode a translation, by `start` and `step`
    masked: bool = False  # whether it predicts masked tokens instead of the next one
    export: Export = field(default_factory=dict)  # what it is in other libraries


_FIGURE_1 = (
    *("d_ff", "h", "h_kv", "d_k", "d_v", "d_c", "positions", "norm", "norm_placement", "qk_norm"),
    *("feed_forward", "attention_gate", "P_drop_attention", "P_drop_ff"),
    *("parametrization", "mup_width"),
)

ARCHITECTURES: dict[str, Architecture] = {
    "transformer": Architecture(
        "transformer:Transformer",
        "flops:transformer",
        (*_FIGURE_1, "encoder_attention", "decoder_attention", "decoder_conv", "cross_attention"),
        export=exported("ctranslate2 marian pegasus"),
    ),
    "encoder": Architecture(
        "language_model:LanguageModel",
        "flops:language_model",
        (*_FIGURE_1, "encoder_attention"),
        translates=False,
        masked=True,
    ),
    "decoder": Architecture(
        "language_model:LanguageModel",
        "flops:language_model",
        (*_FIGURE_1, "decoder_attention", "decoder_conv", "document_attention"),
        translates=False,
        export=exported("openai-gpt gpt2 llama"),
    ),
    "recurrent": Architecture(
        "recurrent:Recurrent",
        "flops:recurrent",
        ("cell", "encoder_direction", "attention_feeding", "cross_attention"),
    ),
    "convolutional": Architecture(
        "convolutional:Convolutional",
        "flops:convolutional",
        ("kernel", "dilation", "positions", "cross_attention"),
    ),
}


@dataclass(frozen=True)
class Part:
    """What every part has."""

    where: str  # its class or function, as file:name
    about: str  # what it is in a few words, or as a formula
    export: Export = field(default_factory=dict)  # what it is in other libraries


OUTPUT_RULES: dict[str, Part] = {
    "trees": Part("well_formed:Trees", "well-formed trees with as many words as the input"),
}


@dataclass(frozen=True)
class Cell(Part):
    """A recurrent layer in one direction: `models.recurrent.LSTM`, or a subclass."""

    products: Callable[[int, int], int] = lambda d_in, d: 4 * d * (d_in + d)  # at one position


CELLS: dict[str, Cell] = {
    "lstm": Cell("recurrent:LSTM", "long short-term memory"),
    "gru": Cell(
        "recurrent:GRU", "gated recurrent unit", products=lambda d_in, d: 3 * d * (d_in + d)
    ),
}
_TABLE = exported("ctranslate2 openai-gpt gpt2")  # these add a table to embeddings
_ENCODED = _TABLE | exported("marian pegasus")
_RMS_NORM = exported("ctranslate2", rms_norm=True) | exported("llama")
NORMS: dict[str, Part] = {  # over the last axis
    "layer_norm": Part("norms:LayerNorm", "mean 0, variance 1, scale and bias (paper)", _ENCODED),
    "layer_norm_no_bias": Part("norms:LayerNormNoBias", "mean 0, variance 1, scale, no bias"),
    "rms_norm": Part("norms:RMSNorm", "root mean square 1, scale, no bias", _RMS_NORM),
}

Products = Callable[[Any, int], float]  # (config.Model, L) -> multiply-adds on L positions
Rates = Callable[[Any], Mapping[tuple[str, ...], float]]  # see `FeedForward.mup`


def two_matrices(c: Any, L: int) -> int:
    """The multiply-adds of two matrices of d_model x d_ff."""
    return 2 * L * c.d_model * c.d_ff


def three_matrices(c: Any, L: int) -> int:
    """The multiply-adds of three matrices of d_model x d_ff."""
    return 3 * L * c.d_model * c.d_ff


@dataclass(frozen=True)
class NormPlacement(Part):
    """The flow of a layer: in which order its sub-layers, residual connections and norms follow.

    It is a function of (layer, x, sublayers, P_drop), such as `models.transformer.post`.
    """

    final_norm: bool = False  # after the last layer, because none follows the last sub-layer
    products: Products = lambda c, L: 0  # of a layer beside one call of each sub-layer
    mup: Rates = lambda c: {}


_POST = exported("ctranslate2", pre_norm=False) | exported("marian openai-gpt")
_PRE = exported("ctranslate2", pre_norm=True) | exported("pegasus gpt2 llama")
NORM_PLACEMENTS: dict[str, NormPlacement] = {
    "post": NormPlacement("transformer:post", "Norm(x + f(x)) for each sub-layer f (paper)", _POST),
    "pre": NormPlacement("transformer:pre", "x + f(Norm(x))", _PRE, final_norm=True),
    "parallel": NormPlacement("transformer:parallel", "x + the sum of f(Norm(x))", final_norm=True),
}


@dataclass(frozen=True)
class FeedForward(Part):
    """A feed-forward layer.

    Under muP, `mup` has the factors on the learning rate of matrices whose logical axes
    `models.parametrization` does not know, by these axes.
    """

    activation: str = ""  # a function of `jax.nn`, or of a file
    biases: bool = True  # whether a layer that is not gated has b_1 and b_2
    gated: bool = False  # whether it is (activation(x W_1) * x W_3) W_2, without biases
    products: Products = two_matrices
    dropout: bool = True  # whether it applies P_drop_ff
    mup: Rates = lambda c: {}


_LAYER = "feed_forward:FeedForward"


def _plain(
    about: str, activation: str, ctranslate2: str, transformers: str, biases: bool = True
) -> FeedForward:
    export = exported("ctranslate2", activation=ctranslate2)
    export |= exported("openai-gpt", afn=activation)
    export |= exported("marian pegasus gpt2", activation_function=transformers)
    return FeedForward(_LAYER, about, export, activation, biases=biases)


def _gated(about: str, activation: str, ctranslate2: str, transformers: str) -> FeedForward:
    export = exported("ctranslate2", activation=ctranslate2, ffn_glu=True)
    export |= exported("llama", hidden_act=transformers)
    return FeedForward(_LAYER, about, export, activation, gated=True, products=three_matrices)


FEED_FORWARD: dict[str, FeedForward] = {
    "relu": _plain("max(0, x W_1 + b_1) W_2 + b_2 (paper)", "relu", "RELU", "relu"),
    "relu_no_bias": _plain("max(0, x W_1) W_2", "relu", "RELU", "relu", biases=False),
    "gelu": _plain("GELU(x W_1 + b_1) W_2 + b_2, GELU by tanh", "gelu", "GELUTanh", "gelu_new"),
    "geglu": _gated(
        "(GELU(x W_1) * x W_3) W_2, GELU by tanh", "gelu", "GELUTanh", "gelu_pytorch_tanh"
    ),
    "swiglu": _gated("(SiLU(x W_1) * x W_3) W_2", "silu", "SWISH", "silu"),
}


@dataclass(frozen=True)
class Positions:
    """A position scheme: functions of models/positions.py, or of a file, as file:name."""

    about: str
    encode: str = ""  # returns what is added to the embeddings
    rotate: str = ""  # rotates queries and keys
    bias: str = ""  # returns what is added to the scores of self-attention
    even: str = ""  # the width that must be even, as features are paired: d_model or d_k
    limited: bool = False  # whether positions are limited to the length of a table
    export: Export = field(default_factory=dict)  # what it is in other libraries

    @property
    def partners(self) -> tuple[str, ...]:
        """What a self-attention mechanism must support, as `attention.registry.Entry` names it."""
        return ("rotary",) * bool(self.rotate) + ("bias",) * bool(self.bias)


POSITIONS: dict[str, Positions] = {
    "sinusoid": Positions("sines and cosines (paper)", "sinusoid", even="d_model", export=_ENCODED),
    "sinusoid_halves": Positions(
        "sines in one half of the features, cosines in the other (tensor2tensor)",
        encode="sinusoid_halves",
        even="d_model",
        export=_TABLE,
    ),
    "learned": Positions("a learned table", encode="learned", limited=True, export=_TABLE),
    "rotary": Positions(
        "rotary embeddings (RoPE)", rotate="rotary", even="d_k", export=exported("llama")
    ),
    "relative": Positions("T5's learned bias by bucket of distance", bias="relative"),
    "alibi": Positions("a bias linear in the distance", bias="alibi"),
    "none": Positions("no position information"),
}


# Functions of (step, warmup, steps), float32 scalars. The value is a factor on the peak learning
# rate, in the warm-up as well.
SCHEDULES: dict[str, Part] = {
    "inverse_sqrt": Part("optimizer:inverse_sqrt", "step^-0.5 (paper)"),
    "linear": Part("optimizer:linear", "linear to zero"),
}


@dataclass(frozen=True)
class Optimizer(Part):
    """An optimizer: a function of `fields` that returns an `optax.GradientTransformation`.

    The step subtracts its updates, times the learning rate. With `mup`, the entries of its updates
    have the same size at every width, as Adam's have, so that muP's rates are right for it.
    """

    fields: tuple[str, ...] = ()  # of those that only optimizers take
    mup: bool = False


OF_OPTIMIZERS = "beta1", "beta2", "eps"  # config fields that only optimizers take
OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer("optimizer:adam", "Adam (paper)", fields=OF_OPTIMIZERS, mup=True),
    "lion": Optimizer(
        "optimizer:lion", "Lion, the sign of a momentum", fields=("beta1", "beta2"), mup=True
    ),
}
