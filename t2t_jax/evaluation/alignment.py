"""How well attention heads find gold word alignments and grammatical dependencies."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Links = set[tuple[int, int]]  # (source word, target word)


def word_of(pieces: Sequence[str]) -> list[int]:
    """Index of the word that each subword belongs to; a word's first subword begins with `▁`."""
    return np.maximum(np.cumsum([p.startswith("▁") for p in pieces]) - 1, 0).tolist()


def by_words(weights: np.ndarray, rows: Sequence[int], columns: Sequence[int]) -> np.ndarray:
    """Weights [h, T, S] of subwords -> [h, words, words].

    Weights are summed over a word's subwords as keys, and averaged over its subwords as queries.

    Args:
      rows, columns: index of the word of each subword; -1 leaves the subword out. Rows and columns
        of the weights beyond their lengths (EOS) are left out as well.
    """

    def membership(words: Sequence[int]) -> np.ndarray:  # [words, subwords]
        return np.equal.outer(np.arange(max(words, default=-1) + 1), words).astype(np.float32)

    queries, keys = membership(rows), membership(columns)
    queries /= np.maximum(queries.sum(1, keepdims=True), 1)
    kept = weights[:, : len(rows), : len(columns)]
    return np.einsum("it,hts,js->hij", queries, kept, keys)


def links(weights: np.ndarray) -> Links:
    """Each target word linked to the source word that it attends to most; weights [T, S]."""
    return {(int(s), t) for t, s in enumerate(weights.argmax(1))} if weights.size else set()


def error_rate(predicted: Iterable[Links], gold: Iterable[Links]) -> float:
    """Alignment error rate of a corpus: 1 - 2 |A and G| / (|A| + |G|) for links A and gold links G.

    This is Och and Ney's (2003) with sure gold links only. NaN if there are no links at all.
    """
    common = total = 0
    for a, g in zip(predicted, gold, strict=True):
        common += len(a & g)
        total += len(a) + len(g)
    return 1 - 2 * common / total if total else float("nan")


class Tracked(NamedTuple):
    """How well the best head tracks a kind of dependency."""

    kind: str
    dependencies: int  # number of dependencies of that kind
    layer: int  # of the head that tracks it best
    head: int
    accuracy: float  # share of the dependencies that the head finds
    baseline: float  # share at the most frequent distance, where a head could always look


def tracked(
    maps: Sequence[Mapping[int, np.ndarray]], dependencies: Sequence[Sequence[Sequence[Any]]]
) -> list[Tracked]:
    """For each kind of dependency, the decoder head that tracks it best; the frequent kinds first.

    A head finds a dependency if, when the later of the two words is predicted, it attends more to
    the earlier one than to any other earlier word.

    Args:
      maps: for each sentence and layer, weights [h, words, words] of decoder self-attention, from
        predicted words to input words.
      dependencies: for each sentence, (kind, position, head).
    """
    hits = defaultdict[str, Counter[tuple[int, int]]](Counter)
    distances = defaultdict[str, list[int]](list)
    for layers, of_sentence in zip(maps, dependencies, strict=True):
        for kind, a, b in of_sentence:
            early, late = sorted((a, b))
            if early == late:
                continue
            distances[kind].append(late - early)
            for layer, weights in layers.items():
                for head, hit in enumerate(weights[:, late, :late].argmax(1) == early):
                    hits[kind][layer, head] += int(hit)
    out = []
    for kind, counts in hits.items():
        n = len(distances[kind])
        (layer, head), most = max(counts.items(), key=lambda item: item[1])
        at_one_distance = max(np.bincount(distances[kind]))
        out.append(Tracked(kind, n, layer, head, most / n, at_one_distance / n))
    return sorted(out, key=lambda x: -x.dependencies)
