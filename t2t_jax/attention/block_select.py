"""Attention to blocks of keys that each query selects by their means, in O(T S / b + T n b).

Lu et al. (2025), "MoBA: Mixture of Block Attention for Long-Context LLMs", section 2.2. The token
selection of Yuan et al. (2025), "Native Sparse Attention", section 3.3.2, is similar, but the key
of a block is a learned function of its keys.
"""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention import gathered
from t2t_jax.attention.blocks import blocks
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, write_at
from t2t_jax.attention.visibility import Visibility, zero_padding


class BlockSelect(Mechanism):
    """The query's own block of b keys, and the n other blocks with the highest scores.

    Causal: earlier blocks only. The score of a block is the dot product of the query with the mean
    of the block's keys before the padding; of two blocks with equal scores, the earlier is taken.
    Each head selects its own blocks. No gradient passes through the selection. The top-k of Lu et
    al. includes the query's own block, so that their k is n + 1.

    Attributes:
      b: the length of a block.
      n: the number of selected blocks.
      tile: the number of queries whose keys are gathered at once.
    """

    b: int
    n: int
    tile: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("block_select", dropout=dropout, bias=bias)
        sums, t = self._sums(k), jnp.arange(q.shape[1])
        start = self.b * jnp.arange(sums.shape[1])[None]
        counts = jnp.clip(visibility.kv_lengths[:, None] - start, 0, self.b)
        s = self._select(q, sums, counts, t // self.b, visibility.causal)
        return gathered.attend(q, k, v, s, visibility, self.tile)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values of all positions, and the sums of the keys of each block."""
        lengths = visibility.kv_lengths
        k, v = zero_padding(k, lengths), zero_padding(v, lengths)
        return {"k": k, "v": v, "sums": self._sums(k)}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        refuse("block_select", bias=bias)
        own, sums = t // self.b, state["sums"]
        after = {
            "k": write_at(state["k"], k, t),
            "v": write_at(state["v"], v, t),
            "sums": sums.at[:, own].add(k[:, 0].astype(sums.dtype)),
        }
        counts = jnp.full(sums.shape[:2], self.b)  # of earlier blocks, which are complete
        s = self._select(q, after["sums"], counts, own[None], True)
        causal = Visibility(causal=True)
        return gathered.attend(q, after["k"], after["v"], s, causal, self.tile, t), after

    def _sums(self, k: Array) -> Array:
        """The sums of the keys [B, S, h, d_k] over each of m blocks, [B, m, h, d_k]."""
        wide = jnp.promote_types(k.dtype, jnp.float32)
        return blocks(k, self.b, -(-k.shape[1] // self.b)).sum(2, dtype=wide)

    def _select(self, q: Array, sums: Array, counts: Array, own: Array, causal: bool) -> Array:
        """Positions of the keys that queries [B, T, h, d_k] see, int32 [B, T, h, (1 + n) b].

        Those of a block that does not exist are negative.

        Args:
          sums, counts: the sum [B, m, h, d_k] and the number [B, m] of the keys of each block.
          own: the block that each query is in, [T].
        """
        (B, T, h, _), m = q.shape, sums.shape[1]
        means = sums / jnp.maximum(counts, 1)[:, :, None, None]
        q, means = jax.lax.stop_gradient((q.astype(sums.dtype), means))
        block, mine = jnp.arange(m)[None], own[:, None]
        others = (block < mine if causal else block != mine)[None] & (counts > 0)[:, None]
        scores = jnp.einsum("bthd,bmhd->bthm", q, means)
        scores, best = jax.lax.top_k(
            jnp.where(others[:, :, None], scores, -jnp.inf), min(self.n, m)
        )
        best = jnp.where(scores > -jnp.inf, best, -1)
        selected = jnp.concatenate(
            [jnp.broadcast_to(own[None, :, None, None], (B, T, h, 1)), best], -1
        )
        s = self.b * selected[..., None] + jnp.arange(self.b)[None, None, None, None]
        return s.reshape(B, T, h, -1)
