"""Attention with a memory by its recurrence, one position after the other, in float64.

The memory S [d_v, d_k] and its updates are written as in the papers: S_t = S_{t-1} M_t + W_t.
"""

from functools import cache

import jax
import numpy as np

NAMES = "retention", "gated_linear", "mamba2", "delta", "gated_delta", "kimi_delta"


def attention(xp, name, own, q, k, v, head, q_length, kv_length, causal):
    """Returns [T, d_v], divided by the root mean square of each row.

    An encoder reads the memory of the recurrence in both directions, and its own position once.
    """
    inputs = xp, name, own, q, k, v, head, q_length, kv_length
    out = recurrence(*inputs)
    if not causal:
        out = out + recurrence(*inputs, back=True)
    return out / xp.sqrt((out**2).mean(axis=1, keepdims=True) + 1e-6)


def recurrence(xp, name, own, q, k, v, head, q_length, kv_length, back=False):
    """Returns [T, d_v]; `back` runs from the last position, and a query does not see its own."""
    S = xp.zeros((v.shape[1], q.shape[1]))
    out = [xp.zeros(v.shape[1])] * len(q)
    update, query = of_a_position(xp)
    positions = range(max(len(q), len(k)))
    for t in reversed(positions) if back else positions:
        read = S
        if t < kv_length:
            M, W = update(xp, name, own, k[t], v[t], head, q.shape[1])
            S = S @ M
            read, S = S if back else S + W, S + W
        if t < min(q_length, len(q)):
            out[t] = read @ query(xp, name, q[t])
    return xp.stack(out)


@cache
def of_a_position(xp):
    """Returns `update` and `query`, compiled if they are to be differentiated."""
    if xp is np:
        return update, query
    return (
        jax.jit(update, static_argnames=("xp", "name", "head", "d_k")),
        jax.jit(query, static_argnames=("xp", "name")),
    )


def update(xp, name, own, k, v, head, d_k):
    """Returns M and W of a position."""
    k, gates, I = k[:d_k], k[d_k:], np.eye(d_k)
    if name == "retention":  # Sun et al. (2023), equations 6 and 8
        return (1 - 2.0 ** (-5 - head)) * I, xp.outer(v, k)
    if name == "gated_linear":  # sigmoid(gates + b)^(1/16); Yang et al. (2024a), section 4.4
        return xp.diag(xp.exp(-xp.logaddexp(0.0, -gates - own["b"]) / 16)), xp.outer(v, k)
    if name == "mamba2":  # Dao and Gu (2024), equation 2, with a scalar times identity as A
        step = xp.logaddexp(0.0, gates[0] + own["b"])
        return xp.exp(-step * xp.exp(own["A_log"])) * I, step * xp.outer(v, k)
    k, beta = features(xp, k), sigmoid(xp, gates[-1])
    erased = I - beta * xp.outer(k, k)
    if name == "delta":  # Yang et al. (2024b), section 2.2
        return erased, beta * xp.outer(v, k)
    if name == "gated_delta":  # Yang et al. (2025), equation 10
        alpha = xp.exp(-xp.exp(own["A_log"]) * xp.logaddexp(0.0, gates[0] + own["b"]))
        return alpha * erased, beta * xp.outer(v, k)
    if name == "kimi_delta":  # Kimi Team (2025), equation 1
        alpha = xp.exp(-xp.exp(own["A_log"]) * xp.logaddexp(0.0, gates[:-1] + own["b"]))
        return xp.diag(alpha) @ erased, beta * xp.outer(v, k)
    raise ValueError(f"the reference has no recurrence of {name!r}")


def query(xp, name, q):
    if name == "retention":
        return q / np.sqrt(len(q))
    return features(xp, q) if "delta" in name else q


def features(xp, x):
    x = x * sigmoid(xp, x)
    return x / xp.sqrt(x @ x + 1e-6)


def sigmoid(xp, x):
    return xp.exp(-xp.logaddexp(0.0, -x))
