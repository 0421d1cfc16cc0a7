"""Attention linear in length: phi(q) (sum of phi(k) v^T) over phi(q) (sum of phi(k)).

phi is elu + 1 (Katharopoulos et al. 2020), or random features of the softmax kernel (FAVOR+,
Choromanski et al. 2021).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from t2t_jax.attention.blocks import blocks, unblock
from t2t_jax.attention.mechanism import Bias, Drop, Mechanism, State, refuse
from t2t_jax.attention.visibility import Visibility, blank
from t2t_jax.attention.work import CAUSAL_CHUNK

_NOTHING = -1e30  # the logarithm of a sum of nothing
_LEAST = 1e-30  # denominators below it, of features far apart, are as of a query that sees nothing


class Linear(Mechanism):
    """phi(x) = elu(x) + 1.

    Sums are float32 or wider, and over [v, 1]: numerator and denominator at once. Features come
    with the logarithm of a factor, taken out of the sums where features may be of any size.
    """

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        """phi(x) e^-a [B, L, h, m] in float32 or wider, and a [B, L, h].

        Args:
          x: [B, L, h, d_k] at positions, int32 [L].
        """
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        # exp below zero, for elu + 1 rounds what is small to nothing.
        return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0))), jnp.zeros_like(x[..., 0])

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        refuse("linear", drop=drop, bias=bias)
        phi_q = self.features(q, jnp.arange(q.shape[1]))[0]
        phi_k, a, values = self._known(k, v, 0, visibility.kv_lengths)
        if visibility.causal:
            sums = _causal(phi_q, phi_k, a, values)
        else:
            sums = jnp.einsum("bthm,bhmd->bthd", phi_q, _total(phi_k, a, values)[0])
        return blank(_divide(sums), visibility.q_lengths).astype(v.dtype)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The sum [B, h, m, d_v + 1] over the known keys, and its factor's logarithm [B, h]."""
        lengths = visibility.bounded(k, k).kv_lengths
        known = self._known(blank(k, lengths), blank(v, lengths), 0, lengths)
        total, largest = _total(*known)
        return {"sum": total, "log": largest}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        total, largest = _total(*self._known(k, v, t, None))
        after = jnp.maximum(state["log"], largest)
        shrunk = [
            x * jnp.exp(log - after)[..., None, None]
            for x, log in ((state["sum"], state["log"]), (total, largest))
        ]
        state = {"sum": shrunk[0] + shrunk[1], "log": after}
        return self.step_cross(state, q, t, bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        refuse("linear", bias=bias)
        sums = jnp.einsum("bthm,bhmd->bthd", self.features(q, t[None])[0], state["sum"])
        return _divide(sums).astype(q.dtype)

    def _known(
        self, k: Array, v: Array, first: Array | int, lengths: Array | None
    ) -> tuple[Array, Array, Array]:
        """Features of keys from position first on, their factors, and [v, 1]; zeros for pads."""
        phi, a = self.features(k, first + jnp.arange(k.shape[1]))
        values = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1).astype(phi.dtype)
        if lengths is not None:
            real = jnp.arange(k.shape[1])[None, :, None] < lengths[:, None, None]
            phi, a = jnp.where(real[..., None], phi, 0), jnp.where(real, a, _NOTHING)
        return phi, a, values


class Performer(Linear):
    """FAVOR+: phi(x) = exp(W x' - |x'|^2 / 2) / sqrt(m) with x' = x / d_k^(1/4).

    The m rows of W are drawn once for each head from default_rng(seed): orthogonal in blocks of
    d_k, with the lengths of independent Gaussian rows. They are no parameters.
    """

    m: int
    seed: int

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        h, d_k = x.shape[2:]
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32)) / d_k**0.25
        W = jnp.asarray(projections(h, self.m, d_k, self.seed), x.dtype)
        log = jnp.einsum("bthd,hmd->bthm", x, W) - (x * x).sum(-1, keepdims=True) / 2
        a = jax.lax.stop_gradient(log.max(-1))
        return jnp.exp(log - a[..., None]) / self.m**0.5, a


def projections(h: int, m: int, d_k: int, seed: int) -> np.ndarray:
    """Rows [h, m, d_k] of FAVOR+ (Choromanski et al. 2021, section 2.4)."""
    rng = np.random.default_rng(seed)
    blocks = -(-m // d_k)
    Q, R = np.linalg.qr(rng.normal(size=(h, blocks, d_k, d_k)))
    # QR fixes its columns' signs by convention; without these, directions are not uniform.
    signs = np.sign(np.diagonal(R, axis1=2, axis2=3))
    directions = (Q * signs[:, :, None]).swapaxes(2, 3)
    lengths = np.linalg.norm(rng.normal(size=(h, m, d_k)), axis=-1, keepdims=True)
    return directions.reshape(h, blocks * d_k, d_k)[:, :m] * lengths


def _total(phi: Array, a: Array, values: Array) -> tuple[Array, Array]:
    """Sum of phi [B, S, h, m] times values [B, S, h, d] over S, without a factor e^largest.

    Returns [B, h, m, d] and the largest of a [B, S, h]: [B, h].
    """
    largest = a.max(1)
    phi *= jnp.exp(a - largest[:, None])[..., None]
    return jnp.einsum("bshm,bshd->bhmd", phi, values), largest


def _causal(phi_q: Array, phi_k: Array, a: Array, values: Array) -> Array:
    """For each t the sum over s <= t of (phi_q . phi_k) e^a values, up to a factor: [B, T, h, d].

    A scan over chunks carries the sum so far; within a chunk the pairs are laid out.
    """
    B, T, h, m = phi_q.shape
    n = -(-T // CAUSAL_CHUNK)
    absent = jnp.arange(n * CAUSAL_CHUNK)[None, :, None] >= a.shape[1]
    chunks = [blocks(x, CAUSAL_CHUNK, n) for x in (phi_q, phi_k, a, values)]
    chunks[2] = jnp.where(absent.reshape(1, n, CAUSAL_CHUNK, 1), _NOTHING, chunks[2])
    past = jnp.tri(CAUSAL_CHUNK, dtype=bool)[None, None]  # [1, 1, q, k]

    def move(carry: State, x: list[Array]) -> tuple[State, Array]:
        phi_q, phi_k, a, values = x
        # e^-largest at each position, where largest is that of all keys seen from there
        largest = jnp.maximum(jax.lax.cummax(a, axis=1), carry["log"][:, None])  # [B, C, h]
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

    nothing = {
        "sum": jnp.zeros((B, h, m, values.shape[-1]), values.dtype),
        "log": jnp.full((B, h), _NOTHING, values.dtype),
    }
    _, out = jax.lax.scan(move, nothing, [x.swapaxes(0, 1) for x in chunks])
    return unblock(out.swapaxes(0, 1), T)


def _divide(sums: Array) -> Array:
    """Numerators [..., d_v] over the denominator in the last place; zeros where it is none."""
    some = sums[..., -1:] > _LEAST
    # The quotient's derivative squares the denominator, which is of size one by then.
    sums = sums / jax.lax.stop_gradient(jnp.where(some, sums[..., -1:], 1))
    return jnp.where(some, sums[..., :-1] / jnp.where(some, sums[..., -1:], 1), 0)
