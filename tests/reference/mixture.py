"""A mixture of experts in plain numpy, one token at a time."""

import numpy as np


def layer(W, x, K, capacity):
    """Returns the outputs [L, d_model] of a sentence, its balancing loss, and the tokens of each.

    An expert takes no more tokens than its capacity; x is [L, d_model], without padding.
    """
    W = {name: np.asarray(w, np.float64) for name, w in W.items()}
    z, E = x.astype(np.float64) @ W["W_r"], W["W_r"].shape[1]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    used, y = np.zeros(E), np.zeros_like(z @ W["W_r"].T)
    for t in range(len(x)):
        best = sorted(range(E), key=lambda e: -z[t, e])[:K]
        for e in best:
            used[e] += 1
            if used[e] <= capacity:
                gate = p[t, e] / sum(p[t, other] for other in best)
                y[t] += gate * (np.maximum(x[t] @ W["W_1"][e], 0) @ W["W_2"][e])
    return y, E * (used / used.sum() * p.mean(0)).sum(), used
