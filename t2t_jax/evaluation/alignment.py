"""Which attention heads find what: the gold alignment of words, and what words depend on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Links = set[tuple[int, int]]  # (source word, target word)


def word_of(pieces: Sequence[str]) -> list[int]:
    """The word that each subword belongs to; words begin with `▁`."""
    return np.maximum(np.cumsum([p.startswith("▁") for p in pieces]) - 1, 0).tolist()


def by_words(weights: np.ndarray, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """Weights [h, T, S] of subwords -> [h, words, words].

    The weights of a word's subwords as keys are added up, and averaged over its subwords as
    queries. Rows and columns beyond those named (EOS) are left out.

    Args:
      rows, columns: the word of each subword that counts, from 0; -1 leaves one out.
    """

    def sums(words: Sequence[int]) -> np.ndarray:
        return np.equal.outer(np.arange(max(words, default=-1) + 1), words).astype(np.float32)

    up, across = sums(rows), sums(columns)
    up /= np.maximum(up.sum(1, keepdims=True), 1)
    kept = weights[:, : len(rows), : len(columns)]
    return np.einsum("it,hts,js->hij", up, kept, across)


def links(weights: np.ndarray) -> Links:
    """Each target word with the source word that it attends to most; weights [T, S] of words."""
    return {(int(s), t) for t, s in enumerate(weights.argmax(1))} if weights.size else set()


def error_rate(found: Iterable[Links], gold: Iterable[Links]) -> float:
    """AER (Och and Ney 2003), all gold links sure: 1 - 2 |A and G| / (|A| + |G|) over a corpus."""
    common = total = 0
    for a, g in zip(found, gold, strict=True):
        common += len(a & g)
        total += len(a) + len(g)
    return 1 - 2 * common / total if total else float("nan")


class Tracked(NamedTuple):
    """How often a head finds the other end of a kind of dependency.

    Attributes:
      of: dependencies of that kind.
      layer, head: of the head that finds it most often.
      found: its share of them.
      distance: the share that lies at the most frequent distance, which a head can find blindly.
    """

    kind: str
    of: int
    layer: int
    head: int
    found: float
    distance: float


def tracked(
    maps: Sequence[Mapping[int, np.ndarray]], dependencies: Sequence[Sequence[Sequence[Any]]]
) -> list[Tracked]:
    """For each kind of dependency the decoder head that tracks it best.

    Of the two words, the one predicted later looks back at the other; a head finds it where no
    word before has more of its attention.

    Args:
      maps: for each sentence by layer, weights [h, words, words] of the decoder's self-attention,
        a row a predicted word, a column a word of the input.
      dependencies: for each sentence (kind, position, head).
    """
    hits: dict[str, dict[tuple[int, int], int]] = {}
    distances: dict[str, list[int]] = {}
    for layers, known in zip(maps, dependencies, strict=True):
        for kind, a, b in known:
            early, late = sorted((a, b))
            if early == late:
                continue
            distances.setdefault(kind, []).append(late - early)
            counts = hits.setdefault(kind, {})
            for layer, weights in layers.items():
                for head, found in enumerate(weights[:, late, :late].argmax(1) == early):
                    counts[layer, head] = counts.get((layer, head), 0) + int(found)
    out = []
    for kind, counts in hits.items():
        n = len(distances[kind])
        (layer, head), most = max(counts.items(), key=lambda item: item[1])
        blind = max(np.bincount(distances[kind]))
        out.append(Tracked(kind, n, layer, head, most / n, blind / n))
    return sorted(out, key=lambda x: -x.of)
