"""Native sparse attention: compressed blocks, selected blocks and a window (Yuan et al. 2025)."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks
from t2t_jax.attention.dense import scaled_products, softmax
from t2t_jax.attention.gathered import BlockSelect, attend_listed
from t2t_jax.attention.mechanism import Bias, Dropout, State, refuse, wide, write_at
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.patterns import Pattern
from t2t_jax.attention.reach import local
from t2t_jax.attention.visibility import Visibility


class NativeSparse(BlockSelect):
    """The sum of three attentions, each times a sigmoid gate of the query (equation 5).

    - Over the blocks of b keys that end by the query, each compressed to one key and one value
      (equation 7): the sum of W_j k_j over its keys j = 1 .. b, and likewise for values.
    - Over the query's own block, and the n earlier ones that have the highest weights in the first
      (equations 8 to 12 with l = d = l' = b). No gradient passes through the selection.
    - Over the keys within distance w.

    Differences from Yuan et al.: The three share keys and values. The compression is linear, in
    place of an MLP with positions. Each head selects its own blocks, as with groups of one head,
    and the first block is not always selected.
    """

    weighted = False  # W_j mixes the features of a value

    w: int

    def setup(self) -> None:
        self.W_k, self.W_v = PerHead(("d_hidden", "d_k")), PerHead(("d_hidden", "d_v"))
        self.window = Pattern(local(self.w))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("native_sparse", dropout=dropout, bias=bias)
        k, gates = jnp.split(k, [q.shape[-1]], -1)
        window = self.window.attend(q, k, v, visibility, None, None)
        known = {"k": k, "v": v} | self._compressed(k, v)
        return self._gated(q, gates, known, visibility, jnp.arange(q.shape[1]), window)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of all positions, and the compressed ones of all blocks."""
        k = k[..., :-3]
        return {"k": k, "v": v} | self._compressed(k, v)

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse("native_sparse", bias=bias)
        k, gates = jnp.split(k, [q.shape[-1]], -1)
        after = {n: write_at(state[n], x, t) for n, x in (("k", k), ("v", v))}
        # A block is the sum of its keys, so that each step adds one.
        for name, x, W in (("keys", k, self.W_k), ("values", v, self.W_v)):
            new = jnp.einsum("bhd,hde->bhe", wide(x[:, 0]), self._matrices(W, x)[:, t % self.b])
            after[name] = state[name].at[:, t // self.b].add(new)
        s = t - jnp.arange(self.w + 1)[None, None, None]
        s = jnp.broadcast_to(s, (*q.shape[:3], self.w + 1))
        causal = Visibility(causal=True)
        window = attend_listed(q, after["k"], after["v"], s, causal, self.tile, t)
        return self._gated(q, gates, after, causal, t[None], window), after

    def _matrices(self, W: PerHead, x: Array) -> Array:
        """The matrices [h, b, d, d] of the positions in a block of x [B, L, h, d]."""
        d = x.shape[-1]
        return W(wide(x), self.b * d, d).reshape(-1, self.b, d, d)

    def _compressed(self, k: Array, v: Array) -> State:
        m = -(-k.shape[1] // self.b)
        return {
            name: jnp.einsum("bmjhd,hjde->bmhe", blocks(wide(x), self.b, m), self._matrices(W, x))
            for name, x, W in (("keys", k, self.W_k), ("values", v, self.W_v))
        }

    def _gated(
        self, q: Array, gates: Array, known: State, visibility: Visibility, t: Array, window: Array
    ) -> Array:
        """The output for q [B, T, h, d_k] at positions t [T] with gates [B, T, h, 3]."""
        last = self.b * (1 + jnp.arange(known["keys"].shape[1])) - 1
        complete = visibility.allows(t[None, :, None], last[None, None])
        a = softmax(scaled_products("bthd,bmhd->bhtm", q, known["keys"]), complete[:, None])
        compressed = jnp.einsum("bhtm,bmhd->bthd", a, known["values"]).astype(q.dtype)
        counts = jnp.ones(known["keys"].shape[:2], jnp.int32)  # one key for each block
        s = self._select(q, known["keys"], counts, t // self.b, True)
        selected = attend_listed(q, known["k"], known["v"], s, visibility, self.tile, t[0])
        g = jnp.split(jax.nn.sigmoid(gates), 3, -1)
        return g[0] * compressed + g[1] * selected + g[2] * window
