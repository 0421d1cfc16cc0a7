"""ConvS2S in plain numpy, one sentence, one position and one tap at a time."""

import numpy as np

from tests.reference.scores import softmax, weigh


def logits(p, source, target_in, *, dilation=1, positions="learned", scores="dot"):
    """Returns logits [T, V] of one unpadded sentence pair; `p` has the parameters in numpy."""
    N = sum(name.startswith("decoder_") for name in p)
    first = x = embed(p, source, "source_positions", positions)
    for i in range(N):
        q = p[f"encoder_{i}"]
        reach = (len(q["W"]) - 1) * dilation**i
        x = (x + convolve(q, x, dilation**i, reach // 2)) / np.sqrt(2)
    keys, values = x, (x + first) / np.sqrt(2)

    g = y = embed(p, target_in, "target_positions", positions)
    for i in range(N):
        q, a = p[f"decoder_{i}"], p[f"attention_{i}"]
        h = convolve(q, y, dilation**i, (len(q["W"]) - 1) * dilation**i)
        for t in range(len(y)):
            query = (h[t] @ a["W_Q"] + a["b_Q"] + g[t]) / np.sqrt(2)
            value = softmax(weigh(a, scores, query, keys)) @ values * np.sqrt(len(keys))
            h[t] = (h[t] + value @ a["W_O"] + a["b_O"]) / np.sqrt(2)
        y = (y + h) / np.sqrt(2)
    return y @ p["embedding"]["matrix"].T


def embed(p, tokens, table, positions):
    matrix = p["embedding"]["matrix"]
    d = matrix.shape[1]
    out = matrix[tokens]
    if positions == "learned":
        return out + p[table]["table"][: len(tokens)] / np.sqrt(d)
    for pos, i in np.ndindex(len(tokens), d):
        angle = pos / 10000 ** (2 * (i // 2) / d)
        out[pos, i] += (np.cos(angle) if i % 2 else np.sin(angle)) / np.sqrt(d)
    return out


def convolve(q, x, gap, before):
    """Returns a gated convolution: tap j at position t reads position t + j gap - before."""
    out = np.zeros_like(x)
    for t in range(len(x)):
        z = q["b"].copy()
        for j, tap in enumerate(q["W"]):
            s = t + j * gap - before
            if 0 <= s < len(x):
                z += np.einsum("d,dge->ge", x[s], tap)
        out[t] = z[0] / (1 + np.exp(-z[1]))
    return out
