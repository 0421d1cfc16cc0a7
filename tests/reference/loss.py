"""Label-smoothed cross-entropy in plain numpy."""

import numpy as np


def loss(logits, pairs, eps_ls):
    """Per target token over (source, target_in, target) triples; logits(source, target_in)."""
    total, count = 0.0, 0
    for source, target_in, target in pairs:
        z = logits(source, target_in)
        V = z.shape[1]
        log_p = z - np.logaddexp.reduce(z, axis=1, keepdims=True)
        for t, word in enumerate(target):
            wanted = np.full(V, eps_ls / V)
            wanted[word] += 1 - eps_ls
            total -= (wanted * log_p[t]).sum()
            count += 1
    return total / count
