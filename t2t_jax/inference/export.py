"""Export of a trained Transformer to CTranslate2, which runs it without JAX."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import RunError, UsageError
from t2t_jax.models.norms import EPSILON
from t2t_jax.models.parametrization import logit_multiplier
from t2t_jax.parts import FEED_FORWARD, NORM_PLACEMENTS, NORMS, POSITIONS, implementation
from t2t_jax.tokens import BOS, EOS, UNK

LONGEST = 2048  # number of sinusoidal positions; a learned table has its own number


def check(c: Config) -> None:
    """Raises UsageError, with the values that are possible, if CTranslate2 lacks a layer of it."""
    m = c.model
    supported: dict[str, Sequence[Any]] = {
        "architecture": ["transformer"],
        **{f"{x}_attention": ["scaled_dot_product"] for x in ("encoder", "decoder", "cross")},
        "positions": [n for n, x in POSITIONS.items() if x.encode and not x.partners],
        "norm": [name for name, part in NORMS.items() if part.ctranslate2 is not None],
        "norm_placement": [n for n, x in NORM_PLACEMENTS.items() if x.ctranslate2 is not None],
        "feed_forward": [n for n, part in FEED_FORWARD.items() if part.ctranslate2 is not None],
        "logit_cap": [0],
        "qk_norm": ["none"],
        "attention_gate": ["none"],
        "decoder_conv": [0],
        "d_c": [0],
        "d_v": [m.d_k],
    }
    for field, values in supported.items():
        if getattr(m, field) not in values:
            raise UsageError(
                f"CTranslate2 does not support {field}={getattr(m, field)}, only "
                f"{', '.join(map(str, values))}."
            )


def export(c: Config, params: Any, vocabulary: Vocabulary, directory: Path) -> None:
    """Writes a CTranslate2 model, and the SentencePiece model beside it.

    Sources and outputs of the exported model are SentencePiece's pieces. CTranslate2 adds EOS; its
    search may choose <s> and <pad> unless they are suppressed. Outputs have at most LONGEST
    pieces, or the number of positions of a learned table.

    Raises:
      UsageError: `check` fails, the directory is not empty, CTranslate2 is not installed, or one
        of the parameters has no counterpart there.
      RunError: the directory cannot be written.
    """
    check(c)
    if directory.is_file():
        raise UsageError(f"{directory} is a file: choose another --out.")
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty: choose another --out.")
    spec, aside = _spec(c, params, vocabulary), directory.with_name(f"{directory.name}.part")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        spec.save(str(aside))
        (aside / "vocabulary.model").write_bytes(vocabulary.model)
        aside.rename(directory)
    except OSError as error:
        raise RunError(f"cannot write {directory}: {error.strerror}.") from None


def _spec(c: Config, params: Any, vocabulary: Vocabulary) -> Any:
    try:
        from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec
    except ImportError:
        raise UsageError("CTranslate2 is not installed: pip install ctranslate2.") from None

    m = c.model
    parts: dict[str, Any] = {}
    for part in (NORMS[m.norm], FEED_FORWARD[m.feed_forward], NORM_PLACEMENTS[m.norm_placement]):
        parts |= part.ctranslate2 or {}
    if "activation" in parts:
        parts["activation"] = getattr(common_spec.Activation, parts["activation"])
    shape = dict(num_layers=m.N, num_heads=m.h, head_dim=m.d_k)
    sides = transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec
    spec = TransformerSpec(*(side(**shape, **parts) for side in sides))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    name = partial(jax.tree_util.keystr, simple=True, separator="/")
    _set_parameters(spec, c, {name(path): np.asarray(x) for path, x in leaves})
    pieces = vocabulary.pieces(range(vocabulary.size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.eos_token = pieces[UNK], pieces[EOS]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[BOS]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    spec.optimize()
    return spec


def _set_parameters(spec: Any, c: Config, left: dict[str, np.ndarray]) -> None:
    """Moves all parameters from `left`, named as in `encoder_0/attention/W_Q`, into `spec`."""
    m, matrix = c.model, left.pop("embedding/matrix")
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        if POSITIONS[m.positions].limited:
            place = "source" if name == "encoder" else "target"
            encodings = left.pop(f"{place}_positions/table")
        else:
            encode = implementation(POSITIONS[m.positions].encode, "t2t_jax.models.positions")
            encodings = np.asarray(encode(None, jnp.arange(LONGEST), m.d_model))
        side.position_encodings.encodings = encodings
        if NORM_PLACEMENTS[m.norm_placement].final_norm:
            _norm(side.layer_norm, left, f"{name}_norm")
        for i, layer in enumerate(side.layer):
            _layer(layer, left, f"{name}_{i}", cross=name == "decoder")
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = matrix
    spec.decoder.projection.weight = output = left.pop("embedding/output", matrix)
    if (multiplier := logit_multiplier(m)) != 1:
        spec.decoder.projection.weight = output * np.float32(multiplier)
    if left:
        raise UsageError(
            f"CTranslate2 has no counterpart of the parameter {min(left)}, so the exported model "
            "would compute something else: export a model without that layer."
        )


def _layer(spec: Any, left: dict[str, np.ndarray], name: str, cross: bool) -> None:
    """Sets a layer of the encoder or decoder."""
    _attention(spec.self_attention, left, f"{name}/attention", "QKV", "O")
    _norm(spec.self_attention.layer_norm, left, f"{name}/add_norm_attention")
    if cross:
        _attention(spec.attention, left, f"{name}/cross_attention", "Q", "KV", "O")
        _norm(spec.attention.layer_norm, left, f"{name}/add_norm_cross")
    for linear, i in (("linear_0", 1), ("linear_1", 2), ("linear_0_noact", 3)):
        if f"{name}/feed_forward/W_{i}" in left and hasattr(spec.ffn, linear):
            getattr(spec.ffn, linear).weight = left.pop(f"{name}/feed_forward/W_{i}").T.copy()
        if f"{name}/feed_forward/b_{i}" in left:
            getattr(spec.ffn, linear).bias = left.pop(f"{name}/feed_forward/b_{i}")
    _norm(spec.ffn.layer_norm, left, f"{name}/add_norm_feed_forward")


def _attention(spec: Any, left: dict[str, np.ndarray], name: str, *products: str) -> None:
    """Sets CTranslate2's matrices [out, in], each from one or several of ours."""
    W = {x: left.pop(f"{name}/W_{x}") for x in "QKVO"}
    d_model, h = W["Q"].shape[:2]
    W |= {x: np.repeat(W[x], h // W[x].shape[1], axis=1) for x in "KV"}  # h_kv heads become h
    W = {x: w.reshape(-1, d_model) if x == "O" else w.reshape(d_model, -1) for x, w in W.items()}
    for linear, names in zip(spec.linear, products, strict=True):
        linear.weight = np.concatenate([W[x].T for x in names])


def _norm(spec: Any, left: dict[str, np.ndarray], name: str) -> None:
    spec.gamma = left.pop(f"{name}/norm/affine/scale")
    if f"{name}/norm/affine/bias" in left:
        spec.beta = left.pop(f"{name}/norm/affine/bias")
