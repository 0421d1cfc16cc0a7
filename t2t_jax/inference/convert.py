"""Conversion of parameters to the layout of another library's model (`inference/formats.py`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax import config, parts
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.inference.formats import FORMATS, LONGEST, Format
from t2t_jax.models import build
from t2t_jax.models.parametrization import logit_multiplier

Arrays = dict[str, np.ndarray]
_TABLES: Mapping[str, Mapping[str, Any]] = {
    "architecture": parts.ARCHITECTURES,
    "norm_placement": parts.NORM_PLACEMENTS,
    "norm": parts.NORMS,
    "positions": parts.POSITIONS,
    "feed_forward": parts.FEED_FORWARD,
}


def choose(m: config.Model, library: str) -> str:
    """Returns the name in `FORMATS` of the model of a library that equals ours.

    Raises UsageError if none does; the message names a field, and its values that are possible.
    """
    every = [name for name, x in FORMATS.items() if x.library == library]
    fits, before = every, list[str]()

    def check(name: str, values: Sequence[Any]) -> None:
        if (value := getattr(m, name)) not in values:
            beside = f" with {', '.join(before)}" if fits != every else ""
            possible = ", ".join(map(str, values))
            raise UsageError(f"{library} does not support {name}={value}{beside}, only {possible}.")

    for name, table in _TABLES.items():
        check(name, [value for value, part in table.items() if {*fits} & {*part.export}])
        fits = [x for x in fits if x in table[getattr(m, name)].export]
        before.append(f"{name}={getattr(m, name)}")
    fixed: dict[str, Any] = dict(qk_norm="none", attention_gate="none", decoder_conv=0, d_c=0)
    fixed |= dict(embeddings="tied", logit_cap=0.0)
    fixed |= {f"{x}_attention": "scaled_dot_product" for x in ("encoder", "decoder", "cross")}
    fixed |= dict(document_attention="across", d_v=m.d_k, **FORMATS[fits[0]].only(m))
    for name, value in fixed.items():
        check(name, [value])
    return fits[0]


def options(m: config.Model, name: str) -> dict[str, Any]:
    """Returns the options of the model `name` of `FORMATS`, which equals ours."""
    made = FORMATS[name].settings(m)
    for field, table in _TABLES.items():
        made |= table[getattr(m, field)].export.get(name, {})
    return made


def named(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree of parameters by name, such as encoder_0/attention/W_Q."""
    boxed = lambda x: isinstance(x, nn.LogicallyPartitioned)  # noqa: E731
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=boxed)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def convert(c: Config, params: Any, V: int, to: Format, modules: dict[str, list[str]]) -> Arrays:
    """Returns the arrays MODULE.weight and MODULE.bias of another model, by name.

    `modules` are the names of its modules, and ours in each. Raises UsageError if a parameter has
    no counterpart in it, or one of its parameters has none here.
    """
    m, scheme = c.model, parts.POSITIONS[c.model.positions]
    ours = [name for names in modules.values() for name in names]
    left = {name: np.asarray(x, np.float32) for name, x in named(params).items()}
    if scheme.encode and not scheme.limited:
        encode = parts.implementation(scheme.encode, "t2t_jax.models.positions")
        table = np.asarray(encode(None, jnp.arange(LONGEST), m.d_model))
        left |= {name: table for name in ours if name.endswith("positions/table")}
    if "halves" in to.traits:
        _permute(left, c, V, scheme.even)
    _scale(left, m, "scaled" in to.traits)
    moved = {name: _module(left, name, m.h, to) for name in dict.fromkeys(ours)}
    if left:
        raise UsageError(
            f"{to.library} has no counterpart of the parameter {min(left)}, so the exported model "
            "would compute something else: export a model without that layer."
        )
    out, outputs = {}, -1 if "transposed" in to.traits else 0
    for module, names in modules.items():
        for kind in moved[names[0]]:
            joined = np.concatenate([moved[name][kind] for name in names], outputs)
            out[f"{module}.{kind}"] = np.ascontiguousarray(joined)
    return out


def _permute(arrays: Arrays, c: Config, V: int, features: str) -> None:
    """Puts the features 2i of an axis before the features 2i + 1, alike in all arrays."""
    tokens = jnp.zeros((1, 1), jnp.int32)
    boxes = jax.eval_shape(build(c, V, "cpu").init, jax.random.key(0), tokens, tokens)["params"]
    axes = {name: box.names for name, box in named(boxes).items()}
    for name, x in arrays.items():
        for axis, n in enumerate(x.shape):
            if axes.get(name, ("position", "d_model"))[axis] == features:  # or a table of sinusoids
                arrays[name] = arrays[name].take(np.r_[0:n:2, 1:n:2], axis)


def _scale(arrays: Arrays, m: config.Model, scaled: bool) -> None:
    """Multiplies the embedding by its factor unless `scaled`, and the last norm by the logits'."""
    embedding = 1.0 if scaled else m.d_model**0.5
    norms = "decoder_norm", "norm", f"decoder_{m.N - 1}/add_norm_feed_forward"
    last = next(f"{x}/norm/affine" for x in norms if f"{x}/norm/affine/scale" in arrays)
    logits = logit_multiplier(m) / embedding
    factors = {"embedding/matrix": embedding, f"{last}/scale": logits, f"{last}/bias": logits}
    arrays |= {n: arrays[n] * np.float32(x) for n, x in factors.items() if n in arrays}


def _module(left: Arrays, name: str, h: int, to: Format) -> Arrays:
    """Moves the weight and bias of one of our modules from `left`, laid out as `to` has them."""
    affine = name.endswith("/affine")
    weight, bias = (f"{name}/scale", f"{name}/bias") if affine else (name, name.replace("W_", "b_"))
    if weight not in left:
        raise UsageError(
            f"{to.library} needs the parameter {weight}, which the model lacks: correct `export` "
            "of its parts."
        )
    out = {"weight": left.pop(weight)}
    if bias in left and (affine or "biases" in to.traits):
        out["bias"] = left.pop(bias)
    if "/W_" in name:
        W = out["weight"]
        if name.endswith(("/W_K", "/W_V")) and "grouped" not in to.traits:
            W = np.repeat(W, h // W.shape[1], axis=1)  # h_kv heads become h
        W = W.reshape(-1, W.shape[-1]) if name.endswith("/W_O") else W.reshape(len(W), -1)
        out["weight"] = W if "transposed" in to.traits else W.T
        if "zeros" in to.traits:
            out.setdefault("bias", np.zeros(W.shape[1], np.float32))
    return out
