"""The tiles of keys that each query of a sparse pattern sees, for `ops.sparse_attention`.

A kernel computes tiles of g queries and g keys. A pattern says which tiles have visible pairs, and
which pairs of a tile are visible. Positions and indices start at zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

Reached = Callable[[np.ndarray, np.ndarray], tuple[Any, Any]]


class Table(NamedTuple):
    """The blocks of keys, int32, that queries see beside the keys of other patterns; -1: none."""

    blocks: Any  # [B, r, T], which each query sees
    tiles: Any  # [B, T / g, C], of keys with these blocks, each once, for each tile of queries
    order: Any  # [B, T / g * C], the tiles of queries, sorted by the tiles of keys that they see
    starts: Any  # [B, S / g + 1], where the list of each tile of keys starts in `order`


class Arrays(NamedTuple):
    """What a kernel reads of a pattern with ranges, int32."""

    positions: Any  # [S], of the keys; -1 where the last tile has none
    queries: Any  # [2, T / g], for each tile of queries the first tile of keys, and the end
    keys: Any  # [2, S / g], for each tile of keys the first tile of queries, and the end


@dataclass(frozen=True, eq=False)
class Pattern:
    """The keys of a set that the queries see by ranges of tiles, or by the table of the set."""

    seen: Callable[[Any, Any], Any]  # (t, s) -> bool, for positions [T, 1] and [1, S]
    positions: np.ndarray | None = None  # of the keys, in increasing order; None: it has a table
    ranges: np.ndarray | None = None  # int32 [2, T / g] from `ranges`; None: it has a table
    b: int = 0  # the length of the blocks of the table

    def arrays(self, g: int) -> Arrays | None:
        if self.positions is None or self.ranges is None:
            return None
        S = -(-len(self.positions) // g)  # tiles
        positions = np.pad(self.positions, (0, S * g - len(self.positions)), constant_values=-1)
        start, stop = self.ranges
        j = np.arange(S)[:, None]
        touches = (start[None] <= j) & (j < stop[None])
        first, end = touches.argmax(1), len(start) - touches[:, ::-1].argmax(1)
        keys = np.where(touches.any(1), np.stack([first, end]), 0)
        return Arrays(*(jnp.asarray(x, jnp.int32) for x in (positions, self.ranges, keys)))

    def visible(self, t: Array, s: Array, blocks: Any) -> Array:
        """Whether queries at t [T, 1] see keys at s [1, S]; a table has `blocks`, r arrays [T]."""
        seen = self.seen(t, s)
        if not self.b:
            return seen
        listed = jnp.zeros(seen.shape, bool)
        for block in blocks:
            listed |= block[:, None] == s // self.b
        return seen & listed

    def count(self, T: int, g: int, table: Any) -> int:
        """The number of tiles that are computed, for one head of one row."""
        if self.ranges is None:
            return T // g * table.tiles.shape[2]
        return int((self.ranges[1] - self.ranges[0]).sum())


def ranges(T: int, g: int, positions: np.ndarray, reached: Reached) -> np.ndarray:
    """For each tile of g of T queries, the first tile of keys, and the end: int32 [2, T / g].

    Args:
      positions: positions of the keys, in increasing order.
      reached: the first and the last position that queries first .. last may see.
    """
    first = g * np.arange(-(-T // g))
    low, high = (np.broadcast_to(x, first.shape) for x in reached(first, first + g - 1))
    start = np.searchsorted(positions, low) // g
    stop = -(-np.searchsorted(positions, high, "right") // g)
    return np.stack([start, np.maximum(start, stop)]).astype(np.int32)


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
