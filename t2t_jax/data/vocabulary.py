"""Subwords shared by both languages: byte-pair encoding (Sennrich et al. 2016) by SentencePiece.

Section 5.1 of the paper: "a shared source-target vocabulary of about 37000 tokens".
"""

import functools
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence

from t2t_jax.errors import UsageError
from t2t_jax.tokens import BOS, EOS, PAD, UNK


class Vocabulary:
    """A trained SentencePiece model; ids are below `size`, the first four as in `tokens.py`."""

    def __init__(self, model: bytes):
        self.model = model

    @functools.cached_property
    def _processor(self):
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the model, in hex: equal where ids mean the same subwords."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def size(self) -> int:
        """Number of subwords, V."""
        return self._processor.get_piece_size()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Subword ids of each sentence, without EOS."""
        return self._processor.encode(list(sentences))

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        """The text of each row of ids up to its first EOS; PAD and BOS spell nothing."""
        return self._processor.decode([_sentence(row) for row in ids])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The subword behind each id; a leading `▁` marks the start of a word."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


def train(lines: Iterable[str], size: int) -> bytes:
    """A SentencePiece BPE model of exactly `size` subwords; the same lines give the same bytes.

    Raises:
      UsageError: the lines do not hold so many subwords, or their characters alone are more.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_without_nul(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=COVERAGE,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            num_threads=4,  # stored in the model, so a change would change its fingerprint
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UsageError(_reason(str(error), size)) from error
    return model.getvalue()


# Characters that together make up the last 0.001% of the text become UNK: WMT has thousands.
COVERAGE = 0.99999


def _sentence(row: Iterable[int]) -> list[int]:
    ids = [int(i) for i in row]
    return ids[: ids.index(EOS)] if EOS in ids else ids


def _without_nul(lines: Iterable[str]) -> Iterator[str]:
    return (line.replace("\0", " ") for line in lines)


def _reason(message: str, size: int) -> str:
    if found := re.search(r"value <= (\d+)", message):
        return (
            f"the corpus holds too few subwords for a vocabulary of {size}: set vocabulary to at "
            f"most {found[1]}."
        )
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"the characters of the corpus alone exceed a vocabulary of {size}: set vocabulary "
            f"well above {found[1]}."
        )
    return f"SentencePiece cannot make a vocabulary of {size} from this corpus: {message.strip()}"
