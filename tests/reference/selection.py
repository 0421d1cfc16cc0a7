"""The keys that a query sees where its content decides, by loops over queries in float64.

A choice between numbers that are almost equal would differ between machines and types. So
`highest` raises if the least that it takes and the largest that it leaves are that close: tests
then need other inputs. At an exact tie, the mechanisms say themselves which one they take.
"""

import numpy as np

_MARGIN = 2e-6


def highest(scores, n):
    """Returns the indices of the n highest of a dict of scores."""
    order = sorted(scores, key=scores.get, reverse=True)
    if len(order) > n and scores[order[n - 1]] - scores[order[n]] < _MARGIN:
        raise ValueError("two scores are too close for a choice that rounding does not change.")
    return order[:n]


def top_k(o, seen, e):
    """Returns bool [T, S] for scores e [T, S]: the k highest of those that are seen."""
    chosen = np.zeros_like(seen)
    for t, row in enumerate(seen):
        chosen[t, highest({s: e[t, s] for s in np.flatnonzero(row)}, o["k"])] = True
    return chosen


def block_select(o, seen, q, k, kv_length, causal):
    """Returns bool [T, S]: the own block, and n others (causal: before it) by their mean keys."""
    chosen, b = np.zeros_like(seen), o["b"]
    for t in np.flatnonzero(seen.any(1)):
        means = {}
        for j in range(-(-kv_length // b)):
            if j < t // b or (j > t // b and not causal):
                means[j] = q[t] @ k[j * b : min(j * b + b, kv_length)].mean(0)
        for j in (t // b, *highest(means, o["n"])):
            chosen[t, j * b : j * b + b] = True
    return chosen & seen


def lsh(o, seen, q, k, kv_length, head, h):
    """Returns bool [T, S]: t, and in each round the nearest c keys of its bucket on either side."""
    chosen, d_k = np.zeros_like(seen), q.shape[1]
    rotations = np.random.default_rng(o["seed"]).normal(size=(h, o["r"], d_k, -(-o["b"] // 2)))

    def bucket(x, R):
        return highest(dict(enumerate([*(x @ R), *(-x @ R)][: o["b"]])), 1)

    for t in np.flatnonzero(seen.any(1)):
        chosen[t, t : t + 1] = True
        for R in rotations[head]:
            same = [s for s in range(kv_length) if bucket(k[s], R) == bucket(q[t], R)]
            chosen[t, [s for s in same if s <= t][-o["c"] :]] = True
            chosen[t, [s for s in same if s > t][: o["c"]]] = True
    return chosen & seen
