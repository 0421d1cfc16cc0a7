"""A vocabulary as `tokenizer.json` of the package `tokenizers`, which gives the same ids."""

import base64
from collections.abc import Sequence
from typing import Any

from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.tokens import BOS, EOS, PAD, UNK

Json = dict[str, Any]
_SPACE, _STAND_IN = "▁", "\x02"  # SentencePiece's sign of a space; `Vocabulary`'s of that character
_CONTROL = "[\\p{Cc}\u2028\u2029]"  # what `vocabulary.plain` replaces


def tokenizer(vocabulary: Vocabulary, begin: Sequence[int], end: Sequence[int]) -> Json | None:
    """Returns the content of tokenizer.json, which puts a text between special tokens.

    It is None if the file cannot express the vocabulary: whole words beside the merges of byte-pair
    encoding, or texts of several lines whose Unicode is normalised.
    """
    from sentencepiece import sentencepiece_model_pb2 as pb2

    model: Any = pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(vocabulary.model)
    pieces, rules = [x.piece for x in model.pieces], model.normalizer_spec
    lines = any(x.type == x.BYTE for x in model.pieces)  # a newline is a byte
    whole = any(x.type == x.USER_DEFINED for x in model.pieces)
    bpe = model.trainer_spec.model_type == model.trainer_spec.BPE
    if whole or not bpe or (lines and rules.precompiled_charsmap):
        return None
    merged = [x.piece for x in model.pieces if x.type == x.NORMAL]  # in the order of merging
    known, pairs = {*merged}, ([x[:i], x[i:]] for x in merged for i in range(1, len(x)))
    normalizers, decoders = _steps(rules, lines, escaped=pieces[UNK] != "<unk>")
    special = dict(special=True, normalized=False, single_word=False, lstrip=False, rstrip=False)
    before, after = ([_item("SpecialToken", pieces[i]) for i in x] for x in (begin, end))
    one, two = ([*before, _item("Sequence", x), *after] for x in "AB")
    named = {pieces[i]: dict(id=pieces[i], ids=[i], tokens=[pieces[i]]) for i in (BOS, EOS)}
    return dict(
        version="1.0",
        added_tokens=[dict(id=i, content=pieces[i], **special) for i in (PAD, BOS, EOS, UNK)],
        normalizer=dict(type="Sequence", normalizers=normalizers),
        post_processor=dict(
            type="TemplateProcessing", single=one, pair=[*one, *two], special_tokens=named
        ),
        decoder=dict(type="Sequence", decoders=decoders),
        model=dict(
            type="BPE",
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[pair for pair in pairs if known.issuperset(pair)],
            unk_token=pieces[UNK],
            fuse_unk=True,
            byte_fallback=lines,
        ),
    )


def _steps(rules: Any, lines: bool, escaped: bool) -> tuple[list[Json], list[Json]]:
    """Returns the steps from text to pieces in `Vocabulary` and SentencePiece, and back."""
    out = [_replace(Regex=f"(?!\n){_CONTROL}" if lines else _CONTROL, content=" ")]
    back = [_replace(String=_SPACE, content=" "), dict(type="ByteFallback"), dict(type="Fuse")]
    if escaped:
        out.append(_replace(String=_SPACE, content=_STAND_IN))
    if charsmap := base64.b64encode(rules.precompiled_charsmap).decode():
        out.append(dict(type="Precompiled", precompiled_charsmap=charsmap))
    if rules.remove_extra_whitespaces:
        out += [_replace(Regex="\\A +| +\\z", content=""), _replace(Regex=" +", content=" ")]
    if rules.add_dummy_prefix:
        out.append(dict(type="Prepend", prepend=_SPACE))
        back.append(dict(type="Strip", content=" ", start=1, stop=0))
        if lines:  # each has the prefix, unless it is empty
            out.append(_replace(Regex=f"\\A{_SPACE}(?=\n)", content=""))
            out.append(_replace(Regex="\n(?!\n|\\z)", content=f"\n{_SPACE}"))
            back.append(_replace(String="\n ", content="\n"))
    if rules.escape_whitespaces:
        out.append(_replace(String=" ", content=_SPACE))
    return out, [*back, *[_replace(String=_STAND_IN, content=_SPACE)] * escaped]


def _replace(content: str, **pattern: str) -> Json:
    return dict(type="Replace", pattern=pattern, content=content)


def _item(kind: str, id: str) -> Json:
    return {kind: dict(id=id, type_id=0)}
