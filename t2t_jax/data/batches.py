"""Batches of few shapes under a token budget; each batch is a function of (seed, epoch, index).

A program is compiled for every shape, so there should be few. A shape has S source and T target
positions, and as many rows as the token budget allows. The shapes are chosen for a corpus so that
its batches have little padding.
"""

import copy
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Ragged
from t2t_jax.errors import UsageError
from t2t_jax.tokens import PAD

Batch = dict[str, np.ndarray]


class Shape(NamedTuple):
    """The shape of a batch: `rows` pairs of S source and T target positions."""

    rows: int
    S: int
    T: int


def bounds(s: np.ndarray, t: np.ndarray, count: int) -> list[tuple[int, int]]:
    """At most `count` rectangles (S, T) that cover every pair with little padding, small to large.

    A pair of lengths s and t [pairs] is padded to the cheapest rectangle with S >= s and T >= t,
    and costs S + T positions. The total cost is minimised by coordinate descent on the histogram of
    lengths, from several starts with a fixed seed: each rectangle in turn is moved to its best
    position given the others, until none moves.
    """
    S, T, pairs = _histogram(s, t)
    cost = S[:, None] + T[None, :]
    corner = (len(S) - 1, len(T) - 1)
    weights = pairs.ravel() / pairs.sum()
    free = min(count - 1, int(np.count_nonzero(weights)))
    random = np.random.default_rng(0)
    ends = []
    for _ in range(_STARTS):
        drawn = random.choice(pairs.size, size=free, replace=False, p=weights)
        ends.append(_descend(pairs, cost, [*(divmod(int(d), len(T)) for d in drawn), corner]))
    chosen = {(int(S[i]), int(T[j])) for i, j in min(ends)[1]}
    return sorted(chosen, key=lambda st: (sum(st), st))


_STARTS = 16
_EDGES = 128  # candidate bounds per side; a finer grid saves no padding


def _histogram(s: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidate bounds of both sides [I] and [J], and the number of pairs in each cell [I, J]."""
    edges = []
    for lengths in (s, t):
        counts = np.bincount(lengths)
        values = np.flatnonzero(counts)
        if len(values) > _EDGES:
            share = np.cumsum(counts[values]) / len(lengths)
            marks = np.searchsorted(share, np.linspace(0, 1, _EDGES + 1)[1:-1])
            values = values[np.unique([*marks, len(values) - 1])]
        edges.append(values)
    S, T = edges
    cells = np.searchsorted(S, s) * len(T) + np.searchsorted(T, t)
    return S, T, np.bincount(cells, minlength=len(S) * len(T)).reshape(len(S), len(T))


def _descend(
    pairs: np.ndarray, cost: np.ndarray, cells: list[tuple[int, int]]
) -> tuple[int, list[tuple[int, int]]]:
    """The total cost and the rectangles where the descent from `cells` of the grid ends."""
    # Integers, so that equal costs compare equal on every machine and the shapes are the same.
    uncovered = int(pairs.sum() * cost.max()) + 1  # worse than any way to cover all pairs

    def cheapest(rectangles: list[tuple[int, int]]) -> np.ndarray:
        grid = np.full(cost.shape, uncovered)
        for i, j in rectangles:
            np.minimum(grid[: i + 1, : j + 1], cost[i, j], out=grid[: i + 1, : j + 1])
        return grid

    total, before = int((pairs * cheapest(cells)).sum()), uncovered
    while total < before:
        before = total
        for r in range(len(cells)):
            others = cheapest(cells[:r] + cells[r + 1 :])
            saving = np.zeros_like(cost)
            for value in np.unique(others):  # no more values than rectangles
                inside = np.where(others == value, pairs, 0).cumsum(0).cumsum(1)
                # All positions of rectangle r at once: what it saves on pairs that cost `value`.
                saving += np.maximum(value - cost, 0) * inside
            best = int(saving.argmax())
            cells[r] = divmod(best, cost.shape[1])
            total = int((pairs * others).sum() - saving.flat[best])
    return total, sorted(cells)


def shapes_of(
    source: Ragged, target: Ragged, count: int, batch_tokens: int, multiple: int = 1
) -> tuple[tuple[Shape, ...], np.ndarray]:
    """At most `count` shapes for these pairs, and the index of each pair's shape (uint8 [pairs]).

    A pair goes to the cheapest rectangle that covers it. The number of rows is a multiple of
    `multiple`, and at most batch_tokens // max(S, T). It is up to an eighth less if fewer rows of
    the last batch are then empty. Raises UsageError if `multiple` rows exceed the budget.
    """
    rectangles = bounds(source.lengths, target.lengths, count)
    S, T = np.array(rectangles).T
    covers = (source.lengths[:, None] <= S) & (target.lengths[:, None] <= T)  # [pairs, rectangles]
    bucket = covers.argmax(-1).astype(np.uint8)
    pairs = np.bincount(bucket, minlength=len(rectangles)).tolist()
    shapes = []
    for (S, T), n in zip(rectangles, pairs, strict=True):
        most = batch_tokens // max(S, T) // multiple
        if most == 0:
            raise UsageError(
                f"batch_tokens={batch_tokens} holds {batch_tokens // max(S, T)} sentences of "
                f"{max(S, T)} tokens, but accumulation needs {multiple} rows: raise "
                f"batch_tokens to {multiple * max(S, T)} or lower max_length."
            )
        most = max(1, min(most, -(-n // multiple)))  # a shape with few pairs needs no more
        least = most - most // 8
        choices = range(most * multiple, (least - 1) * multiple, -multiple)
        shapes.append(Shape(min(choices, key=lambda rows: -n % rows), S, T))
    return tuple(shapes), bucket


class Batches:
    """Training batches {"source": int32 [B, S], "target": int32 [B, T]}, right-padded with PAD.

    Every pair appears exactly once in an epoch. Rows without a pair are all PAD. `shapes` is the
    largest number of shapes, which `shapes_of` chooses.
    """

    def __init__(
        self, source: Ragged, target: Ragged, batch_tokens: int, shapes: int = 8, multiple: int = 1
    ):
        self.source, self.target, self.seed = source, target, 0
        self.shapes, self._bucket = shapes_of(source, target, shapes, batch_tokens, multiple)
        self._plan = functools.lru_cache(maxsize=2)(self.plan)

    def with_seed(self, seed: int) -> "Batches":
        """Batches of the same shapes, with pairs in the order of another seed."""
        other = copy.copy(self)
        other.seed = seed
        other._plan = functools.lru_cache(maxsize=2)(other.plan)
        return other

    def plan(self, epoch: int) -> list[tuple[np.ndarray, int]]:
        """The indices of the pairs of each batch of an epoch, and the index of its shape.

        It is a function of seed, epoch and lengths. Batch i of an epoch has the same shape under
        every seed, so that runs of different seeds can be trained in one program.
        """
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self._bucket))
        batches = []
        for i, shape in enumerate(self.shapes):
            pairs = order[self._bucket[order] == i]
            firsts = range(0, len(pairs), shape.rows)
            batches += [(pairs[first : first + shape.rows], i) for first in firsts]
        shuffled = np.random.default_rng(epoch).permutation(len(batches))
        return [batches[b] for b in shuffled]

    def batches_per_epoch(self, epoch: int = 0) -> int:
        """Number of batches in an epoch, which is the same for all epochs."""
        return len(self._plan(epoch))

    def read(self, epoch: int, index: int) -> Batch:
        rows, i = self._plan(epoch)[index]
        shape = self.shapes[i]
        return {
            "source": gather(self.source, rows, shape.rows, shape.S),
            "target": gather(self.target, rows, shape.rows, shape.T),
        }

    def stream(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[tuple[int, int], Batch]]:
        """Endless batches from (epoch, index) on, each with the position of the next one."""
        while True:
            while index < self.batches_per_epoch(epoch):
                batch = self.read(epoch, index)
                index += 1
                yield (epoch, index), batch
            epoch, index = epoch + 1, 0


def gather(sentences: Ragged, rows: np.ndarray, B: int, L: int) -> np.ndarray:
    """The sentences with indices `rows` [at most B] as int32 [B, L], right-padded with PAD."""
    tokens, offsets = np.asarray(sentences.tokens), np.asarray(sentences.offsets)
    begin = offsets[rows]
    lengths = offsets[rows + 1] - begin
    columns = np.arange(L)
    positions = begin[:, None] + np.minimum(columns, lengths[:, None] - 1)
    out = np.full((B, L), PAD, np.int32)
    out[: len(rows)] = np.where(columns < lengths[:, None], tokens[positions], PAD)
    return out


def in_order(
    source: Ragged, target: Ragged, batch_tokens: int, shapes: int = 4
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Batches for evaluation: every pair once, in few shapes, always in the same order.

    Each comes with the indices of its pairs, which are its first rows; further rows are all PAD.
    A batch has at most `batch_tokens` tokens on each side, or as many as the longest sentence.
    """
    if not len(source):
        return
    longest = max(int(source.lengths.max()), int(target.lengths.max()))
    sizes, bucket = shapes_of(source, target, shapes, max(batch_tokens, longest))
    for i, (B, S, T) in enumerate(sizes):
        members = np.flatnonzero(bucket == i)
        for first in range(0, len(members), B):
            rows = members[first : first + B]
            sides = {"source": gather(source, rows, B, S), "target": gather(target, rows, B, T)}
            yield rows, sides
