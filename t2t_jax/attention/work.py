"""How much a mechanism computes: products of one head, forward, from T queries to S keys; no jax.

A product is a multiplication with its addition; exp, tanh and softmax are not counted. What is
computed to be masked counts: it takes its time, too. So do the lengths that are rounded up to whole
blocks; their sizes stand here, where the mechanisms take them from.
"""

from collections.abc import Mapping

Options = Mapping[str, int]

ADDITIVE_TILE = 128  # queries whose scores exist at a time
LOCAL_BLOCK = 16  # queries a block at least: with a narrow window, blocks of w are all overhead
LOCAL_P_TILE = 64  # queries whose keys are gathered at a time
CAUSAL_CHUNK = 64  # positions that a causal sum of linear attention moves on by


def dense(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return T * S * (d_k + d_v)


def general(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return S * d_k**2 + T * S * (d_k + d_v)


def additive(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return (T + S) * d_k**2 + _whole(T, min(T, ADDITIVE_TILE)) * S * (d_k + d_v)


def local(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    b = max(o["w"], LOCAL_BLOCK)
    return _whole(T, b) * _near(b, causal) * (d_k + d_v)


def local_p(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    window = _whole(T, min(T, LOCAL_P_TILE)) * (2 * o["w"] + 1)
    return T * (d_k**2 + d_k) + window * (d_k + d_v)


def strided(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return _whole(T, o["l"]) * (_near(o["l"], causal) + -(-S // o["l"])) * (d_k + d_v)


def fixed(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return _whole(T, o["l"]) * (o["l"] + o["c"] * -(-S // o["l"])) * (d_k + d_v)


def random(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    b = o["b"]
    everything = 0 if causal else min(T, b) * S
    pattern = _whole(T, b) * (_near(b, causal) + (1 + o["r"]) * b)
    return (pattern + everything) * (d_k + d_v)


def linear(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return _sums(d_k, T, S, d_v, causal)


def performer(o: Options, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    return (T + S) * o["m"] * d_k + _sums(o["m"], T, S, d_v, causal)


def _whole(n: int, b: int) -> int:
    """n rounded up to whole blocks of b."""
    return -(-n // b) * b


def _near(b: int, causal: bool) -> int:
    """Keys that a query in blocks of b meets in its own and the neighbouring ones."""
    return (2 if causal else 3) * b


def _sums(m: int, T: int, S: int, d_v: int, causal: bool) -> int:
    """Sums over m features of [v, 1]; causal ones also lay out the pairs of each chunk."""
    if not causal:
        return (T + S) * m * (d_v + 1)
    T = _whole(T, CAUSAL_CHUNK)  # which S equals
    return 2 * T * m * (d_v + 1) + T * CAUSAL_CHUNK * (m + d_v + 1)
