"""Every attention mechanism by its definition, over all pairs, in float64.

A predicate says for one pair at a time whether the query sees the key; the scores of all pairs
are computed, and linear attention is the softmax of log(phi(q) phi(k)). Attention with a memory has
no pairs: see `memory`.
"""

import jax.numpy
import numpy as np

from tests.reference import memory

SCALED = "scaled_dot_product", "local", "sparse_strided", "sparse_fixed", "sparse_random"
DENSE = (
    "scaled_dot_product dot_product general additive linear performer local_p cosformer taylor"
).split()  # every key is seen, or the pattern is that of the scores


def attention(
    name, options, parameters, q, k, v, q_lengths, kv_lengths, causal, bias=None, xp=jax.numpy
):
    """Returns [B, T, h, d_v] for q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] in float64.

    parameters: those of the mechanism, by name. bias: table from a distance s - t to [h].
    xp: jax.numpy, to be differentiated with 64-bit types enabled, or numpy.
    """
    rows = []
    for b in range(len(q_lengths)):
        size = q.shape[1], k.shape[1]
        seen = visible(name, options, size, int(q_lengths[b]), int(kv_lengths[b]), causal)
        heads = []
        for i in range(q.shape[2]):
            own = {n: p["weight"][i] for n, p in parameters.items()}
            x, y, z = q[b, :, i], k[b, :, i], v[b, :, i]
            if name in memory.NAMES:
                size = int(q_lengths[b]), int(kv_lengths[b])
                heads.append(memory.attention(xp, name, own, x, y, z, i, *size, causal))
                continue
            if name in ("linformer", "nystrom"):
                size = int(q_lengths[b]), int(kv_lengths[b])
                heads.append(low_rank(xp, name, options, own, x, y, z, *size))
                continue
            if name == "local_p":
                heads.append(predictive(xp, options["w"], own, x, y, z, seen, int(kv_lengths[b])))
                continue
            e = scores(xp, name, options, own, x, y, i, q.shape[2])
            if bias is not None:
                e = e + xp.array([[bias[s - t][i] for s in range(size[1])] for t in range(size[0])])
            heads.append(softmax(xp, e, seen) @ z)
        rows.append(xp.stack(heads, axis=1))
    return xp.stack(rows)


def visible(name, o, size, q_length, kv_length, causal):
    """Returns bool [T, S]: which query sees which key."""

    def pattern(t, s):
        if name == "local":
            return abs(s - t) <= o["w"]
        if name == "sparse_strided":
            return abs(s - t) <= o["l"] or (s - t) % o["l"] == 0
        if name == "sparse_fixed":
            return t // o["l"] == s // o["l"] or s % o["l"] >= o["l"] - o["c"]
        if name == "sparse_random":
            i, j = t // o["b"], s // o["b"]
            if abs(i - j) <= 1 or j == 0 or (i == 0 and not causal):
                return True
            u = np.random.default_rng(o["seed"]).random((i + 1, o["r"]))[i].astype(np.float32)
            choice = min(i, -(-size[1] // o["b"])) if causal else -(-kv_length // o["b"])
            return j in np.floor(u * np.float32(choice)).astype(int)
        if name not in (*DENSE, *memory.NAMES, "linformer", "nystrom"):
            raise ValueError(f"the reference has no pattern of {name!r}")
        return True

    return np.array(
        [
            [
                t < q_length and s < kv_length and (s <= t or not causal) and bool(pattern(t, s))
                for s in range(size[1])
            ]
            for t in range(size[0])
        ]
    )


def scores(xp, name, o, own, q, k, head, h):
    """Returns the scores [T, S] of one head."""
    d_k = q.shape[1]
    if name == "dot_product":
        return q @ k.T
    if name == "general":
        return q @ own["W"] @ k.T
    if name == "additive":
        pairs = (q @ own["W_q"])[:, None] + (k @ own["W_k"])[None]
        return xp.tanh(pairs) @ own["v"]
    if name == "linear":
        return xp.log(elu(xp, q) @ elu(xp, k).T)
    if name == "performer":
        W = features(h, o["m"], d_k, o["seed"])[head]
        x, y = (z / d_k**0.25 for z in (q, k))
        log_x, log_y = (z @ W.T - (z * z).sum(1, keepdims=True) / 2 for z in (x, y))
        pairs = log_x[:, None] + log_y[None]
        largest = pairs.max(2, keepdims=True)
        return largest[..., 0] + xp.log(xp.exp(pairs - largest).sum(2) / o["m"])
    if name == "cosformer":  # equation 9
        t, s = xp.arange(len(q))[:, None], xp.arange(len(k))[None]
        pairs = xp.maximum(q, 0) @ xp.maximum(k, 0).T * xp.cos(np.pi / 2 * (t - s) / o["M"])
        return xp.where(pairs > 0, xp.log(xp.where(pairs > 0, pairs, 1)), -1e300)
    if name == "taylor":  # Arora et al. (2024), section 4.1
        x = q @ k.T / np.sqrt(d_k)
        return xp.log(1 + x + x**2 / 2)
    if name in SCALED:
        return q @ k.T / d_k ** o.get("power", 0.5)
    raise ValueError(f"the reference has no scores of {name!r}")


def elu(xp, x):
    return xp.where(x > 0, x, xp.exp(xp.minimum(x, 0)) - 1) + 1


def features(h, m, d_k, seed):
    """Returns rows that are orthogonal in blocks of d_k, with lengths of Gaussian rows."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(h, -(-m // d_k), d_k, d_k))
    lengths = np.sqrt((rng.normal(size=(h, m, d_k)) ** 2).sum(-1))
    out = np.zeros((h, m, d_k))
    for i in range(h):
        for row in range(m):
            out[i, row] = orthogonal(drawn[i, row // d_k])[row % d_k] * lengths[i, row]
    return out


def orthogonal(columns):
    """Returns the Gram-Schmidt basis of the columns as rows; it is uniform if they are Gaussian."""
    basis = []
    for x in columns.T:
        for y in basis:
            x = x - (x @ y) * y
        basis.append(x / np.sqrt(x @ x))
    return basis


def predictive(xp, w, own, q, k, v, seen, length):
    """Returns Luong's local-p: p = S sigmoid(v_p tanh(W_p q)), window w, deviation w / 2."""
    p = length / (1 + xp.exp(-(xp.tanh(q @ own["W_p"]) @ own["v_p"])))
    away = xp.arange(k.shape[0])[None] - p[:, None]
    a = softmax(xp, q @ k.T / np.sqrt(q.shape[1]), seen & (xp.abs(away) <= w))
    return (a * xp.exp(-(away**2) / (2 * (w / 2) ** 2))) @ v


def low_rank(xp, name, o, own, q, k, v, q_length, kv_length):
    """Returns [T, d_v] of attention without a pattern, computed without the padding."""
    zeros = xp.zeros((len(q), v.shape[1]))
    if not q_length or not kv_length:
        return zeros
    scale, q, k, v = np.sqrt(q.shape[1]), q[:q_length], k[:kv_length], v[:kv_length]
    every = np.ones((1, 1), bool)
    if name == "linformer":  # Wang et al. (2020), equation 7
        E, F = own["E"][:kv_length].T, own["F"][:kv_length].T
        out = softmax(xp, q @ (E @ k).T / scale, every) @ (F @ v)
    else:  # Xiong et al. (2021), algorithm 1
        x, y = segment_means(xp, q, o["m"]), segment_means(xp, k, o["m"])
        left, A, right = (softmax(xp, a @ b.T / scale, every) for a, b in ((q, y), (x, y), (x, k)))
        out = left @ iterated_inverse(A) @ right @ v
    return xp.concatenate([out, zeros[q_length:]])


def segment_means(xp, x, m):
    segments = [[i for i in range(len(x)) if i * m // len(x) == j] for j in range(m)]
    return xp.stack([sum(x[i] for i in rows) / len(rows) for rows in segments if rows])


def iterated_inverse(A):
    """Returns the sixth iterate towards the pseudo-inverse of A."""
    Z, I = A.T / (abs(A).sum(0).max() * abs(A).sum(1).max()), np.eye(len(A))
    for _ in range(6):
        Z = Z @ (13 * I - A @ Z @ (15 * I - A @ Z @ (7 * I - A @ Z))) / 4
    return Z


def softmax(xp, e, seen):
    """Returns the softmax over visible keys, or zeros if a query sees no key."""
    seen = seen & (e > -1e300)  # the logarithm of zero
    e = xp.where(seen, e, -1e300)
    a = xp.where(seen, xp.exp(e - e.max(axis=1, keepdims=True)), 0)
    total = a.sum(axis=1, keepdims=True)
    return a / xp.where(total > 0, total, 1)
