"""A vocabulary shared by both languages: SentencePiece's byte-pair encoding (Sennrich et al. 2016).

Section 5.1 of the paper: "a shared source-target vocabulary of about 37000 tokens".
"""

import functools
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS, EOS, PAD, UNK

_SPECIAL: dict[str, Any] = dict(pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK)


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
        """Subword ids of each sentence, without EOS."""
        return self._processor.encode(list(sentences))

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        """The text of each row of ids up to its first EOS; PAD and BOS have no text."""
        rows = ([int(i) for i in row] for row in ids)
        return self._processor.decode([x[: x.index(EOS)] if EOS in x else x for x in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword of each id; a leading `▁` marks the start of a word."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


def train(lines: Iterable[str], size: int, whole: Iterable[str] = ()) -> bytes:
    """A serialised SentencePiece BPE model of `size` subwords; a function of the lines.

    Args:
      whole: words that are never split: each is one of the subwords.

    Raises:
      UsageError: the lines have fewer subwords, or more characters, than `size`.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line.replace("\0", " ") for line in lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=COVERAGE,
            **_SPECIAL,
            user_defined_symbols=[f"▁{word}" for word in sorted(whole)],
            num_threads=4,  # stored in the model, so a change would change its fingerprint
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UsageError(_reason(str(error), size)) from error
    return model.getvalue()


def of_words(words: Sequence[str]) -> bytes:
    """A serialised SentencePiece model whose pieces are these words; a function of their set."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)]),
        model_writer=model,
        model_type="word",
        vocab_size=len(words) + UNK + 1,
        use_all_vocab=True,
        max_sentence_length=1 << 30,
        minloglevel=2,
        **_SPECIAL,
    )
    return model.getvalue()


# The rarest characters, 0.001% of the text, become UNK: WMT has thousands of them.
COVERAGE = 0.99999


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
