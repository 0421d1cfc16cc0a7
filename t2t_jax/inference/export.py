"""A trained Transformer for CTranslate2, which serves it without JAX."""

import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import RunError, UsageError
from t2t_jax.models.layers import EPSILON
from t2t_jax.models.positions import encode_positions
from t2t_jax.tokens import BOS, EOS, UNK

POSITIONS = 2048  # of sinusoids; a learned table has its own number


def check(c: Config) -> None:
    """Refuses what CTranslate2 has no layers for.

    Raises:
      UsageError: names the field, and what it can be.
    """
    m = c.model
    can: dict[str, tuple[Any, ...]] = {
        "architecture": ("transformer",),
        "positions": ("sinusoid", "sinusoid_halves", "learned"),
        "d_v": (m.d_k,),
    }
    can |= {
        f"{role}_attention": ("scaled_dot_product",) for role in ("encoder", "decoder", "cross")
    }
    for field, values in can.items():
        if getattr(m, field) not in values:
            raise UsageError(
                f"CTranslate2 has no {field}={getattr(m, field)}: it takes "
                f"{' or '.join(map(str, values))} alone."
            )


def export(c: Config, params: Any, vocabulary: Vocabulary, directory: Path) -> None:
    """Writes a CTranslate2 model, with the SentencePiece model beside it.

    Sources and outputs are SentencePiece's pieces; the end mark is added by CTranslate2, whose
    search may choose <s> and <pad> unless they are suppressed. Outputs have at most POSITIONS
    pieces, or as many as a learned table.

    Raises:
      UsageError: `check`, the directory is not empty, or CTranslate2 is not installed.
      RunError: it cannot be written.
    """
    check(c)
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty: name another --out.")
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
        from ctranslate2.specs import TransformerSpec, transformer_spec
    except ImportError:
        raise UsageError("CTranslate2 is not installed: pip install ctranslate2.") from None

    m, matrix = c.model, np.asarray(params["embedding"]["matrix"])
    shape = dict(num_layers=m.N, num_heads=m.h, head_dim=m.d_k, pre_norm=m.norm == "pre")
    sides = transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec
    spec = TransformerSpec(*(side(**shape) for side in sides))
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        if m.positions == "learned":
            place = "source" if name == "encoder" else "target"
            encodings = params[f"{place}_positions"]["table"]
        else:
            encodings = encode_positions(jnp.arange(POSITIONS), m.d_model, m.positions)
        side.position_encodings.encodings = np.asarray(encodings)
        if m.norm == "pre":
            _layer_norm(side.layer_norm, params[f"{name}_norm"])
        for i, layer in enumerate(side.layer):
            _layer(layer, params[f"{name}_{i}"])
    spec.encoder.embeddings[0].weight = matrix
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = matrix

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


def _layer(spec: Any, p: Any) -> None:
    """A layer of the encoder or decoder."""
    _attention(spec.self_attention, p["attention"], "QKV", "O")
    _layer_norm(spec.self_attention.layer_norm, p["add_norm_attention"])
    if "cross_attention" in p:
        _attention(spec.attention, p["cross_attention"], "Q", "KV", "O")
        _layer_norm(spec.attention.layer_norm, p["add_norm_cross"])
    for linear, i in ((spec.ffn.linear_0, 1), (spec.ffn.linear_1, 2)):
        linear.weight = np.asarray(p["feed_forward"][f"W_{i}"]).T.copy()
        linear.bias = np.asarray(p["feed_forward"][f"b_{i}"])
    _layer_norm(spec.ffn.layer_norm, p["add_norm_feed_forward"])


def _attention(spec: Any, p: Any, *products: str) -> None:
    """Sets the matrices [out, in] that CTranslate2 multiplies by, some of ours in one."""
    d_model = p["W_Q"].shape[0]
    W = {x: np.asarray(p[f"W_{x}"]).reshape(d_model, -1).T for x in "QKV"}
    W["O"] = np.asarray(p["W_O"]).reshape(-1, d_model).T
    for linear, names in zip(spec.linear, products, strict=True):
        linear.weight = np.concatenate([W[x] for x in names])


def _layer_norm(spec: Any, p: Any) -> None:
    """From an Add & Norm, or from the norm at the end of a pre-norm stack."""
    affine = p.get("layer_norm", p)["affine"]
    spec.gamma, spec.beta = np.asarray(affine["scale"]), np.asarray(affine["bias"])
