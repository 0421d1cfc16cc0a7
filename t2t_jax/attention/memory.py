"""Linear attention with decay, and with the delta rule: mechanisms that read a decaying memory.

See `recurrence` for the memory.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, wide
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.recurrence import LOG_ZERO, Keys, advance, scan
from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding

_EPSILON = 1e-6


class Memory(Mechanism):
    """Reads a memory, and divides the output by its root mean square.

    Some papers scale the normalised output by a learned vector. This is left out, as W_O can
    express it, even after an output gate. Their output gate, a SiLU, is left out, too;
    `attention_gate` adds a sigmoid in its place, and `decoder_conv` adds their short convolutions,
    without an activation. An encoder sums what it reads in both directions, in which each position
    sees itself once (LION, Afzal et al. 2025).
    """

    chunk: int  # positions by which the memory advances, which computes all pairs within them

    def queries(self, q: Array) -> Array:
        """The queries [B, T, h, m] that read the memory, of q [B, T, h, d_k] in float32 or wider.

        A query of zeros must remain zero.
        """
        return q

    def keys(self, k: Array, v: Array) -> Keys:
        """What keys [B, S, h, d_k + gates] and values [B, S, h, d_v] write, in float32 or wider."""
        raise NotImplementedError

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        name = type(self).__name__
        refuse(name, dropout=dropout, bias=bias)
        queries, keys = self.queries(wide(q)), self._known(k, v, visibility)
        out, _ = scan(queries, keys, self.chunk)
        if not visibility.causal:
            refuse(name, **{"the two sides of an encoder": keys.e})
            out += scan(queries, keys, self.chunk, backwards=True)[0]
        return zero_padding(out, visibility.q_lengths).astype(v.dtype)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The memory [B, h, m, d_v] after the known keys."""
        keys = self._known(k, v, visibility)
        return {"memory": scan(jnp.zeros_like(keys.k), keys, self.chunk)[1]}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse(type(self).__name__, bias=bias)
        keys = self.keys(wide(k), wide(v))
        memory, out = advance(state["memory"], self.queries(wide(q)), keys)
        return out.astype(v.dtype), {"memory": memory}

    def finish(self, out: Array) -> Array:
        """The output divided by its root mean square over the last axis; zero remains zero."""
        x = wide(out)
        norm = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + _EPSILON)
        return (x * norm).astype(out.dtype)

    def _known(self, k: Array, v: Array, visibility: Visibility) -> Keys:
        """What the keys write; padding writes nothing, and the memory does not decay there."""
        present = length_mask(visibility.kv_lengths, k.shape[1])[:, :, None, None]
        keys = self.keys(wide(k), wide(v))
        keys = jax.tree.map(lambda x: jnp.where(present, x, 0), keys)
        if visibility.first is None:
            return keys
        # The memory is empty where a document begins.
        begins = (visibility.first == jnp.arange(k.shape[1])[None])[:, :, None, None]
        return keys._replace(log_a=jnp.where(begins, LOG_ZERO, keys.log_a))


class Retention(Memory):
    """RetNet (Sun et al. 2023, equations 6 and 8): head i = 0 .. h - 1 decays by 1 - 2^(-5 - i).

    Their rotation of queries and keys is positions=rotary. They also divide the scores by sums,
    which changes nothing where the output is normalised. Their norm is a group norm; as in their
    code, the mean is not subtracted.
    """

    def queries(self, q: Array) -> Array:
        return q / q.shape[-1] ** 0.5

    def keys(self, k: Array, v: Array) -> Keys:
        log_a = jnp.log1p(-(2.0 ** (-5 - jnp.arange(k.shape[2], dtype=k.dtype))))
        return Keys(k, v, jnp.broadcast_to(log_a[None, None, :, None], (*k.shape[:3], 1)))


class GatedLinear(Memory):
    """Gated linear attention (Yang et al. 2024, equation 3 and section 4.4).

    Each feature of a key has a decay of its own, a = sigmoid(W x + b)^(1/16). Their W has
    rank 16, this one has full rank; and their output is normalised by a layer norm.
    """

    def setup(self) -> None:
        self.b = PerHead(("d_k",), jax.nn.initializers.zeros)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate = jnp.split(k, 2, axis=-1)
        b = self.b(k, k.shape[-1])
        return Keys(k, v, jax.nn.log_sigmoid(gate + b[None, None]) / 16)


class Mamba2(Memory):
    """Mamba-2 (Dao and Gu 2024, section 2.4): queries are C, keys are B, and values are x.

    The decay is exp(-Delta exp(A_log)), and the value is Delta x with Delta = softplus(W x + b). In
    Mamba-2, heads share B and C, and one norm follows the output gate; here each head has its own B
    and C, and its own norm. The short convolution with its SiLU and the skip connection D are left
    out.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), _log_rate), PerHead((), _log_time)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate = k[..., :-1], k[..., -1:]
        log_a, step = _decay_and_step(gate, self.A_log(k), self.b(k)[None, None, :, None])
        return Keys(k, step * v, log_a)


def _log_rate(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """The logarithms of decay rates that are uniform from 1 to 16, as in the code of Mamba-2."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 1, 16))


def _log_time(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """b such that the time step softplus(b) is log-uniform from 0.001 to 0.1, as in Mamba-2."""
    low, high = jnp.log(jnp.asarray([0.001, 0.1], dtype))
    time = jnp.exp(jax.random.uniform(key, shape, dtype, low, high))
    return time + jnp.log(-jnp.expm1(-time))


def _decay_and_step(gate: Array, A_log: Array, b: Array) -> tuple[Array, Array]:
    """-Delta exp(A_log) and Delta = softplus(gate + b): gate and b [B, S, h, m], A_log [h]."""
    step = jax.nn.softplus(gate + b)
    return -step * jnp.exp(A_log)[None, None, :, None], step


class Delta(Memory):
    """DeltaNet: S_t = (I - beta k k^T) S_{t-1} + beta k v^T (Yang et al. 2024, section 2.2).

    The paper is "Parallelizing Linear Transformers with the Delta Rule"; the rule is from Schlag
    et al. (2021). Queries and keys are SiLU(x) / |SiLU(x)|, and beta = sigmoid(W x). The short
    convolution is left out, and so is the SiLU of the values that follows it.
    """

    def queries(self, q: Array) -> Array:
        return _unit(q)

    def keys(self, k: Array, v: Array) -> Keys:
        k, beta = _unit(k[..., :-1]), jax.nn.sigmoid(k[..., -1:])
        return Keys(k, beta * v, jnp.zeros_like(beta), beta * k)


class GatedDelta(Delta):
    """Gated DeltaNet: S_t = alpha_t (I - beta k k^T) S_{t-1} + beta k v^T.

    This is equation 10 of Yang et al. (2025), "Gated Delta Networks", with S transposed. The decay
    alpha is the decay of Mamba-2, exp(-exp(A_log) softplus(W x + b)). The rest is as in `Delta`.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), _log_rate), PerHead((), _log_time)

    def keys(self, k: Array, v: Array) -> Keys:
        k, gate, beta = _unit(k[..., :-2]), k[..., -2:-1], jax.nn.sigmoid(k[..., -1:])
        log_a, _ = _decay_and_step(gate, self.A_log(k), self.b(k)[None, None, :, None])
        return Keys(k, beta * v, log_a, beta * k)


class KimiDelta(Delta):
    """Kimi delta attention: S_t = (I - beta k k^T) diag(alpha_t) S_{t-1} + beta k v^T.

    This is equation 1 of Kimi Team (2025), "Kimi Linear": Gated DeltaNet with a decay for each
    feature of a key. Their W has the rank of a head's width, this one has full rank.
    """

    def setup(self) -> None:
        self.A_log, self.b = PerHead((), _log_rate), PerHead(("d_k",), _log_time)

    def keys(self, k: Array, v: Array) -> Keys:
        beta = jax.nn.sigmoid(k[..., -1:])
        k, gate = jnp.split(k[..., :-1], 2, axis=-1)
        log_a, _ = _decay_and_step(gate, self.A_log(k), self.b(k, k.shape[-1])[None, None])
        k = _unit(k)
        return Keys(k, beta * v, log_a, beta * k)


def _unit(x: Array) -> Array:
    """SiLU(x) / |SiLU(x)|; zero remains zero."""
    x = jax.nn.silu(x)
    return x * jax.lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-6)
