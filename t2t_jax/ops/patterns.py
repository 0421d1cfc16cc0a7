"""The keys that each query of a sparse pattern sees, for the kernels of `ops.sparse_attention`.

A kernel computes tiles of g queries and g keys. A pattern says which tiles have visible pairs, and
which pairs of a tile are visible. Positions and indices start at zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

_END = 2**30  # beyond every position
Tiles = tuple[Any, Any, Callable[[Any], Any]]  # start, stop, and a function from number to tile


class Table(NamedTuple):
    """The blocks of keys that each query sees beside those of other patterns; -1 means none.

    Attributes:
      blocks: int32 [B, r, T], the blocks that each query sees.
      tiles: int32 [B, T / g, C], for each tile of queries the tiles of keys with these blocks, each
        once.
      order: int32 [B, T / g * C], the tiles of queries, sorted by the tiles of keys that they see.
      starts: int32 [B, S / g + 1], where the list of each tile of keys starts in `order`.
    """

    blocks: Any
    tiles: Any
    order: Any
    starts: Any


@dataclass(frozen=True)
class Pattern:
    """A pattern in which a query sees keys within a range, and a key is seen within a range."""

    def seen(self, t: Array, s: Array, blocks: Any = ()) -> Array:
        """Whether queries at t [T, 1] see keys at s [1, S].

        Args:
          blocks: those of a table, r arrays [T].
        """
        raise NotImplementedError

    def keys(self, first: Any, last: Any) -> tuple[Any, Any]:
        """The first and the last key that queries first .. last may see."""
        raise NotImplementedError

    def queries(self, first: Any, last: Any) -> tuple[Any, Any]:
        """The first and the last query that may see keys first .. last."""
        raise NotImplementedError

    def key_tiles(self, i: Any, g: int, S: int, row: Any, table: Any) -> Tiles:
        """The tiles of keys that tile i of queries sees."""
        return (*_between(*self.keys(i * g, i * g + g - 1), S, g), lambda j: j)

    def query_tiles(self, j: Any, g: int, T: int, row: Any, table: Any) -> Tiles:
        """The tiles of queries that see tile j of keys."""
        return (*_between(*self.queries(j * g, j * g + g - 1), T, g), lambda i: i)

    def count(self, T: int, S: int, g: int, table: Any) -> int:
        """The number of tiles that are computed, for one head of one row."""
        i = g * np.arange(T // g)
        first, last = (np.broadcast_to(x, i.shape) for x in self.keys(i, i + g - 1))
        tiles = np.minimum(last, S - 1) // g + 1 - np.clip(first, 0, S) // g
        return int(np.maximum(tiles, 0).sum())


@dataclass(frozen=True)
class Window(Pattern):
    """Keys at distances from `least` to w; causal: no later key."""

    w: int
    causal: bool
    least: int = 0

    def seen(self, t: Array, s: Array, blocks: Any = ()) -> Array:
        seen = (jnp.abs(s - t) <= self.w) & (jnp.abs(s - t) >= self.least)
        return seen & (s <= t) if self.causal else seen

    def keys(self, first: Any, last: Any) -> tuple[Any, Any]:
        return first - self.w, last + (0 if self.causal else self.w)

    def queries(self, first: Any, last: Any) -> tuple[Any, Any]:
        return first - (0 if self.causal else self.w), last + self.w


@dataclass(frozen=True)
class Near(Pattern):
    """Keys of the query's block of l and of `reach` blocks on either side; causal: no later key."""

    l: int
    reach: int
    causal: bool

    def seen(self, t: Array, s: Array, blocks: Any = ()) -> Array:
        seen = jnp.abs(t // self.l - s // self.l) <= self.reach
        return seen & (s <= t) if self.causal else seen

    def keys(self, first: Any, last: Any) -> tuple[Any, Any]:
        end = last if self.causal else (last // self.l + self.reach + 1) * self.l - 1
        return (first // self.l - self.reach) * self.l, end

    def queries(self, first: Any, last: Any) -> tuple[Any, Any]:
        start = first if self.causal else (first // self.l - self.reach) * self.l
        return start, (last // self.l + self.reach + 1) * self.l - 1


@dataclass(frozen=True)
class Far(Pattern):
    """The complement of `Near`, over c keys for each block of l; causal: only earlier blocks."""

    l: int
    c: int
    reach: int
    causal: bool

    def seen(self, t: Array, s: Array, blocks: Any = ()) -> Array:
        gap = t // self.l - s // self.c
        return (gap if self.causal else jnp.abs(gap)) > self.reach

    def keys(self, first: Any, last: Any) -> tuple[Any, Any]:
        return 0, (last // self.l - self.reach) * self.c - 1 if self.causal else _END

    def queries(self, first: Any, last: Any) -> tuple[Any, Any]:
        return (first // self.c + self.reach + 1) * self.l if self.causal else 0, _END


@dataclass(frozen=True)
class Listed(Pattern):
    """The blocks of b keys that a table lists for each query."""

    b: int

    def seen(self, t: Array, s: Array, blocks: Any = ()) -> Array:
        seen = jnp.zeros((t.shape[0], s.shape[1]), bool)
        for block in blocks:
            seen |= block[:, None] == s // self.b
        return seen

    def key_tiles(self, i: Any, g: int, S: int, row: Any, table: Any) -> Tiles:
        return 0, table.tiles.shape[2], lambda c: table.tiles[row, i, c]

    def query_tiles(self, j: Any, g: int, T: int, row: Any, table: Any) -> Tiles:
        return table.starts[row, j], table.starts[row, j + 1], lambda e: table.order[row, e]

    def count(self, T: int, S: int, g: int, table: Any) -> int:
        return T // g * table.tiles.shape[2]


def tile_of(b: int) -> int:
    """A size of tiles that is a multiple of b or divides it; 0 if there is none."""
    return 16 if 16 % b == 0 else next((g for g in (64, 32, 16) if b % g == 0), 0)


def table(blocks: Array, b: int, g: int, T: int, S: int) -> Table:
    """The table for the blocks of b keys [B, n, r] that each block of b queries sees.

    Args:
      g: `tile_of(b)`.
      T, S: the numbers of queries and keys, which are rounded up to whole tiles.
    """
    B, n = blocks.shape[:2]
    T, S = (-(-x // g) for x in (T, S))  # tiles
    rows, each = -(-T * g // b), max(b // g, 1)
    blocks = jnp.pad(blocks, ((0, 0), (0, rows - n), (0, 0)), constant_values=-1)
    of_query = jnp.repeat(blocks, b, axis=1)[:, : T * g].swapaxes(1, 2)
    seen = jnp.repeat(blocks, b // g, axis=1)[:, :T] if b > g else blocks
    seen = seen.reshape(B, T, -1, 1)
    tiles = seen * b // g + jnp.arange(each)[None, None, None]
    tiles = jnp.where((seen >= 0) & (tiles < S), tiles, -1).reshape(B, T, -1)
    C = tiles.shape[2]
    again = (tiles[..., :, None] == tiles[..., None, :]) & np.tri(C, k=-1, dtype=bool)[None, None]
    tiles = jnp.where(again.any(-1), -1, tiles)
    flat = jnp.where(tiles < 0, S, tiles).reshape(B, -1)
    # Each number also encodes the index of its tile of queries, so that one sort is enough.
    ordered = jnp.sort(flat * T + jnp.arange(T * C)[None] // C, axis=1)
    starts = (flat[:, None] < jnp.arange(S + 1)[None, :, None]).sum(-1)
    return Table(of_query, tiles, ordered % T, starts.astype(jnp.int32))


def _between(first: Any, last: Any, length: int, g: int) -> tuple[Any, Any]:
    """The tile of position `first`, and the one after that of `last`, within the length."""
    start = jnp.clip(first, 0, length) // g
    return start, jnp.maximum(jnp.minimum(last, length - 1) // g + 1, start)
