"""The Extended Neural GPU in plain numpy, one pair of sentences and one position at a time."""

import numpy as np


def logits(p, source, target_in, N, w):
    """Returns logits [T, V] of one unpadded pair; `p` has the parameters in numpy."""
    matrix = p["embedding"]["matrix"]
    m, n = matrix.shape[1], len(source)
    s = np.zeros((w, n, m))
    s[0] = matrix[source] * np.sqrt(m)
    for _ in range(n):
        for i in range(N):
            s = cgru(p, f"encoder_{i}", s)
    out = []
    for t in range(len(target_in)):
        grown = np.zeros((w, max(n, t + 1), m))
        grown[:, : s.shape[1]] = s
        s, tape = grown, np.zeros_like(grown)
        for i, word in enumerate(target_in[1 : t + 1]):
            tape[0, i] = matrix[word] * np.sqrt(m)
        for i in range(N):
            s = cgru(p, f"decoder_{i}", s, tape)
        out.append(matrix @ s[0, t])
    return np.array(out)


def cgru(p, name, s, *tape):
    """u s + (1 - u) tanh(U * (r s) + W * p + B), with kernels of 3 x 3 positions."""
    m = s.shape[2]
    gates = sigmoid(convolve(p[f"{name}_W"], s, *tape) + p[f"{name}_b"])
    u, r = gates[..., :m], gates[..., m:]
    new = np.tanh(convolve(p[f"{name}_U"], r * s, *tape) + p[f"{name}_b_new"])
    return u * s + (1 - u) * new


def convolve(W, *images):
    x = np.concatenate(images, -1)
    W = W.reshape(3, 3, x.shape[2], -1)
    out = np.zeros((*x.shape[:2], W.shape[3]))
    for i, j in np.ndindex(*x.shape[:2]):
        for di, dj in np.ndindex(3, 3):
            row, column = i + di - 1, j + dj - 1
            if 0 <= row < x.shape[0] and 0 <= column < x.shape[1]:
                out[i, j] += x[row, column] @ W[di, dj]
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
