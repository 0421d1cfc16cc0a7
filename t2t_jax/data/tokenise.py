"""Tokenisation of raw sentence pairs into the cache that `cache.py` opens.

Memory does not grow with the corpus: one pass samples the pairs that the vocabulary is trained on,
and a second one encodes a chunk at a time. The files are written to a temporary directory that is
then renamed, so that a reader never sees half a corpus and two writers cannot mix theirs.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from t2t_jax import files
from t2t_jax.config import Data
from t2t_jax.data.cache import FORMAT, NEWLINE, SIDES, ragged
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import RawCorpus, Stream, normalization
from t2t_jax.data.vocabulary import BYTES, Vocabulary, of_bytes, of_words, plain, train
from t2t_jax.errors import RunError, UsageError
from t2t_jax.tokens import EOS, PROMPT, UNK

CHUNK = 10_000  # pairs encoded at a time
DOCUMENTS = 100  # documents encoded at a time
SAMPLE = 1_000_000  # pairs at most on which the vocabulary is trained, or lines of documents
_INVISIBLE = " \u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_ABANDONED = 7 * 24 * 3600  # seconds without a new file, after which its process was killed
BROKEN = 0.01  # if a larger share of the pairs is not UTF-8, the encoding is assumed to be another

Item = TypeVar("Item")
Encode = Callable[[Sequence[str]], list[list[int]]]
Write = Callable[[str, bytes], object]  # appends to a file of the corpus


class Pair(NamedTuple):
    source: str
    target: str
    extra: Mapping[str, Any] | None


def build(directory: Path, about: Mapping[str, Any], corpus: RawCorpus, data: Data) -> None:
    """Tokenises a corpus into a directory, whose meta.json has `about` among its content.

    Control characters become spaces, in references, too. Training pairs with a side longer than
    `max_length` subwords (EOS included) are left out, documents of any length are kept. In every
    split, pairs with an empty side and pairs that are not UTF-8 are left out. meta.json has the
    number of each, of unknown tokens, and of training pairs that other splits have. The source of a
    document is EOS alone.

    Raises UsageError if a stream cannot be read, has no valid pair, or is not UTF-8, and RunError
    if the directory cannot be written.
    """
    aside = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    for killed in directory.parent.glob(".*." + "[0-9a-f]" * 32):
        with contextlib.suppress(OSError):  # another process may have removed or finished it
            if time.time() - killed.stat().st_mtime > _ABANDONED:
                shutil.rmtree(killed)
    try:
        aside.mkdir(parents=True)
        _fill(aside, about, corpus, data)
        os.rename(aside, directory)
    except OSError as error:
        if (directory / "meta.json").exists():  # another process wrote the corpus
            return
        raise RunError(
            f"the prepared corpus could not be written to {directory} ({error.strerror or error}): "
            "free some space, delete what is in its place, or choose another --cache."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sample(items: Iterable[Item], limit: int) -> tuple[list[Item], int]:
    """Every n-th item and n, the smallest power of two that gives at most `limit` items."""
    kept, stride = list[Item](), 1
    for i, item in enumerate(items):
        if i % stride == 0:
            kept.append(item)
        if len(kept) > limit:
            kept, stride = kept[::2], 2 * stride
    return kept, stride


def _fill(directory: Path, about: Mapping[str, Any], corpus: RawCorpus, data: Data) -> None:
    streams, words = corpus.streams(), corpus.words
    small = [stream for name, stream in streams.items() if name != "train"]
    # Errors in the small splits show before the long work.
    held_out = {pair[:2] for stream in small for pair in _valid(stream, Counter())}
    subwords, trained_on = _vocabulary(corpus, streams, data)
    (directory / "vocabulary.model").write_bytes(subwords.model)
    dtype = "uint16" if subwords.size <= 1 << 16 and not words else "int32"
    encode = prompt_encoder(subwords) if words else subwords.encode
    digest = hashlib.sha256(subwords.model)

    def write(name: str, content: bytes) -> None:
        with (directory / name).open("ab") as file:
            file.write(content)
        digest.update(f"{name}.{len(content)}".encode() + content)

    splits = {
        name: _write_split(write, name, stream, encode, dtype, data, subwords, held_out)
        for name, stream in streams.items()
    }
    meta = {
        "format": FORMAT,
        **about,
        "max_length": data.max_length,
        **({"documents": True} if CORPORA[data.corpus].documents else {}),
        "splits": splits,
        "vocabulary": {
            "size": subwords.size,
            "bytes": len(subwords.model),
            "fingerprint": subwords.fingerprint,
            **trained_on,
        },
        "dtype": dtype,
        "fingerprint": digest.hexdigest(),
        "versions": {p: importlib.metadata.version(p) for p in ("sentencepiece", "numpy")},
    }
    files.write_json(directory / "meta.json", meta)


def _vocabulary(
    corpus: RawCorpus, streams: Mapping[str, Stream], data: Data
) -> tuple[Vocabulary, dict[str, int]]:
    """The vocabulary, and the size of the sample of training pairs if it is trained on one."""
    if corpus.words:
        return Vocabulary(of_words(corpus.words)), {}
    pairs = _valid(streams["train"], Counter())
    if CORPORA[data.corpus].documents:
        if data.vocabulary == BYTES:
            if normalization(data) != "identity":
                raise UsageError("vocabulary=260 keeps all bytes: leave normalization out.")
            return Vocabulary(of_bytes()), {}
        lines, stride = sample((x for pair in pairs for x in pair.target.split("\n")), SAMPLE)
        model = train(lines, data.vocabulary, (), normalization(data), documents=True)
        return Vocabulary(model), {"trained_on_lines": len(lines), "one_line_in": stride}
    sampled, stride = sample(pairs, SAMPLE)
    lines = [text for pair in sampled for text in (pair.source, pair.target)]
    words = {word for pair in sampled for word in pair.target.split()}
    whole = words if corpus.whole_targets else ()
    model = train(lines, data.vocabulary, whole, normalization(data))
    return Vocabulary(model), {"trained_on_pairs": len(sampled), "one_pair_in": stride}


def _write_split(
    write: Write,
    name: str,
    stream: Stream,
    encode: Encode,
    dtype: str,
    data: Data,
    subwords: Vocabulary,
    held_out: Set[tuple[str, str]],
) -> dict[str, int]:
    """Writes one split, and returns its counts, of pairs of train that are `held_out` too."""
    counts: Counter[str] = Counter()
    documents = CORPORA[data.corpus].documents
    size, longest = (DOCUMENTS, sys.maxsize) if documents else (CHUNK, data.max_length)
    for side in SIDES:
        write(f"{name}.{side}.offsets", bytes(8))
    pairs = _valid(stream, counts)
    while chunk := list(itertools.islice(pairs, size)):
        ids = [encode([getattr(pair, side) for pair in chunk]) for side in SIDES]
        if any(min(row, default=0) < 0 for row in ids[0]):
            raise UsageError(
                f"{stream.where} has a prompt in a source, a word that begins with {PROMPT}: only "
                "targets have prompts, as a source is input anyway."
            )
        read = [[len(row) for row in side] for side in ids[documents:]]
        kept = _kept(read, name, longest, counts)
        counts["pairs"] += len(kept)
        counts["held_out"] += sum(name == "train" and chunk[i][:2] in held_out for i in kept)
        for side, rows in zip(SIDES, ids, strict=True):
            start = counts[f"{side}_tokens"]
            rows = [rows[i] for i in kept]
            counts[f"{side}_tokens"] += _write_side(write, f"{name}.{side}", rows, dtype, start)
            counts[f"{side}_unknown"] += sum(row.count(UNK) for row in rows)
            if name != "train":
                texts = [getattr(chunk[i], side).replace("\n", NEWLINE) for i in kept]
                write(f"{name}.{side}.txt", "".join(f"{text}\n" for text in texts).encode())
        # `texts` and `rows` are targets; every text of documents can be decoded. No output
        # equals a text of which encoding loses some characters.
        if name != "train" and encode == subwords.encode and not documents:
            decoded = zip(texts, subwords.decode(rows), strict=True)
            counts["unreachable"] += sum(a.split() != b.split() for a, b in decoded)
        for extra in (chunk[i].extra for i in kept):
            if extra is not None:
                line = json.dumps(extra, ensure_ascii=False, separators=(",", ":"))
                write(f"{name}.extras.jsonl", line.encode() + b"\n")
                counts["extras"] += 1
    if counts["extras"] not in (0, counts["pairs"]):
        raise UsageError(
            f"{stream.where} has annotations of {counts['extras']:,} of its {counts['pairs']:,} "
            "pairs: give every pair one, or none."
        )
    if not counts["pairs"]:
        raise UsageError(
            f"no pair of {stream.where} can be used ({counts['long']} longer than {longest}, "
            f"{counts['empty']} empty): raise max_length or give other files."
        )
    sides = (f"{side}_{what}" for what in ("tokens", "unknown") for side in SIDES)
    names = ("pairs", "long", "empty", "not_utf8", "unreachable", "held_out", *sides)
    return {name: counts[name] for name in names}


def _write_side(write: Write, name: str, rows: list[list[int]], dtype: str, start: int) -> int:
    """Writes rows of ids with EOS, the first token being number `start`; returns their number."""
    # The end mark after prompts is a prompt, too: they tell the length.
    side = ragged([[*row, -EOS if min(row, default=0) < 0 else EOS] for row in rows])
    write(f"{name}.tokens", side.tokens.astype(dtype).tobytes())
    write(f"{name}.offsets", (start + side.offsets[1:]).tobytes())
    return int(side.offsets[-1])


def prompt_encoder(vocabulary: Vocabulary) -> Encode:
    """A function that encodes texts of whole words; the ids of prompts have a minus sign."""
    index = {vocabulary.pieces([i])[0].removeprefix("▁"): i for i in range(vocabulary.size)}
    index |= {PROMPT + word: -i for word, i in index.items()}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        try:
            return [[index[word] for word in text.split()] for text in texts]
        except KeyError as error:
            raise UsageError(
                f"the word {error} is not in the vocabulary of the corpus, `words`, in which "
                "SentencePiece has normalised some characters: declare it, or write it otherwise."
            ) from None

    return encode


def _kept(lengths: list[list[int]], name: str, max_length: int, counts: Counter[str]) -> list[int]:
    """Indices of the pairs of a chunk that are kept; the others are counted by reason.

    Lengths are subwords without EOS of both sides, or of the targets of documents.
    """
    kept = []
    for i, sizes in enumerate(zip(*lengths, strict=True)):
        if not all(sizes):  # its characters are all removed by normalisation
            counts["empty"] += 1
        elif name == "train" and max(sizes) + 1 > max_length:
            counts["long"] += 1
        else:
            kept.append(i)
    return kept


def _valid(stream: Stream, counts: Counter[str]) -> Iterator[Pair]:
    """The pairs that are UTF-8 and have two sides; the others are counted by reason."""
    total, first = 0, 0
    for total, raw in enumerate(stream.read(), start=1):
        try:
            source, target = plain(raw.source.decode()).strip(), raw.target.decode()
            lines = target.replace("\r\n", "\n").split("\n") if raw.document else [target]
            target = "\n".join(map(plain, lines)).strip()
        except UnicodeDecodeError:
            counts["not_utf8"] += 1
            first = first or total
            continue
        if target.strip(_INVISIBLE) and (raw.document or source.strip(_INVISIBLE)):
            yield Pair(source, target, raw.extra)
        else:
            counts["empty"] += 1
    if counts["not_utf8"] > BROKEN * total:
        kind = "document" if raw.document else "line"
        raise UsageError(
            f"{counts['not_utf8']:,} of the {total:,} {kind}s of {stream.where} are not UTF-8 (the "
            f"first is {kind} {first:,}): convert the files from their encoding, with iconv -f "
            "ENCODING -t utf-8."
        )
    if counts["empty"] + counts["not_utf8"] == total:
        raise UsageError(f"there is no text in {stream.where}: give other files.")
