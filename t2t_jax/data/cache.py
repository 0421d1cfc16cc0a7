"""The tokenised corpus on disk, written by `tokenise.py` and memory-mapped by training.

The files of a directory are:

    SPLIT.SIDE.tokens     the ids of all sentences one after another, each sentence with EOS, in the
                          dtype that meta.json names; a negative id in a target is a prompt token:
                          input without a loss
    SPLIT.SIDE.offsets    int64 [sentences + 1]: where each sentence begins, and where the last ends
    SPLIT.SIDE.txt        the raw texts of dev and test splits, with NEWLINE inside of documents
    SPLIT.extras.jsonl    annotations of the sentences, if the corpus has any
    vocabulary.model      the SentencePiece model, of subwords or whole words
    meta.json             written last
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError
from t2t_jax.tokens import EOS

FORMAT = 2  # to be incremented when the meaning of the files changes
SIDES = ("source", "target")
NEWLINE = "\u2028"  # no text has one, as `vocabulary.plain` replaces it


@dataclass(frozen=True)
class Ragged:
    """Sentences of ids one after another: sentence i is tokens[offsets[i]:offsets[i + 1]]."""

    tokens: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return np.asarray(self.tokens[self.offsets[i] : self.offsets[i + 1]])

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """int64 [sentences]: number of tokens of each, EOS included."""
        return np.diff(self.offsets)


def ragged(sentences: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
    """Sentences of ids, copied to memory as int32."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.concatenate([np.zeros(0, np.int32), *sentences])
    return Ragged(tokens.astype(np.int32, copy=False), offsets)


@dataclass(frozen=True)
class Split:
    """One split; raw texts and extras are read from disk at their first use."""

    source: Ragged
    target: Ragged
    stem: Path
    documents: Ragged | None = None  # which `packed` has cut into the sequences of `target`

    @functools.cached_property
    def sources(self) -> list[str]:
        """Raw source sentences of a dev or test split."""
        return _lines(self.stem.with_name(self.stem.name + ".source.txt"))

    @functools.cached_property
    def references(self) -> list[str]:
        """Raw target sentences of a dev or test split, the references of its scores."""
        lines = _lines(self.stem.with_name(self.stem.name + ".target.txt"))
        return [line.replace(NEWLINE, "\n") for line in lines]

    @functools.cached_property
    def extras(self) -> list[dict[str, Any]]:
        """Annotations of each pair, such as distances or trees; empty if there are none."""
        path = self.stem.with_name(self.stem.name + ".extras.jsonl")
        return [json.loads(line) for line in _lines(path)] if path.exists() else []


def as_one(split: Split) -> Split:
    """The split with each source as a prompt before its target, for a language model."""
    source, target = split.source, split.target
    prompts = (-source[i].astype(np.int32) for i in range(len(source)))
    joined = [np.concatenate([prompt, target[i]]) for i, prompt in enumerate(prompts)]
    return replace(split, target=ragged(joined))


def packed(split: Split, length: int, train: bool) -> Split:
    """The split with its documents one after another, cut into sequences of `length` tokens.

    A shorter last sequence is left out of several for training. The sources are EOS alone.
    """
    tokens = split.target.tokens
    n = max(1, len(tokens) // length) if train else -(-len(tokens) // length)
    offsets = np.minimum(np.arange(n + 1) * length, len(tokens))
    source = Ragged(np.full(n, EOS, tokens.dtype), np.arange(n + 1))
    return replace(split, source=source, target=Ragged(tokens, offsets), documents=split.target)


@dataclass(frozen=True)
class Dataset:
    """A prepared corpus; equal fingerprints mean that all tokens and texts are equal."""

    directory: Path
    vocabulary: Vocabulary
    splits: Mapping[str, Split]
    fingerprint: str
    meta: Mapping[str, Any]


def open_dataset(directory: Path) -> Dataset:
    """Opens the prepared corpus in a directory; its tokens are memory-mapped.

    Raises UsageError if there is none, it has another format, or one of its files is cut short.
    """
    try:
        meta = json.loads((directory / "meta.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{directory} holds no prepared corpus (meta.json cannot be read): prepare it again or "
            "correct the path."
        ) from error
    if meta.get("format") != FORMAT:
        raise UsageError(
            f"{directory} was prepared in format {meta.get('format')} and this version reads "
            f"{FORMAT}: delete the directory and prepare it again."
        )
    model = directory / "vocabulary.model"
    _check(model, meta["vocabulary"]["bytes"])
    splits = {}
    for name, counts in meta["splits"].items():
        stem = directory / name
        source, target = (_open_side(stem, side, counts, meta["dtype"]) for side in SIDES)
        splits[name] = Split(source, target, stem)
    return Dataset(directory, Vocabulary(model.read_bytes()), splits, meta["fingerprint"], meta)


def summary(meta: Mapping[str, Any], drawn: int = 0) -> str:
    """A line with the numbers of pairs that a prepared corpus keeps and leaves out.

    The share of unknown tokens is that of the side that has more. `drawn` is the number of training
    pairs that are trained on, if not all are.
    """
    parts, documents = [], meta.get("documents")
    for name, n in meta["splits"].items():
        left_out = [f"{n['empty']:,} empty", f"{n['not_utf8']:,} not UTF-8"]
        if name == "train":
            long = f"{n['long']:,} longer than {meta['max_length']}"
            left_out = left_out if documents else [long, *left_out]
            kept = f"train {n['pairs']:,} {'documents' if documents else 'pairs'} kept"
            used = f" ({drawn:,} of them are trained on)" * (0 < drawn < n["pairs"])
            known = n.get("held_out", 0)  # which older caches do not count
            also = [f"{known:,} also in other splits"] * (known > 0)
            parts.append(", ".join([kept + used, *also, *left_out]))
        else:
            notes = left_out if n["empty"] or n["not_utf8"] else []
            if n["unreachable"]:
                notes = [*notes, f"{n['unreachable']:,} with a reference that no output can equal"]
            parts.append(f"{name} {n['pairs']:,}" + f" ({', '.join(notes)})" * bool(notes))
    parts.append(f"vocabulary {meta['vocabulary']['size']:,}")
    if documents:  # without unknown tokens, and of no languages
        tokens = (f"{name} {n['target_tokens']:,}" for name, n in meta["splits"].items())
        return f"{meta['corpus']}: {'; '.join(parts)}; tokens: {', '.join(tokens)}"
    unknown = (
        f"{name} {max(n[f'{side}_unknown'] / n[f'{side}_tokens'] for side in SIDES):.2%}"
        for name, n in meta["splits"].items()
    )
    parts.append(f"unknown tokens: {', '.join(unknown)}")
    return f"{meta['corpus']} {meta['source']}-{meta['target']}: {'; '.join(parts)}"


def _open_side(stem: Path, side: str, counts: Mapping[str, int], dtype: str) -> Ragged:
    tokens = stem.with_name(f"{stem.name}.{side}.tokens")
    offsets = stem.with_name(f"{stem.name}.{side}.offsets")
    _check(tokens, counts[f"{side}_tokens"] * np.dtype(dtype).itemsize)
    _check(offsets, (counts["pairs"] + 1) * 8)
    return Ragged(np.memmap(tokens, dtype, "r"), np.memmap(offsets, np.int64, "r"))


def _check(path: Path, size: int) -> None:
    actual = path.stat().st_size if path.exists() else 0
    if actual != size:
        raise UsageError(
            f"{path} has {actual:,} bytes instead of {size:,}: copy it again, or delete its "
            "directory and prepare the corpus again."
        )


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise UsageError(f"{path} does not exist: only dev and test splits keep their raw texts.")
    return path.read_bytes().decode("utf-8").split("\n")[:-1]
