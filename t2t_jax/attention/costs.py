"""The multiply-adds of one head of each attention mechanism, without JAX.

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


def dense(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + s.d_v)


def general(o: Options, s: Shape) -> Number:
    return s.S * s.d_k**2 + s.T * s.S * (s.d_k + s.d_v)


def talking_heads(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + s.d_v + 2 * s.h)


def differential(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + 2 * s.d_v)


def additive(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * s.d_k**2 + whole(s.T, min(s.T, o["tile"])) * s.S * (s.d_k + s.d_v)


def local_p(o: Options, s: Shape) -> Number:
    window = whole(s.T, min(s.T, o["tile"])) * (2 * o["w"] + 1)
    return s.T * (s.d_k**2 + s.d_k) + window * (s.d_k + s.d_v)


def block_select(o: Options, s: Shape) -> Number:
    blocks = -(-s.S // o["b"])
    seen = (1 + min(o["n"], blocks)) * o["b"]
    return s.T * blocks * s.d_k + gathered(o, s, seen)


def lsh(o: Options, s: Shape) -> Number:
    seen = o["r"] * o["c"] * (1 if s.causal else 2) + 1
    return (s.T + s.S) * s.d_k * o["r"] * -(-o["b"] // 2) + gathered(o, s, seen)


def gathered(o: Options, s: Shape, seen: Number) -> Number:
    """Products of each query with its own list of keys, tile by tile."""
    return whole(s.T, min(s.T, o["tile"])) * seen * (s.d_k + s.d_v)


def linear(o: Options, s: Shape) -> Number:
    return sums(s.d_k, o["chunk"], s)


def performer(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * o["m"] * s.d_k + sums(o["m"], o["chunk"], s)


def cosformer(o: Options, s: Shape) -> Number:
    return sums(2 * s.d_k, o["chunk"], s)


def taylor(o: Options, s: Shape) -> Number:
    return sums(1 + s.d_k + s.d_k**2, o["chunk"], s)


def memory(o: Options, s: Shape) -> Number:
    """The memory is read and written, and the pairs within each chunk are computed."""
    T = whole(max(s.T, s.S), o["chunk"])
    passes = 1 if s.causal else 2
    return passes * T * (2 * s.d_k * s.d_v + o["chunk"] * (s.d_k + s.d_v))


def delta(o: Options, s: Shape) -> Number:
    """Each chunk also reads the memory at its keys, and solves a triangular system."""
    T, C = whole(max(s.T, s.S), o["chunk"]), o["chunk"]
    return memory(o, s) + T * (s.d_k * s.d_v + C * s.d_k) + T * (C - 1) // 2 * s.d_v


def linformer(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * o["k"] * (s.d_k + s.d_v)


def nystrom(o: Options, s: Shape) -> Number:
    m = o["m"]
    landmarks, iterations = (s.T + s.S) * m * s.d_k, 6 * 4 * m**3
    return landmarks + (s.T + s.S + m) * m * (s.d_k + s.d_v) + iterations


def whole(n: Number, b: Number) -> Number:
    """n rounded up to whole blocks of b."""
    return -(-n // b) * b


def sums(m: Number, chunk: Number, s: Shape) -> Number:
    """Sums over m features of [v, 1]; causal ones also compute the pairs within each chunk."""
    if not s.causal:
        return (s.T + s.S) * m * (s.d_v + 1)
    T = whole(s.T, chunk)  # S = T
    return 2 * T * m * (s.d_v + 1) + T * chunk * (m + s.d_v + 1)
