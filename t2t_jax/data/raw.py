"""A corpus before tokenisation: the raw pairs of its splits, from wherever it is declared to be."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.config import PATHS, Data
from t2t_jax.data.corpora import CORPORA, Corpus, parse_options
from t2t_jax.data.vocabulary import SPECIAL
from t2t_jax.errors import UsageError, in_function
from t2t_jax.parts import implementation
from t2t_jax.tokens import PROMPT, UNK

HOME = "t2t_jax.data"  # the package in which the table of corpora names functions
Report = Callable[[str], object]
REQUEST = ("corpus", "source", "target", *PATHS, "vocabulary", "max_length")


class FilesMissing(UsageError):
    """The files of a corpus are missing and cannot be downloaded."""


class Raw(NamedTuple):
    """A sentence pair, or a document as the target: bytes that should be UTF-8."""

    source: bytes
    target: bytes
    extra: Mapping[str, Any] | None = None
    document: bool = False


Read = Callable[..., Iterator[Raw]]


class Stream(NamedTuple):
    """A split that can be read repeatedly; `where` names its files in messages."""

    where: str
    read: Callable[[], Iterator[Raw]]


@dataclass(frozen=True)
class RawCorpus:
    content: Mapping[str, Any]  # JSON that is equal for corpora of equal pairs, such as checksums
    streams: Callable[[], Mapping[str, Stream]]  # gives the splits; it may download them
    # The vocabulary, if it consists of whole words. A word of a target that begins with
    # `tokens.PROMPT` is then a prompt: input without a loss.
    words: Sequence[str] = ()
    # Whether every word of a training target is one subword, as brackets of linearised trees are.
    whole_targets: bool = False


def raw_corpus(data: Data, root: Path, report: Report) -> RawCorpus:
    """The corpus of a config, before tokenisation; downloaded files are kept below `root`."""
    corpus = CORPORA[data.corpus]
    function = implementation(corpus.where, HOME)
    raw = _of_function(data, corpus, function) if corpus.splits else function(data, root, report)
    for word, n in Counter(raw.words).items():
        if n > 1 or word in SPECIAL or word.startswith(PROMPT):
            why = "twice, or it names a special token or a prompt: rename it"
            raise UsageError(f"corpus {data.corpus} has the word {word} {why}.")
    size = len(raw.words) + UNK + 1
    if raw.words and size != data.vocabulary:
        raise UsageError(
            f"corpus {data.corpus} has {len(raw.words)} words and {UNK + 1} special tokens, not a "
            f"vocabulary of {data.vocabulary:,}: set vocabulary={size}."
        )
    return raw


def drawn_pairs(data: Data) -> int:
    """The number of training pairs if so many are drawn on request, else 0."""
    above = CORPORA[data.corpus].drawn_above
    return 0 if above is None or data.pairs <= above else data.pairs


def request(data: Data) -> dict[str, Any]:
    """The fields that change a prepared corpus; some are left out if they have their default.

    Paths are absolute.
    """
    fields = {name: getattr(data, name) for name in REQUEST}
    fields |= {name: str(Path(fields[name]).resolve()) for name in PATHS if fields[name]}
    fields["normalization"] = normalization(data)
    chosen = dict(grade=data.grade, task_options=data.task_options, pairs=drawn_pairs(data))
    return fields | {name: x for name, x in chosen.items() if x != getattr(type(data), name)}


def normalization(data: Data) -> str:
    """SentencePiece's rule for the text of a config."""
    chosen = data.normalization
    return CORPORA[data.corpus].normalization if chosen == "corpus" else chosen


def streams_of(corpus: str, splits: Iterable[str], read: Read) -> dict[str, Stream]:
    """The streams of splits that a function of the name of a split reads."""
    return {x: Stream(f"{x} of {corpus}", functools.partial(read, x)) for x in splits}


def sha256(path: Path) -> str:
    """The sha256 of a file, as hex digits."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): correct the path or its permissions."
        ) from error


def _of_function(data: Data, corpus: Corpus, function: Callable[..., Any]) -> RawCorpus:
    """The corpus of a study file's function of a split and the corpus's options."""
    name, options = data.corpus, parse_options(data.corpus, data.task_options)

    def read(split: str) -> Iterator[Raw]:
        try:
            for item in function(split, **options):
                yield _encoded(name, split, item)
        except UsageError:
            raise
        except Exception as error:
            raise in_function(f"corpus {name}", error) from error

    files = [*map(sha256, map(Path, corpus.files))]
    content: dict[str, Any] = {"code": corpus.version, "files": files}
    content |= {"words": corpus.words} if corpus.words else {}
    return RawCorpus(content, lambda: streams_of(name, corpus.splits, read), corpus.words)


def _encoded(name: str, split: str, item: Sequence[Any]) -> Raw:
    """A pair of texts, perhaps with a mapping of annotations, as bytes; or a document."""
    if CORPORA[name].documents and isinstance(item, str):
        return Raw(b"", item.encode(errors="surrogatepass"), document=True)
    parts = item if isinstance(item, tuple | list) else ()
    texts, extra = parts[:2], parts[2] if len(parts) == 3 else None
    if [*map(type, texts)] != [str, str] or len(parts) > 3 or not isinstance(extra, Mapping | None):
        raise UsageError(
            f"corpus {name} yields {item!r} in {split}: yield two texts, and perhaps a mapping of "
            "annotations; or one text each time, if it is declared with documents=True."
        )
    if any("\n" in text.strip() for text in texts):
        raise UsageError(
            f"corpus {name} yields a text of several lines in {split}, {item!r}: yield one "
            "line, as translations and references are files of lines."
        )
    source, target = (text.encode(errors="surrogatepass") for text in texts)  # or not UTF-8
    return Raw(source, target, extra)
