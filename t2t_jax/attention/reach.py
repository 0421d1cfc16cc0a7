"""Sparse patterns: which keys a query sees, and where they are. JAX is not imported.

A pattern is softmax(q k^T / sqrt(d_k)) v over the keys that a predicate allows. Its function here
returns a `Reach`, from which `patterns.py` derives what is computed in training and in decoding,
and the tiles of the kernels. `t2t-jax help mechanism` shows how a study file adds a pattern.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from t2t_jax.attention.costs import Number, Shape, whole
from t2t_jax.errors import UsageError

Predicate = Callable[[Any, Any], Any]
BLOCK = 16  # the least length of the blocks of a window: shorter ones are mostly overhead
_LONG = 2**30  # beyond every position


@dataclass(frozen=True, eq=False)
class Reach:
    """Which keys the query at t sees, beside causality and padding.

    A key that `sees` allows is near the query, or kept, or at a multiple of `stride`.

    Attributes:
      sees: (t, s) -> bool, for positions that are integers or arrays of numpy or of JAX. They are
        true positions even within `parts`.
      window: the largest distance of a key near the query.
      block: the number of adjacent queries that are computed together, by default `window`.
      near: the number of blocks on either side of the queries' own that hold all keys near them; by
        default, it follows from the window.
      kept: s -> bool, the keys that are near no query, as queries at any distance may see them.
      stride: 0, or the distance whose multiples are seen; `sees` then depends on s - t alone. It
        must be equal to `block`.
      parts: positions t with the same t mod `parts` are a sequence of their own, whose positions
        `window` and `block` count; `sees` then depends on s - t alone, and all keys are near.
      r, seed: each block of queries also sees r random blocks of keys: floor(u m), where m is the
        number of candidates (causal: the blocks before it; otherwise the blocks before the padding)
        and u is a row of default_rng(seed).random((., r)) in float32.
      rows: unless the pattern is causal, the number of first queries that see every key.
    """

    sees: Predicate
    window: int
    block: int = 0
    near: int | None = None
    kept: Callable[[Any], Any] | None = None
    stride: int = 0
    parts: int = 1
    r: int = 0
    seed: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        for wrong, mend in (
            (self.stride and self.stride != self.block, "block must equal stride"),
            (self.r and not self.block, "r random blocks need the length of a block"),
            (self.parts > 1 and not self.near_only, "parts excludes kept, stride, r and rows"),
            (self.window * self.parts >= _LONG, "its window must be below 2^30"),
            (self._sees_beyond(), "sees(t, s) is true of keys beyond the window or its blocks"),
        ):
            if wrong:
                raise UsageError(f"the Reach of a pattern contradicts itself: {mend}.")

    @property
    def near_only(self) -> bool:
        """Whether a query sees keys of its window alone."""
        return not (self.kept or self.stride or self.r or self.rows)

    @property
    def in_documents(self) -> bool:
        """Whether it can be confined to a document, with neither first keys nor random blocks."""
        first = self.kept and not self.kept(_LONG + np.arange(1 << 12)).any()
        return not (first or self.r or self.rows)

    def _sees_beyond(self) -> bool:
        """Whether a query sees a key outside the window that is neither kept nor a multiple."""
        b, near = self.blocks(_LONG, _LONG)
        far, size = self.window * self.parts, b * self.parts
        n = 64 + max(self.rows, far, size)  # beyond the first keys
        t = n + np.linspace(0, size - 1, 9, dtype=int)[:, None]
        # All keys, or some if the window is long, and the first ones beyond it.
        s = np.tile(np.linspace(0, 4 * n - 1, min(4 * n, 1 << 14), dtype=int), (len(t), 1))
        edge = far + np.arange(1, 9)
        s = np.hstack([s, t - edge, t + edge])
        blocks = abs(s // self.parts // b - t // self.parts // b)
        return bool((self.near_alone(t, s) & ((abs(s - t) > far) | (blocks > near))).any())

    def blocks(self, T: int, S: int) -> tuple[int, int]:
        """The length of a block for T queries and S keys, and the neighbours on either side.

        A window that is longer than the sequences costs as much as one of their length.
        """
        N, b = max(T, S), self.block or max(self.window, BLOCK)
        near = -(-self.window // b) if self.near is None else self.near
        b = min(b, N)
        return b, min(near, -(-N // b) - 1)

    def ends(self, first: Any, last: Any, causal: bool) -> tuple[Any, Any]:
        """The first and the last key near queries first .. last."""
        b, near = self.blocks(_LONG, _LONG)
        start = np.maximum(first - self.window, (first // b - near) * b)
        stop = np.minimum(last + self.window, (last // b + near + 1) * b - 1)
        return start, last if causal else stop

    def near_alone(self, t: Any, s: Any) -> Any:
        """Whether the query at t sees the key at s, which is neither kept nor at a multiple."""
        seen = self.sees(t, s)
        if self.kept:
            seen &= ~self.kept(s)
        if self.stride:
            seen &= s % self.stride != t % self.stride
        return seen

    def columns(self, S: int) -> np.ndarray:
        """The positions of the kept keys among S."""
        s = np.arange(S)
        return np.flatnonzero(self.kept(s)) if self.kept else s[:0]

    def first_columns(self, count: int) -> np.ndarray:
        """The positions of the first kept keys."""
        S = count
        while len(columns := self.columns(S)) < count:
            S *= 2
        return columns[:count]

    def uniform(self, n: int) -> np.ndarray:
        """The random numbers of n blocks, float32 [n, r]."""
        return np.random.default_rng(self.seed).random((n, self.r)).astype(np.float32)

    def products(self, s: Shape) -> Number:
        """The multiply-adds of one head in the forward pass; masked pairs count."""
        T, S = (-(-n // self.parts) for n in (s.T, s.S))
        b, near = self.blocks(T, S)
        keys = b * (1 + near * (1 if s.causal else 2)) + len(self.columns(S)) + self.r * self.block
        keys += -(-S // b) if self.stride else 0
        pairs = self.parts * whole(T, b) * keys
        pairs += 0 if s.causal else min(s.T, self.rows) * s.S
        return pairs * (s.d_k + s.d_v)


def local(w: int) -> Reach:
    """The keys within distance w: the sliding window of Longformer (Beltagy et al. 2020, 3.1).

    Between two sequences it is local-m (Luong et al. 2015, section 3.2), whose window is centred at
    the query's own position.
    """
    return Reach(lambda t, s: abs(s - t) <= w, window=w)


def dilated(w: int, r: int) -> Reach:
    """The keys at distances 0, r, ..., w r (Beltagy et al. 2020, section 3.1).

    It is to `local` as the dilated convolutions of WaveNet (van den Oord et al. 2016) are to
    convolutions.
    """
    return Reach(lambda t, s: (abs(s - t) <= w * r) & (s % r == t % r), window=w, parts=r)


def block_local(b: int) -> Reach:
    """The query's own block of b keys.

    This is the one-dimensional local attention of Parmar et al. (2018), "Image Transformer", with
    no memory beyond the block of queries, and the identity permutation of Qiu et al. (2020),
    "Blockwise Self-Attention".
    """
    return Reach(lambda t, s: s // b == t // b, window=b - 1, block=b, near=0)


def streaming(w: int, g: int) -> Reach:
    """The keys within distance w, and the first g: attention sinks (Xiao et al. 2024, section 3.2).

    Decoding stores w + 1 + g keys. Positions are those in the sequence; Xiao et al. count them
    among the stored keys.
    """
    return Reach(lambda t, s: (abs(s - t) <= w) | (s < g), window=w, kept=lambda s: s < g)


def longformer(w: int, g: int) -> Reach:
    """`streaming` whose first g queries see every key (Beltagy et al. 2020, section 3.1).

    Causal, it is `streaming`, as no query sees a later key. The window has w keys on either side;
    the window of Beltagy et al. has w / 2. They project queries and keys once more for global
    attention.
    """
    return Reach(
        lambda t, s: (abs(s - t) <= w) | (s < g) | (t < g), window=w, kept=lambda s: s < g, rows=g
    )


def sparse_strided(l: int) -> Reach:
    """The keys within distance l, and those at its multiples (Child et al. 2019).

    Child et al. define theirs for causal attention; an encoder applies it to both sides.
    """
    return Reach(lambda t, s: (abs(s - t) <= l) | (s % l == t % l), window=l - 1, block=l, stride=l)


def sparse_fixed(l: int, c: int) -> Reach:
    """The query's own block of l, and the last c keys of each other block (Child et al. 2019)."""
    kept = lambda s: s % l >= l - c  # noqa: E731
    sees = lambda t, s: (s // l == t // l) | kept(s)  # noqa: E731
    return Reach(sees, window=l - 1, block=l, near=0, kept=kept)


def bigbird(b: int, r: int, seed: int, w: int = 1, g: int = 1) -> Reach:
    """Blocks of b keys: the query's own, w on either side of it, the first g, and r random ones.

    Unless it is causal, the queries of the first g blocks also see every key. This is the internal
    construction (ITC) of Zaheer et al. (2020, section 2 and appendix D), whose global tokens are
    tokens of the text; in their code, the last block is global, too, and each head draws its own
    random blocks. They do not use causal attention; here, it drops all later keys.
    """
    return Reach(
        lambda t, s: (abs(s // b - t // b) <= w) | (s < g * b) | (t < g * b),
        window=(w + 1) * b - 1,
        block=b,
        near=w,
        kept=lambda s: s < g * b,
        r=r,
        seed=seed,
        rows=g * b,
    )
