"""A vocabulary shared by both languages: SentencePiece's byte-pair encoding (Sennrich et al. 2016).

Section 5.1 of the paper: "a shared source-target vocabulary of about 37000 tokens".
"""

import functools
import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS, EOS, PAD, UNK

_SPECIAL: dict[str, Any] = dict(pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK)
_SPACES = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ")
# The text of a corpus has no control characters. So they may stand in a vocabulary for what is not
# text: before the names of special tokens, and for SentencePiece's sign of a space as a character.
_MARK, _SPACE_SIGN = "\x01", ("▁", "\x02")
BYTES = UNK + 1 + 256  # the size of a vocabulary of bytes
SPECIAL = "<pad>", "<s>", "</s>", "<unk>"  # what the special tokens are called
_NAMES = {
    f"{name}_piece": f"{_MARK}{text}"
    for name, text in zip(("pad", "bos", "eos", "unk"), SPECIAL, strict=True)
}


def plain(text: str) -> str:
    """Text in which each control character, and each line or paragraph separator, is a space."""
    return text.translate(_SPACES)


class Vocabulary:
    """A trained SentencePiece model. Ids are below `size`; the first four are in `tokens.py`."""

    def __init__(self, model: bytes):
        self.model = model

    @functools.cached_property
    def _processor(self):
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the model in hex; equal fingerprints mean equal subwords for all ids."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def size(self) -> int:
        """Number of subwords, V."""
        return self._processor.get_piece_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Subword ids of each sentence, or document, without EOS."""
        newline = self._processor.piece_to_id("<0x0A>")  # UNK in a vocabulary of sentences
        texts = [[x] if newline == UNK else x.split("\n") for x in sentences]
        lines = [plain(line) for text in texts for line in text]
        if self._processor.id_to_piece(UNK).startswith(_MARK):
            lines = [line.replace(*_SPACE_SIGN) for line in lines]
        encoded = iter(self._processor.encode(lines))
        of_texts = (itertools.islice(encoded, len(text)) for text in texts)
        return [[i for line in x for i in (newline, *line)][1:] for x in of_texts]

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        """The text of each row of ids up to its first EOS; PAD and BOS have no text."""
        rows = ([int(i) for i in row] for row in ids)
        texts = self._processor.decode([x[: x.index(EOS)] if EOS in x else x for x in rows])
        # SentencePiece puts a space before each line, and removes it only from the first.
        space = " " * (self.size > BYTES)
        return [x.replace(*_SPACE_SIGN[::-1]).replace(f"\n{space}", "\n") for x in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword of each id; a leading `▁` marks the start of a word."""
        return [self._processor.id_to_piece(int(i)).removeprefix(_MARK) for i in ids]


def train(
    lines: Sequence[str],
    size: int,
    whole: Iterable[str] = (),
    normalization: str = "identity",
    documents: bool = False,
) -> bytes:
    """A serialised SentencePiece BPE model of `size` subwords; a function of the lines.

    Args:
      whole: words that are never split: each is one of the subwords.
      normalization: SentencePiece's rule for the text. With `identity`, every text of known
        characters is decoded as it was encoded, even if it has the name of a special token.
      documents: whether every space counts, and characters that the model lacks are bytes.

    Raises UsageError if the lines have fewer subwords, or more characters, than `size`.
    """
    lines, options = [*map(plain, lines)], dict[str, Any]()
    if normalization == "identity":
        lines, options = [line.replace(*_SPACE_SIGN) for line in lines], {**_NAMES}
    if documents:
        options |= dict(byte_fallback=True, remove_extra_whitespaces=False)
    longest = max((len(line.encode()) for line in lines), default=0)
    if longest > _LONGEST:  # SentencePiece leaves out longer lines
        options["max_sentence_length"] = longest
    try:
        return _model(
            lines,
            normalization_rule_name=normalization,
            model_type="bpe",
            vocab_size=size,
            character_coverage=COVERAGE,
            **options,
            user_defined_symbols=[f"▁{word}" for word in sorted(whole)],
            num_threads=4,  # stored in the model, so a change would change its fingerprint
        )
    except RuntimeError as error:
        raise UsageError(_reason(str(error), size)) from error


def _model(lines: Iterable[str], **options: Any) -> bytes:
    """A serialised SentencePiece model that is trained with these options."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **_SPECIAL, **options
    )
    return model.getvalue()


def of_bytes() -> bytes:
    """A serialised SentencePiece model of bytes alone, with which a text is its UTF-8."""
    from sentencepiece import sentencepiece_model_pb2 as pb2

    model: Any = pb2.ModelProto()  # type: ignore[attr-defined]
    model.ParseFromString(train(["a b"], BYTES + 4, documents=True))
    del model.pieces[BYTES:]
    model.pieces[UNK].piece = "<unk>"  # as no character needs to be escaped
    model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.escape_whitespaces = False
    return model.SerializeToString()


def of_words(words: Sequence[str]) -> bytes:
    """A serialised SentencePiece model whose pieces are these words; a function of their set."""
    return _model(
        [" ".join(words)],
        model_type="word",
        vocab_size=len(words) + UNK + 1,
        use_all_vocab=True,
        max_sentence_length=1 << 30,
    )


# The rarest characters, 0.001% of the text, become UNK: WMT has thousands of them.
COVERAGE = 0.99999
_LONGEST = 4192  # bytes; SentencePiece's default, stored in the model


def _reason(message: str, size: int) -> str:
    if match := re.search(r"value <= (\d+)", message):
        return (
            f"the corpus has too few subwords for a vocabulary of {size}: set vocabulary to at "
            f"most {match[1]}."
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"the characters of the corpus alone exceed a vocabulary of {size}: set vocabulary "
            f"well above {match[1]}."
        )
    return f"SentencePiece cannot make a vocabulary of {size} from this corpus: {message.strip()}"
