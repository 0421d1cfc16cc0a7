"""The multiply-adds of one head of an attention mechanism, without JAX: what several entries share.

The multiply-adds of the forward pass are a function of a mechanism's attributes (options and sizes)
and a `Shape`. Pairs that are computed and then masked count, and so does the padding of blocks;
exp, tanh and softmax do not.
"""

from collections.abc import Mapping
from typing import NamedTuple

Number = int | float
Options = Mapping[str, Number]


class Shape(NamedTuple):
    """The sizes of one of h heads: T queries, S keys, and the widths d_k and d_v."""

    T: int
    S: int
    d_k: int
    d_v: int
    causal: bool = False
    h: int = 1


def whole(n: Number, b: Number) -> Number:
    """n rounded up to whole blocks of b."""
    return -(-n // b) * b


def gathered(o: Options, s: Shape, seen: Number) -> Number:
    """Products of each query with its own list of `seen` keys, tile by tile."""
    return whole(s.T, min(s.T, o["tile"])) * seen * (s.d_k + s.d_v)


def sums(m: Number, o: Options, s: Shape) -> Number:
    """Sums over m features of [v, 1]; causal ones also compute the pairs within each chunk."""
    if not s.causal:
        return (s.T + s.S) * m * (s.d_v + 1)
    T = whole(s.T, o["chunk"])  # S = T
    return 2 * T * m * (s.d_v + 1) + T * o["chunk"] * (m + s.d_v + 1)


def memory(o: Options, s: Shape) -> Number:
    """The memory is read and written, and the pairs within each chunk are computed."""
    T = whole(max(s.T, s.S), o["chunk"])
    passes = 1 if s.causal else 2
    return passes * T * (2 * s.d_k * s.d_v + o["chunk"] * (s.d_k + s.d_v))


def delta(o: Options, s: Shape) -> Number:
    """Each chunk also reads the memory at its keys, and solves a triangular system."""
    T, C = whole(max(s.T, s.S), o["chunk"]), o["chunk"]
    return memory(o, s) + T * (s.d_k * s.d_v + C * s.d_k) + T * (C - 1) // 2 * s.d_v
