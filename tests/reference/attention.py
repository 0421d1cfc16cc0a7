"""Every attention mechanism by its definition, over all pairs, in float64.

A predicate says for one pair at a time whether the query sees the key; the scores of all pairs
are computed, and linear attention is the softmax of log(phi(q) phi(k)). Attention with a memory has
no pairs: see `memory`.
"""

import jax
import numpy as np

from tests.reference import memory, selection

SCALED = (
    "scaled_dot_product local local_p dilated block_local streaming longformer "
    "sparse_strided sparse_fixed sparse_random bigbird top_k block_select lsh "
    "softmax1 sink sparsemax entmax talking_heads"
).split()
DENSE = (
    "scaled_dot_product dot_product general additive linear performer local_p cosine softmax1 sink "
    "sparsemax entmax talking_heads differential top_k block_select lsh cosformer taylor coverage "
    "softcap forgetting"
).split()  # every key is seen, or the scores or `selection` decide

# Faster as one program; the others share operations, which a test process compiles once.
COMPILED = ("linformer", "nystrom")


def attention(
    name, options, parameters, q, k, v, q_lengths, kv_lengths, causal, bias=None, xp=jax.numpy
):
    """Returns [B, T, h, d_v] for q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] in float64.

    parameters: those of the mechanism, by name. bias: table from a distance s - t to [h].
    xp: jax.numpy, to be differentiated with 64-bit types enabled, or numpy.
    """
    rows = []
    for b in range(len(q_lengths)):
        lengths = int(q_lengths[b]), int(kv_lengths[b])
        inputs = [
            (
                {n: x["weight"][i] if "weight" in x else x for n, x in parameters.items()},
                *(x[b, :, i] for x in (q, k, v)),
            )
            for i in range(q.shape[2])
        ]
        if name in memory.NAMES:
            heads = [
                memory.attention(xp, name, *x, i, *lengths, causal) for i, x in enumerate(inputs)
            ]
        elif name in ("linformer", "nystrom"):
            heads = [low_rank(xp, name, options, *x, *lengths) for x in inputs]
        elif name == "native_sparse":
            heads = [native_sparse(xp, options, *x, *lengths) for x in inputs]
        else:
            a = weights_of_pairs(xp, name, options, inputs, lengths, causal, bias)
            heads = [x @ z for x, (*_, z) in zip(a, inputs, strict=True)]
        if name == "differential":
            shrunk = 1 - options["lambda_init"]
            heads = [shrunk * rms_norm(xp, x) * inputs[0][0]["norm"]["scale"][None] for x in heads]
        rows.append(xp.stack(heads, axis=1))
    return xp.stack(rows)


def native_sparse(xp, o, own, q, k, v, q_length, kv_length):
    """Returns [T, d_v]: for each query, compressed blocks, selected blocks and a window, gated."""
    b, d, rows = o["b"], q.shape[1], []
    k, gates = k[:, :d], 1 / (1 + xp.exp(-k[:, d:]))

    def attend(query, keys, values):
        if not len(keys):
            return xp.zeros(v.shape[1])
        e = xp.exp(xp.asarray(keys) @ query / d**0.5)
        return (e / e.sum()) @ xp.asarray(values)

    whole = range(kv_length // b)
    blocks = [
        [x[j * b : j * b + b].reshape(-1) @ W for j in whole]
        for x, W in ((k, own["W_k"]), (v, own["W_v"]))
    ]
    for t in range(len(q)):
        end = min(t + 1, kv_length) if t < q_length else 0
        small = [of[: end // b] for of in blocks]
        scores = {j: constant(q[t]) @ constant(x) for j, x in enumerate(small[0]) if j < t // b}
        chosen = {t // b, *selection.highest(scores, o["n"])}
        selected = np.array([s for s in range(end) if s // b in chosen], int)
        near = np.arange(min(max(t - o["w"], 0), end), end)
        parts = [attend(q[t], *small)] + [attend(q[t], k[s], v[s]) for s in (selected, near)]
        rows.append(sum(g * part for g, part in zip(gates[t], parts, strict=True)))
    return xp.stack(rows)


def weights_of_pairs(xp, name, o, inputs, lengths, causal, bias):
    """Returns the weights [T, S] of each head.

    inputs: for each head its parameters, and its q [T, d_k], k [S, d_k] and v.
    """
    h, size, length = len(inputs), (len(inputs[0][1]), len(inputs[0][2])), lengths[1]
    seen = visible(name, o, size, *lengths, causal)
    if name == "coverage":
        return [coverage(xp, own, q, k, seen) for own, q, k, _ in inputs]
    e = [scores(xp, name, o, own, q, k, i, h) for i, (own, q, k, _) in enumerate(inputs)]
    if name == "talking_heads":
        e = [sum(own["P_l"][j] * e[j] for j in range(h)) for own, *_ in inputs]
    if bias is not None:
        distances = [[s - t for s in range(size[1])] for t in range(size[0])]
        tables = [xp.array([[bias[x][i] for x in row] for row in distances]) for i in range(h)]
        e = [x + xp.broadcast_to(y, x.shape) for x, y in zip(e, tables, strict=True)]
    a = []
    for i, (own, q, k, _) in enumerate(inputs):
        if name == "local_p":
            a.append(predictive(xp, o["w"], own, q, e[i], seen, length))
        else:
            chosen = select(name, o, seen, q, k, e[i], length, causal, i, h)
            a.append(weights(xp, name, o, own, e[i], chosen))
    if name == "talking_heads":
        a = [sum(own["P_w"][j] * a[j] for j in range(h)) for own, *_ in inputs]
    return a


def visible(name, o, size, q_length, kv_length, causal):
    """Returns bool [T, S]: which query sees which key."""

    def pattern(t, s):
        if name == "local":
            return abs(s - t) <= o["w"]
        if name == "dilated":
            return (s - t) % o["r"] == 0 and abs(s - t) <= o["w"] * o["r"]
        if name == "block_local":
            return s // o["b"] == t // o["b"]
        if name == "streaming":
            return abs(s - t) <= o["w"] or s < o["g"]
        if name == "longformer":
            return abs(s - t) <= o["w"] or s < o["g"] or t < o["g"]
        if name == "sparse_strided":
            return abs(s - t) <= o["l"] or (s - t) % o["l"] == 0
        if name == "sparse_fixed":
            return t // o["l"] == s // o["l"] or s % o["l"] >= o["l"] - o["c"]
        if name in ("sparse_random", "bigbird"):
            return random_blocks(
                {"w": 1, "g": 1} | o, t // o["b"], s // o["b"], size[1], kv_length, causal
            )
        if name not in DENSE:
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


def random_blocks(o, i, j, S, kv_length, causal):
    """Returns whether block i of queries sees block j of keys."""
    if abs(i - j) <= o["w"] or j < o["g"] or (i < o["g"] and not causal):
        return True
    u = np.random.default_rng(o["seed"]).random((i + 1, o["r"]))[i].astype(np.float32)
    choice = min(i, -(-S // o["b"])) if causal else -(-kv_length // o["b"])
    return j in np.floor(u * np.float32(choice)).astype(int)


def select(name, o, seen, q, k, e, kv_length, causal, head, h):
    """Returns bool [T, S]: the keys that are seen, and selected by their content."""
    if name not in ("top_k", "block_select", "lsh"):
        return seen
    q, k, e = map(constant, (q, k, e))
    if name == "top_k":
        return selection.top_k(o, seen, e)
    if name == "block_select":
        return selection.block_select(o, seen, q, k, kv_length, causal)
    return selection.lsh(o, seen, q, k, kv_length, head, h)


def constant(x):
    """Returns an array in numpy, without a gradient."""
    return x if isinstance(x, np.ndarray) else np.asarray(jax.lax.stop_gradient(x))


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
    if name == "cosine":
        norms = [xp.sqrt((x * x).sum(1) + 1e-6) for x in (q, k)]
        return own["factor"] * (q @ k.T) / (norms[0][:, None] * norms[1][None])
    if name == "differential":  # two scores a pair: [2, T, S]
        half = d_k // 2
        return xp.stack([q[:, :half] @ k[:, :half].T, q[:, half:] @ k[:, half:].T]) / half**0.5
    if name == "cosformer":  # Qin et al. (2022), cos-based re-weighting
        t, s = xp.arange(len(q))[:, None], xp.arange(len(k))[None]
        pairs = xp.maximum(q, 0) @ xp.maximum(k, 0).T * xp.cos(np.pi / 2 * (t - s) / o["M"])
        return xp.where(pairs > 0, xp.log(xp.where(pairs > 0, pairs, 1)), -1e300)
    if name == "taylor":  # Arora et al. (2024), equation 4 of scaled products
        x = q @ k.T / np.sqrt(d_k)
        return xp.log(1 + x + x**2 / 2)
    if name == "softcap":
        return o["cap"] * xp.tanh(q @ k.T / d_k ** o.get("power", 0.5) / o["cap"])
    if name == "forgetting":  # Lin et al. (2025), pair by pair
        t, s, between = np.ogrid[: len(q), : len(k), : len(k)]
        log_f = -xp.log(1 + xp.exp(-k[:, -1]))
        decay = ((s < between) & (between <= t)) @ log_f  # [T, S]
        return q @ k[:, :-1].T / d_k ** o.get("power", 0.5) + decay
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


def predictive(xp, w, own, q, e, seen, length):
    """Returns local-p (Luong et al. 2015, equations 9 and 10) with a window w, deviation w / 2."""
    p = length / (1 + xp.exp(-(xp.tanh(q @ own["W_p"]) @ own["v_p"])))
    away = xp.arange(e.shape[1])[None] - p[:, None]
    a = softmax(xp, e, seen & (xp.abs(away) <= w))
    return a * xp.exp(-(away**2) / (2 * (w / 2) ** 2))


def coverage(xp, own, q, k, seen):
    """Returns the weights [T, S] of See et al. (2017), equations 1, 2, 10 and 11, without bias."""
    covered, rows = xp.zeros(len(k)), []
    for t in range(len(q)):
        hidden = k @ own["W_k"] + q[t : t + 1] @ own["W_q"] + covered[:, None] * own["w_c"][None]
        rows.append(softmax(xp, (xp.tanh(hidden) @ own["v"])[None], seen[t : t + 1])[0])
        covered = covered + rows[-1]
    return xp.stack(rows)


def weights(xp, name, o, own, e, seen):
    """Returns the weights [T, S] of one head."""
    if name in ("softmax1", "sink"):
        sink = own["logit"] if name == "sink" else 0.0
        a = xp.where(seen, xp.exp(e), 0)
        return a / (xp.exp(sink) + a.sum(axis=1, keepdims=True))
    if name in ("sparsemax", "entmax"):
        return entmax(xp, e, seen, 2 if name == "sparsemax" else 1.5)
    if name == "differential":
        x = own["factor"]
        one, two = (xp.exp((x[f"lambda_q{i}"] * x[f"lambda_k{i}"]).sum()) for i in (1, 2))
        return softmax(xp, e[0], seen) - (one - two + o["lambda_init"]) * softmax(xp, e[1], seen)
    return softmax(xp, e, seen)


def entmax(xp, e, seen, alpha):
    """Returns alpha-entmax (Peters et al. 2019): max((alpha - 1) e - tau, 0)^p.

    p is 1 / (alpha - 1), and tau is the root of sum - 1, by bisection. A last step of Newton's
    method gives it the gradient of the implicit function.
    """
    z, p = xp.where(seen, (alpha - 1) * e, -1e9), 1 / (alpha - 1)
    fixed = constant(z)

    def total(xp, z, tau, p):
        return xp.where(z > tau, xp.maximum(z - tau, 0) ** p, 0).sum(axis=1, keepdims=True)

    high = fixed.max(axis=1, keepdims=True)
    low = high - 1
    for _ in range(60):
        middle = (low + high) / 2
        above = total(np, fixed, middle, p) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    slope = p * total(np, fixed, low, p - 1)
    tau = low + (total(xp, z, low, p) - 1) / np.where(slope > 0, slope, 1)
    return xp.where(seen, xp.maximum(z - tau, 0) ** p, 0)


def rms_norm(xp, x):
    return x / xp.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)


def low_rank(xp, name, o, own, q, k, v, q_length, kv_length):
    """Returns [T, d_v] of attention without a pattern, in which padding has no weight."""
    if not q_length or not kv_length:
        return xp.zeros((len(q), v.shape[1]))
    scale, every = np.sqrt(q.shape[1]), np.ones((1, 1), bool)
    real_q, real_k = np.arange(len(q)) < q_length, np.arange(len(k)) < kv_length
    if name == "linformer":  # Wang et al. (2020), equation 7
        E, F = (own[x][: len(k)].T * real_k[None] for x in "EF")
        out = softmax(xp, q @ (E @ k).T / scale, every) @ (F @ v)
    else:  # Xiong et al. (2021), equations 14, 16 and 17
        x, y = segments(real_q, o["m"]) @ q, segments(real_k, o["m"]) @ k
        left, A = (softmax(xp, z @ y.T / scale, every) for z in (q, x))
        right = softmax(xp, x @ k.T / scale, real_k[None])
        out = left @ iterated_inverse(A) @ right @ v
    return xp.where(real_q[:, None], out, 0)


def segments(real, m):
    """Returns the matrix of the means over at most m segments of the real positions, in numpy."""
    n = real.sum()
    inside = real & (np.arange(len(real)) * m // n == np.arange(m)[:, None])  # [m, positions]
    counts = inside.sum(axis=1, keepdims=True)
    return (inside / np.maximum(counts, 1))[counts[:, 0] > 0]


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
