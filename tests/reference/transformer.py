"""The Transformer of the paper in plain numpy, one sentence and one head at a time."""

import numpy as np


def logits(p, source, target_in, *, positions="sinusoid", multiplier=1, **options):
    """Returns logits [T, V] of one unpadded sentence pair; `p` has the parameters in numpy.

    options: those of `stack` and of `softmax_input`.
    """
    x = embed(p, source, "source_positions", positions)
    last = {name: options.pop(name) for name in ("output", "cap") if name in options}
    x = stack(p, "encoder", "encoder_", x, positions, **options)
    y = embed(p, target_in, "target_positions", positions)
    y = stack(p, "decoder", "decoder_", y, positions, x, **options)
    return softmax_input(p, multiplier * y, **last)


def language_model(p, source, tokens, *, causal, positions="sinusoid", **options):
    """Returns logits [T, V] of one stack as a language model, without a source."""
    x = embed(p, tokens, "positions", positions)
    last = {name: options.pop(name) for name in ("output", "cap") if name in options}
    x = stack(p, "decoder" if causal else "encoder", "", x, positions, **options)
    return softmax_input(p, x, **last)


def softmax_input(p, x, output="matrix", cap=0):
    """Returns logits by the matrix named `output`, between -cap and cap unless cap is 0."""
    z = x @ p["embedding"][output].T
    return cap * np.tanh(z / cap) if cap else z


def stack(
    p,
    role,
    prefix,
    x,
    positions,
    encoded=None,
    *,
    power=0.5,
    pre=False,
    activation="relu",
    parallel=False,
):
    """Returns the output [L, d_model] of the layers of one role.

    prefix: of the names of the stack's bias and norm.
    power: scores are divided by d_k^power.
    pre: norm before each sub-layer, and one more after the stack.
    parallel: all sub-layers of a layer have one input, after one norm.
    """
    causal, own = role == "decoder", extras(p, f"{prefix}bias", positions)
    for i in range(sum(name.removeprefix(f"{role}_").isdecimal() for name in p)):
        q = p[f"{role}_{i}"]
        parts = {"attention": lambda z, q=q: heads(q["attention"], z, z, causal, power, **own)}
        if encoded is not None:
            parts["cross"] = lambda z, q=q: heads(q["cross_attention"], z, encoded, False, power)
        parts["feed_forward"] = lambda z, q=q: feed_forward(q["feed_forward"], z, activation)
        if parallel:
            y = norm(q["add_norm_parallel"], x)
            x = x + np.sum([f(y) for f in parts.values()], axis=0)
            continue
        for part, f in parts.items():
            n = q[f"add_norm_{part}"]
            x = x + f(norm(n, x)) if pre else norm(n, x + f(x))
    return norm(p[f"{prefix}norm"], x) if pre or parallel else x


def embed(p, tokens, table, positions):
    matrix = p["embedding"]["matrix"]
    d = matrix.shape[1]
    out = np.stack([matrix[token] for token in tokens]) * np.sqrt(d)
    for pos in range(len(tokens)):
        for i in range(d // 2):
            if not positions.startswith("sinusoid"):
                continue
            angle = pos / 10000 ** (2 * i / d)
            out[pos, 2 * i] += np.sin(angle)
            out[pos, 2 * i + 1] += np.cos(angle)
    if positions == "learned":
        out = out + p[table]["table"][: len(tokens)]
    return out


def extras(p, stack, positions):
    """Returns what positions do in self-attention: rotation, or a bias per head and distance."""
    bias = None
    if positions == "relative":
        bias = lambda i, distance, causal: p[stack]["table"][i][bucket(distance, causal)]  # noqa: E731
    if positions == "alibi":
        h = p[f"{stack.removesuffix('_bias')}_0"]["attention"]["W_Q"].shape[1]
        bias = lambda i, distance, causal: -abs(distance) * 2 ** (-8 * (i + 1) / h)  # noqa: E731
    return {"rotary": positions == "rotary", "bias": bias}


def rotated(x):
    """Returns x with its pairs of features, as complex numbers, rotated by their position."""
    d = x.shape[1]
    out = np.zeros_like(x)
    for pos in range(len(x)):
        for i in range(d // 2):
            z = (x[pos, 2 * i] + 1j * x[pos, 2 * i + 1]) * np.exp(1j * pos / 10000 ** (2 * i / d))
            out[pos, 2 * i], out[pos, 2 * i + 1] = z.real, z.imag
    return out


def bucket(distance, causal):
    """Returns T5's bucket: exact at small distances, logarithmic up to 128, constant beyond."""
    size = 32 if causal else 16
    n = max(-distance, 0) if causal else abs(distance)
    if n >= size // 2:
        n = min(size - 1, size // 2 + int(np.log(n / (size / 2)) / np.log(256 / size) * size / 2))
    return n + (size if distance > 0 and not causal else 0)


def heads(p, x, y, causal, power, rotary=False, bias=None):
    out, h = np.zeros((len(x), p["W_O"].shape[2])), p["W_Q"].shape[1]
    h_kv = p["W_K"].shape[1] if "W_K" in p else h
    for i in range(h):
        j = i * h_kv // h  # the head of keys and values that serves this one
        q = x @ p["W_Q"][:, i]
        k, v = latent(p, i, y) if "W_DKV" in p else (y @ p["W_K"][:, j], y @ p["W_V"][:, j])
        if "filter_Q" in p:
            q = convolved(q, p["filter_Q"][:, i])
            k, v = convolved(k, p["filter_K"][:, j]), convolved(v, p["filter_V"][:, j])
        if "norm_q" in p:
            q, k = norm({"norm": p["norm_q"]}, q), norm({"norm": p["norm_k"]}, k)
        if rotary:
            d = p["W_UK"].shape[2] if "W_UK" in p else 0  # features that are not rotated
            q, k = (np.hstack([z[:, :d], rotated(z[:, d:])]) for z in (q, k))
        scores = q @ k.T / q.shape[1] ** power
        if bias is not None:
            for t, s in np.ndindex(*scores.shape):
                scores[t, s] += bias(i, s - t, causal)
        for t in range(len(x)):
            seen = slice(0, t + 1) if causal else slice(None)
            a = np.exp(scores[t, seen])
            gate = 1 / (1 + np.exp(-x[t] @ p["W_G"][:, i])) if "W_G" in p else 1
            out[t] += (gate * ((a / a.sum()) @ v[seen])) @ p["W_O"][i]
    return out


def latent(p, i, y):
    """Returns keys and values of head i; the last features of a key do not depend on the head."""
    z, d_c = y @ p["W_DKV"], len(p["W_UK"])
    c = norm({"norm": p["norm_c"]}, z[:, :d_c])
    return np.hstack([c @ p["W_UK"][:, i], z[:, d_c:]]), c @ p["W_UV"][:, i]


def convolved(x, filters):
    """Returns sums over the last positions of x [T, d]; the last of the filters is for its own."""
    out = np.zeros_like(x)
    for t, i in np.ndindex(len(x), len(filters)):
        if t >= i:
            out[t] += filters[-1 - i] * x[t - i]
    return out


def feed_forward(p, x, activation):
    if "W_3" in p:
        return (ACTIVATIONS[activation](x @ p["W_1"]) * (x @ p["W_3"])) @ p["W_2"]
    return ACTIVATIONS[activation](x @ p["W_1"] + p.get("b_1", 0)) @ p["W_2"] + p.get("b_2", 0)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(0, x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def unbiased(p, source, target_in):
    """Returns logits [T, V] with layer norms and feed-forward layers that have no biases."""

    def without(q):
        if "scale" in q:
            return q | {"bias": 0}
        kept = {n: x for n, x in q.items() if n not in ("b_1", "b_2")}
        return {n: without(x) if isinstance(x, dict) else x for n, x in kept.items()}

    return logits(without(p), source, target_in)


def norm(p, x):
    """Returns the layer norm of x, or its RMS norm if the parameters have no bias."""
    p = p["norm"]["affine"]
    centred = x - x.mean(axis=1, keepdims=True) if "bias" in p else x
    variance = (centred**2).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + 1e-6) * p["scale"] + p.get("bias", 0)
