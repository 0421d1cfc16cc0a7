"""An end-to-end memory network in plain numpy, one story and one position at a time."""

import numpy as np

from tests.reference.scores import softmax


def logits(p, source, target_in, K, stop):
    """Returns logits [T, V] of one unpadded pair; `p` has the parameters in numpy."""
    *sentences, question = parts(source[:-1], stop)  # without the end mark
    A = [p[f"embeddings_{k}"]["matrix"] for k in range(K)] + [p["embedding"]["matrix"]]
    memories = [
        [encode(A[k], x) + p["times"][k, i] for i, x in enumerate(reversed(sentences))]
        for k in range(K + 1)
    ]
    out = []
    for t in range(len(target_in)):
        u = encode(A[0], question) + sum(A[0][x] for x in target_in[: t + 1])
        for k in range(K if sentences else 0):
            weights = softmax(np.array([u @ m for m in memories[k]]))
            u = u + sum(p_i * c for p_i, c in zip(weights, memories[k + 1], strict=True))
        out.append(A[K] @ u)
    return np.array(out)


def parts(words, stop):
    """Returns the sentences, each of which ends with `stop`, and the words after the last."""
    out = [[]]
    for word in words:
        if word == stop:
            out.append([])
        else:
            out[-1].append(word)
    return out


def encode(A, words):
    """Returns sum_j l_j A x_j with l_kj = (1 - j / J) - (k / d) (1 - 2 j / J)."""
    J, d = len(words), A.shape[1]
    out = np.zeros(d)
    for j, word in enumerate(words, 1):
        for k in range(1, d + 1):
            out[k - 1] += ((1 - j / J) - k / d * (1 - 2 * j / J)) * A[word][k - 1]
    return out
