"""The post-norm Transformer of the paper in plain numpy, one sentence and one head at a time."""

import numpy as np


def logits(p, source, target_in, *, scaled=True, positions="sinusoid"):
    """[T, V] for one unpadded sentence pair; `p` is the model's parameter tree as numpy arrays."""
    x = embed(p, source, "source_positions", positions)
    for name in sorted(n for n in p if n.startswith("encoder_")):
        layer = p[name]
        x = norm(layer["add_norm_attention"], x + heads(layer["attention"], x, x, False, scaled))
        x = norm(layer["add_norm_feed_forward"], x + feed_forward(layer["feed_forward"], x))
    y = embed(p, target_in, "target_positions", positions)
    for name in sorted(n for n in p if n.startswith("decoder_")):
        layer = p[name]
        y = norm(layer["add_norm_attention"], y + heads(layer["attention"], y, y, True, scaled))
        y = norm(layer["add_norm_cross"], y + heads(layer["cross_attention"], y, x, False, scaled))
        y = norm(layer["add_norm_feed_forward"], y + feed_forward(layer["feed_forward"], y))
    return y @ p["embedding"]["matrix"].T


def loss(p, pairs, eps_ls, **options):
    """Label-smoothed cross-entropy per target token over (source, target_in, target) triples."""
    total, count = 0.0, 0
    for source, target_in, target in pairs:
        z = logits(p, source, target_in, **options)
        V = z.shape[1]
        log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        for t, word in enumerate(target):
            wanted = np.full(V, eps_ls / V)
            wanted[word] += 1 - eps_ls
            total -= (wanted * log_p[t]).sum()
            count += 1
    return total / count


def embed(p, tokens, table, positions):
    matrix = p["embedding"]["matrix"]
    d = matrix.shape[1]
    out = np.stack([matrix[token] for token in tokens]) * np.sqrt(d)
    for pos in range(len(tokens)):
        for i in range(d // 2):
            if positions == "learned":
                continue
            angle = pos / 10000 ** (2 * i / d)
            out[pos, 2 * i] += np.sin(angle)
            out[pos, 2 * i + 1] += np.cos(angle)
    if positions == "learned":
        out = out + p[table]["table"][: len(tokens)]
    return out


def heads(p, x, y, causal, scaled):
    out = np.zeros((len(x), p["W_O"].shape[2]))
    for i in range(p["W_Q"].shape[1]):
        q, k, v = x @ p["W_Q"][:, i], y @ p["W_K"][:, i], y @ p["W_V"][:, i]
        scores = q @ k.T / (np.sqrt(q.shape[1]) if scaled else 1.0)
        for t in range(len(x)):
            seen = slice(0, t + 1) if causal else slice(None)
            a = np.exp(scores[t, seen])
            out[t] += (a / a.sum()) @ v[seen] @ p["W_O"][i]
    return out


def feed_forward(p, x):
    return np.maximum(0, x @ p["W_1"] + p["b_1"]) @ p["W_2"] + p["b_2"]


def norm(p, x):
    p = p["layer_norm"]["affine"]
    centred = x - x.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + 1e-6) * p["scale"] + p["bias"]
