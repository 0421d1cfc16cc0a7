"""Recurrent sequence to sequence in plain numpy, one sentence and one position at a time."""

import numpy as np

from tests.reference.scores import softmax, weigh


def logits(p, source, target_in, *, cell, feed="none", both=False, scores="dot"):
    """Returns logits [T, V] of one unpadded sentence pair; `p` has the parameters in numpy."""
    matrix = p["embedding"]["matrix"]
    scale = np.sqrt(matrix.shape[1])
    turn = {"lstm": lstm, "gru": gru, "f_lstm": f_lstm, "g2_lstm": g_lstm, "g4_lstm": g_lstm}[cell]
    N = sum(name.startswith("decoder_") for name in p)

    states, last = [matrix[token] * scale for token in source], []
    for i in range(N):
        forward = walk(turn, p[f"encoder_{i}_forward"], states)
        if not both:
            states, carry = [c[0] for c in forward], forward[-1]
        else:
            back = walk(turn, p[f"encoder_{i}_backward"], states[::-1])
            carry = [np.concatenate(pair) for pair in zip(forward[-1], back[-1], strict=True)]
            states = [
                np.concatenate([a[0], b[0]]) for a, b in zip(forward, back[::-1], strict=True)
            ]
        last.append(carry)

    out, carries, encoded = [], last, np.array(states)
    for token in target_in:
        x = matrix[token] * scale
        if feed == "input":
            value = softmax(weigh(p, scores, carries[-1][0], encoded)) @ encoded
            x = np.concatenate([x, value])
        after = []
        for i in range(N):
            carry = turn(p[f"decoder_{i}"], x, carries[i])
            after.append(carry)
            x = carry[0]
        carries = after
        if feed == "output":
            value = softmax(weigh(p, scores, x, encoded)) @ encoded
        if feed != "none":
            x = np.tanh(p["readout"]["W"].T @ np.concatenate([x, value]))
        out.append(matrix @ x)
    return np.array(out)


def walk(turn, q, inputs):
    carry, carries = [np.zeros(q["b"].shape[1])] * 2, []
    for x in inputs:
        carry = turn(q, x, carry)
        carries.append(carry)
    return carries


def lstm(q, x, carry):
    return gated([x @ q["W"][:, n] + q["b"][n] + carry[0] @ q["U"][:, n] for n in range(4)], carry)


def f_lstm(q, x, carry):
    """The gates are W_2 W_1 [x; h] + b (Kuchaiev and Ginsburg 2017)."""
    y = np.concatenate([x, carry[0]]) @ q["W_1"]
    return gated([y @ q["W_2"][:, n] + q["b"][n] for n in range(4)], carry)


def g_lstm(q, x, carry):
    """Group j of the gates depends on group j of the input and of the last state alone."""
    k = len(q["W"])
    parts = zip(np.split(x, k), np.split(carry[0], k), q["W"], q["U"], strict=True)
    groups = [[a @ W[:, n] + h @ U[:, n] for n in range(4)] for a, h, W, U in parts]
    return gated([np.concatenate(z) + b for *z, b in zip(*groups, q["b"], strict=True)], carry)


def gated(gates, carry):
    (i, f, g, o), (_, c) = gates, carry
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru(q, x, carry):
    h = carry[0]
    z = [x @ q["W"][:, n] + q["b"][n] for n in range(3)]
    r, a = (sigmoid(z[n] + h @ q["U"][:, n]) for n in range(2))
    return [(1 - a) * np.tanh(z[2] + r * (h @ q["U"][:, 2])) + a * h]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
