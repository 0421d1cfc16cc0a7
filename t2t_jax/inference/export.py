"""Export of a trained model: under our own names, or as a model of another library."""

import shutil
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import normalization
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import RunError, UsageError
from t2t_jax.files import write, write_json
from t2t_jax.inference.convert import choose, convert, named, options
from t2t_jax.inference.formats import FORMATS, LONGEST, Format
from t2t_jax.inference.tokenizer import tokenizer
from t2t_jax.models.norms import EPSILON
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.tokens import BOS, EOS, PAD, UNK

WEIGHTS = "model.safetensors"


def export(
    c: Config,
    params: Any,
    vocabulary: Vocabulary,
    directory: Path,
    to: str = "ctranslate2",
    files: Sequence[Path] = (),
    scores: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model as ctranslate2, hf or safetensors, and its SentencePiece model beside it.

    safetensors gets the `files` that determine the run, and the model card of transformers the
    scores in result.json.

    Raises UsageError if the format lacks a layer or a parameter of the model, its package is not
    installed, or the directory is not empty, and RunError if the directory cannot be written.
    """
    if directory.is_file() or not directory.name:
        raise UsageError(f"{directory} cannot become a new directory: choose another --out.")
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is not empty: choose another --out.")
    content, spec = dict[str, Any]({"vocabulary.model": vocabulary.model}), None
    if to == "ctranslate2":
        spec = _ctranslate2(c, params, vocabulary)
    elif to == "hf":
        content |= _transformers(c, params, vocabulary, scores or {})
    else:
        arrays = {name: np.asarray(x, np.float32, order="C") for name, x in named(params).items()}
        content |= {path.name: path.read_bytes() for path in files}
        content[WEIGHTS] = _safetensors().save(arrays)
    aside = directory.with_name(f"{directory.name}.part")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        if spec:
            spec.save(str(aside))
        for name, x in content.items():
            (write_json if isinstance(x, dict) else write)(aside / name, x)
        aside.rename(directory)
    except OSError as error:
        raise RunError(f"cannot write {directory}: {error.strerror}.") from None


def _safetensors() -> Any:
    try:
        from safetensors import numpy
    except ImportError:
        raise UsageError("safetensors is not installed: pip install safetensors.") from None
    return numpy


def read_weights(path: Path, like: Any) -> Any:
    """Returns the parameters in a file that `export` wrote to `safetensors`, laid out as `like`.

    Raises UsageError if the file is damaged, or its parameters are of another model.
    """
    numpy, shapes = _safetensors(), named(like)
    try:
        arrays = numpy.load_file(path)
    except Exception as error:
        raise UsageError(f"{path} is damaged ({error}): export it again.") from None
    if {n: x.shape for n, x in arrays.items()} != {n: x.shape for n, x in shapes.items()}:
        raise UsageError(f"{path} has parameters of another model: restore its config.json.")
    leaves = (jax.device_put(arrays[name], x.sharding) for name, x in shapes.items())
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _ctranslate2(c: Config, params: Any, vocabulary: Vocabulary) -> Any:
    """Returns the specification of a CTranslate2 model.

    Its sources and outputs are SentencePiece's pieces. CTranslate2 adds EOS; its search may choose
    <s> and <pad> unless they are suppressed. Outputs have at most LONGEST pieces, or the number of
    positions of a learned table.
    """
    name = choose(c.model, "CTranslate2")
    try:
        from ctranslate2.specs import TransformerSpec, common_spec, transformer_spec
    except ImportError:
        raise UsageError("CTranslate2 is not installed: pip install ctranslate2.") from None

    to, made = FORMATS[name], options(c.model, name)
    if "activation" in made:
        made["activation"] = getattr(common_spec.Activation, made["activation"])
    sides = transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec
    spec = TransformerSpec(*(side(**made) for side in sides))
    modules = {x: ours for x, ours in to.modules(c.model.N).items() if _at(spec, x) is not None}
    for path, array in convert(c, params, vocabulary.size, to, modules).items():
        module, _, kind = path.rpartition(".")
        names = {"weight": ("weight", "gamma", "encodings"), "bias": ("bias", "beta")}[kind]
        setattr(_at(spec, module), next(x for x in names if hasattr(_at(spec, module), x)), array)
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


def _at(spec: Any, path: str) -> Any:
    """Returns the module of a specification at a path such as layer.0.ffn; None without it."""
    step = lambda x, name: x[int(name)] if name.isdigit() else getattr(x, name, None)  # noqa: E731
    return reduce(step, path.split("."), spec)


def _transformers(
    c: Config, params: Any, vocabulary: Vocabulary, scores: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the files of a model and a tokenizer that transformers opens."""
    name, V, numpy = choose(c.model, "transformers"), vocabulary.size, _safetensors()
    to, translates = FORMATS[name], ARCHITECTURES[c.model.architecture].translates
    modules = to.modules(c.model.N)
    arrays = convert(c, params, V, to, modules)
    tables = (arrays[f"{x}.weight"] for x, ours in modules.items() if ours == ["positions/table"])
    length = next(map(len, tables), LONGEST)
    ids = dict(pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS)
    own = dict(model_type=name, architectures=[to.name], vocab_size=V, tie_word_embeddings=True)
    decoding = dict(num_beams=c.decoding.beam) if translates else {}
    decoding["max_length"] = min(length, c.data.max_length + c.decoding.max_extra)
    begin = [] if translates else [BOS, *[EOS] * CORPORA[c.data.corpus].documents]
    tokens = tokenizer(vocabulary, begin, [EOS] * (translates or CORPORA[c.data.corpus].prompts))
    content = {
        "config.json": own | {to.positions: length} | options(c.model, name) | ids,
        "generation_config.json": ids | decoding | dict(suppress_tokens=[PAD, BOS]),
        "README.md": _card(c, to, tokens is not None, scores),
        WEIGHTS: numpy.save(arrays, {"format": "pt"}),
    }
    if tokens is None:
        return content
    special = (f"{x}_token" for x in ("pad", "bos", "eos", "unk")), tokens["added_tokens"]
    return content | {
        "tokenizer.json": tokens,
        "tokenizer_config.json": dict(
            tokenizer_class="PreTrainedTokenizerFast",
            model_max_length=length,
            model_input_names=["input_ids", "attention_mask"],
            clean_up_tokenization_spaces=False,
            split_special_tokens=True,  # the name of a special token in a text is text
            **{kind: token["content"] for kind, token in zip(*special, strict=True)},
        ),
    }


def _card(c: Config, to: Format, tokenizer: bool, scores: Mapping[str, Any]) -> str:
    """Returns README.md: the model, its scores, how to load it, and how it reads text."""
    auto = f"AutoModelFor{'Seq2SeqLM' if 'encoder' in to.stacks else 'CausalLM'}"
    reads = "`AutoTokenizer` gives" if tokenizer else "No tokenizer of transformers gives"
    changes = config.describe(c, Config()) or "the hyperparameters of base"
    lines = (
        f"- {split}: {x['name']} {x['score']:.2f} [{x['signature']}]\n"
        for split, of_split in scores.items()
        for x in of_split.values()
    )
    return f"""---
library_name: transformers
---
# {to.name}

The Transformer of "Attention Is All You Need" with {changes}, trained by t2t-jax.{to.note}

`transformers.{auto}.from_pretrained` loads it from this folder. {reads} the ids of the
SentencePiece model `vocabulary.model` for a text whose control characters and separators of lines
are spaces. SentencePiece normalises its Unicode by the rule {normalization(c.data)}.

{"".join(lines)}"""
