"""How much a mechanism computes: products of one head, forward, from T queries to S keys; no jax.

A product is a multiplication with its addition; exp, tanh and softmax are not counted. What is
computed to be masked counts: it takes its time, too.
"""

from collections.abc import Mapping

Options = Mapping[str, int]


def dense(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * S * (d_k + d_v)


def general(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return S * d_k**2 + T * S * (d_k + d_v)


def additive(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return (T + S) * d_k**2 + T * S * (d_k + d_v)


def local(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * _near(max(o["w"], 16), causal) * (d_k + d_v)


def local_p(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * (d_k**2 + d_k) + T * (2 * o["w"] + 1) * (d_k + d_v)


def strided(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * (_near(o["l"], causal) + -(-S // o["l"])) * (d_k + d_v)


def fixed(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * (o["l"] + o["c"] * -(-S // o["l"])) * (d_k + d_v)


def random(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    everything = 0 if causal else o["b"] * S
    return (T * (_near(o["b"], causal) + (1 + o["r"]) * o["b"]) + everything) * (d_k + d_v)


def linear(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return _sums(d_k, T, S, d_v, causal)


def performer(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return (T + S) * o["m"] * d_k + _sums(o["m"], T, S, d_v, causal)


def _near(b: int, causal: bool) -> int:
    """Keys that a query in blocks of b meets in its own and the neighbouring ones."""
    return (2 if causal else 3) * b


def _sums(m: int, T: int, S: int, d_v: int, causal: bool) -> int:
    """Sums over m features of [v, 1]; causal ones also lay out the pairs of a chunk of 64."""
    return (T + S) * m * (d_v + 1) + (T * 64 * (m + d_v + 1) if causal else 0)
