"""Recurrent sequence to sequence, with and without attention. See `t2t_jax.models`.

Without attention (Sutskever et al. 2014), the decoder starts from the last states of the encoder
and sees nothing else of the source. Attention before the output (Luong et al. 2015) or within the
recurrence (Bahdanau et al. 2015) is any mechanism of `t2t_jax.attention`, with one head over the
encoder states.

Departures from these papers: every decoder starts from the last states of the encoder, in both
directions if it has two; the source is not reversed (Sutskever et al.); the readout does not enter
the next step (Luong et al., input feeding); the softmax reads the state, without a maxout layer
(Bahdanau et al.); source, target and softmax share one embedding.
"""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from t2t_jax.attention import build
from t2t_jax.attention.choice import entry
from t2t_jax.attention.visibility import Visibility, length_mask
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, add_bias, lengths_of, parameter
from t2t_jax.parts import CELLS, implementation

# The hidden state [B, width], and the cell of an LSTM. What sums over positions is float32 or
# wider: the cell of an LSTM, the hidden state of a GRU.
Carry = tuple[Array, ...]
# The carry of each layer, and what a step changes of the attention's state.
State = tuple[list[Carry], dict[str, Array]]


@struct.dataclass
class Encoded:
    """The encoder states [B, S, d_model], lengths int32 [B], the last carry of each layer."""

    output: Array
    lengths: Array
    last: list[Carry]


class Recurrent(Model):
    """Encoder and decoder of N layers of width d_model."""

    def setup(self) -> None:
        c, d = self.c, self.c.d_model
        ways = 2 if c.encoder_direction == "both" else 1
        d_in = 2 * d if c.attention_feeding == "input" else d

        def cell(name: str, d_in: int, width: int) -> LSTM:
            cls = implementation(CELLS[c.cell].where, "t2t_jax.models")
            return cls(d_in, width, self.dtype, name=name)

        self.embedding = Embedding(self.V, self.c, self.dtype)
        self.encoder = [
            [cell(f"encoder_{i}_{way}", d, d // ways) for way in ("forward", "backward")[:ways]]
            for i in range(c.N)
        ]
        self.decoder = [cell(f"decoder_{i}", d if i else d_in, d) for i in range(c.N)]
        if c.attention_feeding != "none":
            self.attention = build(c.cross_attention)
            self.readout = Readout(self.dtype)

    def encode(self, source: Array, P_drop: Array | None = None) -> Encoded:
        n = lengths_of(source)
        present = length_mask(n, source.shape[1])
        x, last = self.drop(self.embedding(source), P_drop), []
        for ways in self.encoder:
            runs = [cell.run(x, None, present, back == 1) for back, cell in enumerate(ways)]
            states, carries = zip(*runs, strict=True)
            x = self.drop(jnp.concatenate(states, -1), P_drop)
            last.append(tuple(jnp.concatenate(parts, -1) for parts in zip(*carries, strict=True)))
        return Encoded(x, n, last)

    def features(self, encoded: Encoded, target_in: Array, P_drop: Array | None = None) -> Array:
        x = self.drop(self.embedding(target_in), P_drop)
        if self.c.attention_feeding == "input":  # the query is the previous state
            # The scan sums the gradients of the encoder states over the positions.
            wide = encoded.output.astype(_wide(x.dtype))
            memory, state = self.start(replace(encoded, output=wide), x.shape[1])
            steps = nn.scan(
                Recurrent._position,
                variable_axes={"losses": 0},
                variable_broadcast="params",
                split_rngs={"params": False, "dropout": True},
                in_axes=(nn.broadcast, 1, 0, nn.broadcast),
                out_axes=1,
            )
            _, x = steps(self, state, memory, x, jnp.arange(x.shape[1]), P_drop)
            return x
        for cell, carry in zip(self.decoder, encoded.last, strict=True):
            x = self.drop(cell.run(x, carry)[0], P_drop)
        if self.c.attention_feeding == "output":
            q, k = x[:, :, None], encoded.output[:, :, None]
            visibility = Visibility(lengths_of(target_in), encoded.lengths)
            x = self.readout(x, self.attention(q, k, k, visibility)[:, :, 0])
        return x

    def start(self, encoded: Encoded, capacity: int) -> tuple[Any, Any]:
        if self.c.attention_feeding == "none":
            return {}, (encoded.last, {})
        k = encoded.output[:, :, None]
        memory = self.attention.start(k, k, Visibility(kv_lengths=encoded.lengths))
        carried = {name: memory.pop(name) for name in entry(self.c.cross_attention).changing}
        return memory, (encoded.last, carried)

    def step(self, memory: Any, state: Any, tokens: Array, t: Array) -> tuple[Array, Any]:
        state, x = self._position(state, memory, self.embedding(tokens), t, None)
        return self.embedding.logits(x[:, None])[:, 0], state

    def _position(
        self, state: State, memory: Any, x: Array, t: Array, P_drop: Array | None
    ) -> tuple[State, Array]:
        """The embedding x [B, d_model] at t -> the next state, and the input of the softmax."""
        carries, carried = state

        def attend(q: Array) -> tuple[Array, dict[str, Array]]:
            out, after = self.attention.step(memory | carried, q[:, None, None], t)
            return out[:, 0, 0].astype(q.dtype), {name: after[name] for name in carried}

        value, next_carries = None, []
        if self.c.attention_feeding == "input":
            value, carried = attend(carries[-1][0].astype(x.dtype))
            x = jnp.concatenate([x, value], -1)
        for cell, carry in zip(self.decoder, carries, strict=True):
            carry = cell.step(x, carry)
            x = self.drop(carry[0].astype(x.dtype), P_drop)
            next_carries.append(carry)
        if self.c.attention_feeding == "output":
            value, carried = attend(x)
        return (next_carries, carried), x if value is None else self.readout(x, value)


class Readout(nn.Module):
    """tanh(W [state; attention value]) (Luong et al. 2015, equation 5)."""

    dtype: Any

    @nn.compact
    def __call__(self, x: Array, value: Array) -> Array:
        d = x.shape[-1]
        init = nn.initializers.glorot_uniform()
        W = parameter(self, "W", (2 * d, d), ("d_hidden", "d_model"), init, self.dtype)
        return jnp.tanh(jnp.concatenate([x, value], -1) @ W)


class LSTM(nn.Module):
    """A layer in one direction, with z = x W + b from the input and u = h U from the last state.

    i, f, g, o = z + u;  c = sigmoid(f) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
    (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000, its bias 1 at
    first). Other cells are subclasses; those with other matrices than W and U have `setup`,
    `project` and `advance` of their own.
    """

    d_in: int
    width: int
    dtype: Any
    gates = 4

    def setup(self) -> None:
        gates, width = self.gates, self.width
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", 0, 2, 1)
        axes = ("d_hidden", "gates", "d_model")
        # U and b are float32, as their gradients are summed position by position; W is not.
        self.W = parameter(self, "W", (self.d_in, gates, width), axes, init, self.dtype)
        self.U = parameter(self, "U", (width, gates, width), axes, init, jnp.float32)
        self.b = parameter(self, "b", (gates, width), axes[1:], self.first_b, jnp.float32)

    @staticmethod
    def first_b(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return jnp.zeros(shape, dtype).at[1].set(1)

    @staticmethod
    def before(h: Array, wide: Array) -> Carry:
        """The carry before the first position, from zeros [B, width] in two types."""
        return h, wide

    def run(
        self, x: Array, carry: Carry | None, present: Array | None = None, backward: bool = False
    ) -> tuple[Array, Carry]:
        """x [B, L, d_in] -> the hidden states [B, L, width], and the last carry.

        Args:
          carry: the carry before the first position; None: zeros.
          present: bool [B, L], false on padding, where the state does not change.
          backward: whether to read from the last position to the first.
        """
        z = self.project(x).swapaxes(0, 1)
        h = jnp.zeros((x.shape[0], self.width), z.dtype)
        first = carry or self.before(h, h.astype(_wide(h.dtype)))
        keep = jnp.ones(z.shape[:2], bool) if present is None else present.T

        def advance(carry: Carry, inputs: tuple[Array, Array]) -> tuple[Carry, Array]:
            z, keep = inputs
            new = self.advance(z, carry)
            kept = tuple(jnp.where(keep[:, None], a, b) for a, b in zip(new, carry, strict=True))
            return kept, kept[0].astype(z.dtype)

        last, states = jax.lax.scan(advance, first, (z, keep), reverse=backward)
        return states.swapaxes(0, 1), last

    def step(self, x: Array, carry: Carry) -> Carry:
        """One position: x [B, d_in]."""
        return self.advance(self.project(x), carry)

    def project(self, x: Array) -> Array:
        """x [..., d_in] -> z [..., gates, width]."""
        return add_bias(jnp.einsum("...d,dgw->...gw", x, self.W), self.b)

    def advance(self, z: Array, carry: Carry) -> Carry:
        """The carry after a position; z [B, gates, width]."""
        u = jnp.einsum("bd,dgw->bgw", carry[0].astype(z.dtype), self.U.astype(z.dtype))
        # In bfloat16, a gate above 0.998 is 1, and nothing is ever forgotten.
        return self.recurrence(z.astype(_wide(z.dtype)), u.astype(_wide(z.dtype)), carry)

    def recurrence(self, z: Array, u: Array, carry: Carry) -> Carry:
        h, c = carry
        i, f, g, o = ((z + u)[:, gate] for gate in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c)).astype(h.dtype), c


class GRU(LSTM):
    """r, a = sigmoid(z + u);  n = tanh(z_n + r u_n);  h = (1 - a) n + a h (Cho et al. 2014).

    The reset gate is after the matmul, as in cuDNN.
    """

    gates = 3
    first_b = staticmethod(nn.initializers.zeros)

    @staticmethod
    def before(h: Array, wide: Array) -> Carry:
        return (wide,)

    def recurrence(self, z: Array, u: Array, carry: Carry) -> Carry:
        r, a = (jax.nn.sigmoid(z[:, gate] + u[:, gate]) for gate in range(2))
        n = jnp.tanh(z[:, 2] + r * u[:, 2])
        return ((1 - a) * n + a * carry[0],)


def _wide(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)
