"""Scores of one query over keys with one head, and their softmax, in plain numpy."""

import numpy as np


def weigh(p, kind, q, keys):
    """Returns scores [S] of q [d] over keys [S, d]; p["attention"] has the weights."""
    if kind == "dot":
        return keys @ q
    if kind == "scaled":
        return keys @ q / np.sqrt(len(q))
    own = {name: part["weight"][0] for name, part in p["attention"].items()}
    if kind == "general":
        return keys @ own["W"].T @ q
    return np.tanh(q @ own["W_q"] + keys @ own["W_k"]) @ own["v"]


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()
