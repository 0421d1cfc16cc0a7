"""Attention linear in length: phi(q) (sum of phi(k) v^T) divided by phi(q) (sum of phi(k)).

phi is elu + 1 (Katharopoulos et al. 2020), random features of the softmax kernel (FAVOR+,
Choromanski et al. 2021), or the features of cosFormer (Qin et al. 2022) or of Based (Arora et al.
2024).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import blocks, unblock
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, wide
from t2t_jax.attention.recurrence import Keys, scan
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.errors import UsageError
from t2t_jax.ops.tiles import on_gpu

_LOG_ZERO = -1e30  # stands for the logarithm of zero
_SMALLEST = 1e-30  # a query with a smaller denominator counts as one that sees no key


class Linear(Mechanism):
    """phi(x) = elu(x) + 1.

    Sums are in float32 or wider. They are over [v, 1], so that one matmul gives numerator and
    denominator. A common factor of each feature vector is kept as its logarithm, so that large
    features do not overflow.
    """

    chunk: int  # positions by which a causal sum advances; it computes all pairs within them

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        """phi(x) e^-a [B, L, h, m], float32 or wider, and a [B, L, h], of x [B, L, h, d_k]."""
        x = wide(x)
        # exp(x) for x below zero: elu(x) + 1 would round small values to zero.
        return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0))), jnp.zeros_like(x[..., 0])

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("linear", dropout=dropout, bias=bias)
        phi_q = self.features(q, jnp.arange(q.shape[1]))[0]
        phi_k, a, values = self._key_features(k, v, 0, visibility.kv_lengths)
        if visibility.causal:
            inputs, first = (phi_q, phi_k, a, values, self.chunk), visibility.first
            parallel = on_gpu() or first is not None
            sums = _decaying(*inputs, first) if parallel else _causal(*inputs)
        else:
            sums = jnp.einsum("bthm,bhmd->bthd", phi_q, _total(phi_k, a, values)[0])
        return zero_padding(_divide(sums), visibility.q_lengths).astype(v.dtype)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The sum [B, h, m, d_v + 1] over the known keys, and its log-factor [B, h]."""
        total, largest = _total(*self._key_features(k, v, 0, visibility.kv_lengths))
        return {"sum": total, "log": largest}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        total, largest = _total(*self._key_features(k, v, t, None))
        after = jnp.maximum(state["log"], largest)
        earlier = state["sum"] * jnp.exp(state["log"] - after)[..., None, None]
        own = total * jnp.exp(largest - after)[..., None, None]
        state = {"sum": earlier + own, "log": after}
        return self.step_cross(state, q, t, bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        refuse("linear", bias=bias)
        sums = jnp.einsum("bthm,bhmd->bthd", self.features(q, t[None])[0], state["sum"])
        return _divide(sums).astype(q.dtype)

    def _key_features(
        self, k: Array, v: Array, first: Array | int, lengths: Array | None
    ) -> tuple[Array, Array, Array]:
        """Features of keys from position `first` on, log-factors, and [v, 1]; padding is zero."""
        phi, a = self.features(k, first + jnp.arange(k.shape[1]))
        values = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1).astype(phi.dtype)
        if lengths is not None:
            present = jnp.arange(k.shape[1])[None, :, None] < lengths[:, None, None]
            phi, a = jnp.where(present[..., None], phi, 0), jnp.where(present, a, _LOG_ZERO)
        return phi, a, values


class Performer(Linear):
    """FAVOR+: phi(x) = exp(W x' - |x'|^2 / 2) / sqrt(m) with x' = x / d_k^(1/4).

    The m rows of W are orthogonal in blocks of d_k, with the lengths of independent Gaussian rows.
    They are drawn once for each head from default_rng(seed) and are not trained; Choromanski et al.
    (2021) also redraw them during training.
    """

    m: int
    seed: int

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        h, d_k = x.shape[2:]
        x = wide(x) / d_k**0.25
        W = jnp.asarray(projections(h, self.m, d_k, self.seed), x.dtype)
        log = jnp.einsum("bthd,hmd->bthm", x, W) - (x * x).sum(-1, keepdims=True) / 2
        a = jax.lax.stop_gradient(log.max(-1))
        return jnp.exp(log - a[..., None]) / self.m**0.5, a


class Cosformer(Linear):
    """phi(x) = relu(x) [cos(pi i / 2M), sin(pi i / 2M)] at position i.

    The weight of a pair is thus relu(q) relu(k) cos(pi (t - s) / 2M), the cos-based re-weighting of
    Qin et al. (2022). It falls with the distance, and would be negative at a distance above M. In
    their code, M is the length of the sequence.
    """

    M: int  # the largest number of positions; a longer sequence, or state, raises a UsageError

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        if len(positions) > self.M:
            raise UsageError(
                f"cosformer:M={self.M} has weights for {self.M} positions, and a sequence has "
                f"{len(positions)}: shorten it, or train with M={len(positions)} or more."
            )
        x = jax.nn.relu(wide(x))
        angle = (jnp.pi / 2 / self.M * positions).astype(x.dtype)[None, :, None, None]
        phi = jnp.concatenate([x * jnp.cos(angle), x * jnp.sin(angle)], -1)
        return phi, jnp.zeros_like(x[..., 0])


class Taylor(Linear):
    """phi(q) phi(k) = 1 + x + x^2 / 2 with x = q k^T / sqrt(d_k), the Taylor series of exp(x).

    It is the linear attention of Based (Arora et al. 2024, section 4.1), with its denominator.
    Their equation 4 omits the sqrt, which their code has. As there are 1 + d_k + d_k^2 features,
    Based projects queries and keys to 16 elements: set d_k=16. In Based, it alternates with layers
    of softmax attention in a narrow window, the mechanism `local`.
    """

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        x = wide(x) / x.shape[-1] ** 0.25
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1)
        phi = jnp.concatenate([jnp.ones_like(x[..., :1]), x, squares / 2**0.5], -1)
        return phi, jnp.zeros_like(x[..., 0])


def projections(h: int, m: int, d_k: int, seed: int) -> np.ndarray:
    """Rows [h, m, d_k] of FAVOR+ (Choromanski et al. 2021, section 2.4)."""
    rng = np.random.default_rng(seed)
    blocks = -(-m // d_k)
    Q, R = np.linalg.qr(rng.normal(size=(h, blocks, d_k, d_k)))
    # QR chooses the signs of Q's columns; unless R's signs undo this, directions are not uniform.
    signs = np.sign(np.diagonal(R, axis1=2, axis2=3))
    directions = (Q * signs[:, :, None]).swapaxes(2, 3)
    lengths = np.linalg.norm(rng.normal(size=(h, m, d_k)), axis=-1, keepdims=True)
    return directions.reshape(h, blocks * d_k, d_k)[:, :m] * lengths


def _total(phi: Array, a: Array, values: Array) -> tuple[Array, Array]:
    """The sum over S of phi [B, S, h, m] times values [B, S, h, d], divided by e^largest.

    Returns the sum [B, h, m, d], and `largest` [B, h], the maximum of a [B, S, h] over S.
    """
    largest = a.max(1)
    phi *= jnp.exp(a - largest[:, None])[..., None]
    return jnp.einsum("bshm,bshd->bhmd", phi, values), largest


def _causal(phi_q: Array, phi_k: Array, a: Array, values: Array, chunk: int) -> Array:
    """The sum over s <= t of (phi_q . phi_k) e^a values, up to a factor at each t: [B, T, h, d]."""
    B, T, h, m = phi_q.shape
    n = -(-T // chunk)
    absent = jnp.arange(n * chunk)[None, :, None] >= a.shape[1]
    chunks = [blocks(x, chunk, n) for x in (phi_q, phi_k, a, values)]
    chunks[2] = jnp.where(absent.reshape(1, n, chunk, 1), _LOG_ZERO, chunks[2])
    past = jnp.tri(chunk, dtype=bool)[None, None]  # [1, 1, q, k]

    def advance(carry: State, x: list[Array]) -> tuple[State, Array]:
        phi_q, phi_k, a, values = x
        # largest [B, C, h]: the maximum of a over all keys that each position sees
        largest = jnp.maximum(jax.lax.cummax(a, axis=1), carry["log"][:, None])
        old = jnp.exp(carry["log"][:, None] - largest)
        gap = jnp.where(past, (a[:, None] - largest[:, :, None]).transpose(0, 3, 1, 2), -jnp.inf)
        scores = jnp.einsum("bqhm,bkhm->bhqk", phi_q, phi_k) * jnp.exp(gap)
        out = jnp.einsum("bqhm,bhmd->bqhd", phi_q, carry["sum"]) * old[..., None]
        out += jnp.einsum("bhqk,bkhd->bqhd", scores, values)
        last = largest[:, -1]
        phi_k *= jnp.exp(a - last[:, None])[..., None]
        added = jnp.einsum("bkhm,bkhd->bhmd", phi_k, values)
        kept = carry["sum"] * jnp.exp(carry["log"] - last)[..., None, None]
        return {"sum": kept + added, "log": last}, out

    empty = {
        "sum": jnp.zeros((B, h, m, values.shape[-1]), values.dtype),
        "log": jnp.full((B, h), _LOG_ZERO, values.dtype),
    }
    _, out = jax.lax.scan(advance, empty, [x.swapaxes(0, 1) for x in chunks])
    return unblock(out.swapaxes(0, 1), T)


def _decaying(
    phi_q: Array, phi_k: Array, a: Array, values: Array, chunk: int, first: Array | None
) -> Array:
    """`_causal` by the recurrence of memories, which computes all chunks at once on a GPU.

    The memory decays at each position where the maximum of a grows, and by as much. `first`, int32
    [B, T], is the first s of each t, where its document begins; None: 0.

    Gain: compiled for an H100, performer has 69 kernels instead of 2,655 at n = 4,096
    (`experiments/tools/programs.py`).
    """
    largest = jax.lax.stop_gradient(jax.lax.cummax(a, axis=1))  # a common factor of each output
    if first is not None:
        begins = jnp.broadcast_to((first == jnp.arange(a.shape[1])[None])[:, :, None], a.shape)
        largest = jax.lax.stop_gradient(_largest(begins, a))
    before = jnp.pad(largest, ((0, 0), (1, 0), (0, 0)), constant_values=_LOG_ZERO)[:, :-1]
    decay = before - largest
    if first is not None:
        decay = jnp.where(begins, _LOG_ZERO, decay)
    keys = Keys(phi_k * jnp.exp(a - largest)[..., None], values, decay[..., None])
    return scan(phi_q, keys, chunk)[0]


def _largest(begins: Array, a: Array) -> Array:
    """The maximum of a [B, T, h] since the last position that begins a document."""

    def join(x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
        return x[0] | y[0], jnp.where(y[0], y[1], jnp.maximum(x[1], y[1]))

    return jax.lax.associative_scan(join, (begins, a), axis=1)[1]


def _divide(sums: Array) -> Array:
    """Numerators [..., d_v] over the denominator, the last element; zero where that is zero."""
    positive = sums[..., -1:] > _SMALLEST
    # Scaled to a denominator of one first: the derivative of a quotient squares the denominator,
    # which can underflow.
    sums = sums / jax.lax.stop_gradient(jnp.where(positive, sums[..., -1:], 1))
    return jnp.where(positive, sums[..., :-1] / jnp.where(positive, sums[..., -1:], 1), 0)
