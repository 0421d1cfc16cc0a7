"""The base of the mechanisms that read a decaying memory. See `recurrence`."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse
from t2t_jax.attention.recurrence import Keys, advance, scan
from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding

_EPSILON = 1e-6
_LOG_ZERO = -128.0  # exp of it is zero in float32, and sums of small multiples of it are exact


class Memory(Mechanism):
    """Reads a memory, and divides the output by its root mean square.

    Some papers scale the normalised output by a learned vector. This is left out, as W_O can
    express it, even after an output gate. Their output gate, a SiLU, is left out, too;
    `attention_gate` adds a sigmoid in its place. An encoder sums what it reads in both directions,
    in which each position sees itself once (LION, Afzal et al. 2025).

    Attributes:
      chunk: the number of positions by which the memory advances; within a chunk, the weight of
        every pair is computed.
    """

    chunk: int

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
        queries, keys = self.queries(_wide(q)), self._known(k, v, visibility)
        out, _ = scan(queries, keys, self.chunk)
        if not visibility.causal:
            refuse(name, **{"the two sides of an encoder": keys.e})
            out += scan(queries, keys, self.chunk, backwards=True)[0]
        return zero_padding(out, visibility.q_lengths).astype(v.dtype)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The memory [B, h, m, d_v] after the known keys."""
        lengths = visibility.with_lengths(k, k).kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        keys = self._known(k, v, Visibility(kv_lengths=lengths))
        return {"memory": scan(jnp.zeros_like(keys.k), keys, self.chunk)[1]}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse(type(self).__name__, bias=bias)
        keys = self.keys(_wide(k), _wide(v))
        memory, out = advance(state["memory"], self.queries(_wide(q)), keys)
        return out.astype(v.dtype), {"memory": memory}

    def finish(self, out: Array) -> Array:
        """The output divided by its root mean square over the last axis; zero remains zero."""
        wide = _wide(out)
        norm = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + _EPSILON)
        return (wide * norm).astype(out.dtype)

    def _known(self, k: Array, v: Array, visibility: Visibility) -> Keys:
        """What the keys write; padding writes nothing, and the memory does not decay there."""
        present = length_mask(visibility.kv_lengths, k.shape[1])[:, :, None, None]
        keys = self.keys(_wide(k), _wide(v))
        keys = jax.tree.map(lambda x: jnp.where(present, x, 0), keys)
        if visibility.first is None:
            return keys
        # The memory is empty where a document begins.
        begins = (visibility.first == jnp.arange(k.shape[1])[None])[:, :, None, None]
        return keys._replace(log_a=jnp.where(begins, _LOG_ZERO, keys.log_a))


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
