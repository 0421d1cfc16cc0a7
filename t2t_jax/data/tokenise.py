"""From streams of raw sentence pairs to the tokenised cache that `cache.py` opens.

Two passes, so that a corpus of any size fits: one samples what the vocabulary is trained on, one
encodes a chunk at a time. Everything is written beside its place and then renamed into it, so that
a reader never sees half a corpus and two writers cannot mix theirs.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from t2t_jax.data.cache import FORMAT, SIDES
from t2t_jax.data.vocabulary import Vocabulary, train
from t2t_jax.errors import RunError, UsageError
from t2t_jax.tokens import EOS

CHUNK = 10_000  # pairs encoded at a time
SAMPLE = 1_000_000  # pairs that the vocabulary is trained on, at most
BROKEN = 0.01  # a larger share of pairs that are not UTF-8 means a file in another encoding

Item = TypeVar("Item")


class FilesMissing(UsageError):
    """The corpus's own files are not at hand."""


class Raw(NamedTuple):
    """A sentence pair as the corpus gives it: bytes that ought to be UTF-8."""

    source: bytes
    target: bytes
    extra: Mapping[str, Any] | None = None


class Stream(NamedTuple):
    """A split that can be read as often as needed; `where` names its files in messages."""

    where: str
    read: Callable[[], Iterator[Raw]]


class Pair(NamedTuple):
    source: str
    target: str
    extra: Mapping[str, Any] | None


def build(
    directory: Path,
    about: Mapping[str, Any],
    streams: Mapping[str, Stream],
    vocabulary: int,
    max_length: int,
) -> None:
    """Tokenises `streams`, "train" among them, into `directory`; `about` goes into meta.json.

    Training pairs longer than `max_length` subwords (EOS included) on a side are left out; so are,
    in every split, pairs with an empty side and pairs that are not UTF-8. All are counted.

    Raises:
      UsageError: a stream cannot be read, holds no valid pair, or is not UTF-8 for the most part.
      RunError: the directory cannot be written.
    """
    aside = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir(parents=True)
        _fill(aside, about, streams, vocabulary, max_length)
        _move(aside, directory)
    except OSError as error:
        raise RunError(
            f"the prepared corpus could not be written to {directory} ({error.strerror or error}): "
            "free some space there or choose another directory."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sample(items: Iterable[Item], limit: int) -> tuple[list[Item], int]:
    """Every 2^k-th of the items, as dense as `limit` allows, and that stride."""
    kept: list[Item] = []
    stride = 1
    for i, item in enumerate(items):
        if i % stride == 0:
            kept.append(item)
        if len(kept) > limit:
            kept, stride = kept[::2], 2 * stride
    return kept, stride


def _fill(
    directory: Path,
    about: Mapping[str, Any],
    streams: Mapping[str, Stream],
    vocabulary: int,
    max_length: int,
) -> None:
    for name, stream in streams.items():  # the small splits first: their faults show at once
        if name != "train":
            for _ in _valid(stream, Counter()):
                pass
    sampled, stride = sample(_valid(streams["train"], Counter()), SAMPLE)
    model = train((text for pair in sampled for text in (pair.source, pair.target)), vocabulary)
    used = len(sampled)
    del sampled
    subwords = Vocabulary(model)
    (directory / "vocabulary.model").write_bytes(model)
    dtype = "uint16" if subwords.size <= 1 << 16 else "int32"
    digest = hashlib.sha256(model)
    splits = {
        name: _write_split(directory, name, stream, subwords, dtype, max_length, digest)
        for name, stream in streams.items()
    }
    meta = {
        "format": FORMAT,
        **about,
        "max_length": max_length,
        "splits": splits,
        "vocabulary": {
            "size": subwords.size,
            "bytes": len(model),
            "fingerprint": subwords.fingerprint,
            "trained_on_pairs": used,
            "one_pair_in": stride,
        },
        "dtype": dtype,
        "fingerprint": digest.hexdigest(),
        "versions": {p: importlib.metadata.version(p) for p in ("sentencepiece", "numpy")},
    }
    text = json.dumps(meta, indent=1, ensure_ascii=False)
    (directory / "meta.json").write_text(text + "\n", "utf-8")


def _write_split(
    directory: Path,
    name: str,
    stream: Stream,
    subwords: Vocabulary,
    dtype: str,
    max_length: int,
    digest: Any,
) -> dict[str, int]:
    """Writes one split and says what is in it; `digest` takes in all that is written."""
    counts: Counter[str] = Counter()
    ends = dict.fromkeys(SIDES, 0)
    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {}

        def write(suffix: str, data: bytes) -> None:
            if suffix not in files:
                files[suffix] = stack.enter_context(open(directory / f"{name}.{suffix}", "wb"))
            files[suffix].write(data)
            digest.update(f"{name}.{suffix}.{len(data)}".encode() + data)

        for side in SIDES:
            write(f"{side}.offsets", bytes(8))
        pairs = _valid(stream, counts)
        while chunk := list(itertools.islice(pairs, CHUNK)):
            ids = [subwords.encode([getattr(pair, side) for pair in chunk]) for side in SIDES]
            kept = _kept([[len(row) for row in side] for side in ids], name, max_length, counts)
            counts["pairs"] += len(kept)
            for k, side in enumerate(SIDES):
                rows = [ids[k][i] for i in kept]
                flat = itertools.chain.from_iterable(itertools.chain(row, (EOS,)) for row in rows)
                write(f"{side}.tokens", np.fromiter(flat, dtype).tobytes())
                lengths = np.fromiter((len(row) + 1 for row in rows), np.int64, len(rows))
                write(f"{side}.offsets", (ends[side] + np.cumsum(lengths)).tobytes())
                ends[side] += int(lengths.sum())
                if name != "train":
                    texts = (getattr(chunk[i], side) for i in kept)
                    write(f"{side}.txt", "".join(f"{text}\n" for text in texts).encode())
            for i in kept:
                if (extra := chunk[i].extra) is not None:
                    line = json.dumps(extra, ensure_ascii=False, separators=(",", ":"))
                    write("extras.jsonl", line.encode() + b"\n")
    if not counts["pairs"]:
        raise UsageError(
            f"no pair of {stream.where} can be used ({counts['long']} longer than {max_length}, "
            f"{counts['empty']} empty): raise max_length or give other files."
        )
    totals = {f"{side}_tokens": ends[side] for side in SIDES}
    return {k: counts[k] for k in ("pairs", "long", "empty", "not_utf8")} | totals


def _kept(lengths: list[list[int]], name: str, max_length: int, counts: Counter[str]) -> list[int]:
    """Which pairs of a chunk stay, by the subwords of their sides without EOS."""
    kept = []
    for i, (source, target) in enumerate(zip(*lengths, strict=True)):
        if not source or not target:  # nothing but characters that normalisation removes
            counts["empty"] += 1
        elif name == "train" and max(source, target) + 1 > max_length:
            counts["long"] += 1
        else:
            kept.append(i)
    return kept


def _valid(stream: Stream, counts: Counter[str]) -> Iterator[Pair]:
    """The pairs that are UTF-8 with two sides; the others are counted by reason."""
    total, first = 0, 0
    for total, raw in enumerate(stream.read(), start=1):
        try:
            source, target = raw.source.decode().strip(), raw.target.decode().strip()
        except UnicodeDecodeError:
            counts["not_utf8"] += 1
            first = first or total
            continue
        if source and target:
            yield Pair(source, target, raw.extra)
        else:
            counts["empty"] += 1
    if counts["not_utf8"] > BROKEN * total:
        raise UsageError(
            f"{counts['not_utf8']:,} of the {total:,} lines of {stream.where} are not UTF-8 (the "
            f"first is line {first:,}): convert the files, for instance with iconv -f latin1 -t "
            "utf-8."
        )
    if counts["empty"] + counts["not_utf8"] == total:
        raise UsageError(f"{stream.where} hold no sentence pair: give files that do.")


def _move(aside: Path, directory: Path) -> None:
    try:
        os.rename(aside, directory)
    except OSError:
        if not (directory / "meta.json").exists():  # else another process was quicker
            raise
