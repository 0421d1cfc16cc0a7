"""BigBird (Zaheer et al. 2020, section 2 and, for blocks, appendix D)."""

import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import blocks, on_axis, take_positions, unblock
from t2t_jax.attention.mechanism import Bias, Dropout
from t2t_jax.attention.sparse import Keys, Random, attend, with_global
from t2t_jax.attention.visibility import Visibility, zero_padding
from t2t_jax.ops.patterns import Far, Listed, Near, table, tile_of
from t2t_jax.ops.sparse_attention import Keys as FusedKeys
from t2t_jax.ops.sparse_attention import has_kernel, sparse_attention


class BigBird(Random):
    """Blocks of b keys: the query's own, w on either side of it, the first g, and r random ones.

    Unless it is causal, the queries of the first g blocks also see every key. This is the internal
    construction (ITC) of Zaheer et al., whose global tokens are tokens of the text; in their code,
    the last block is global, too. They do not use causal attention; here, it drops all later keys.
    `Random`, which has w = 1 and g = 1, says how the random blocks are drawn; a random block that
    is also in the window or global counts once.

    Attributes:
      w: the number of blocks on either side.
      g: the number of global blocks.
    """

    w: int
    g: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        b, (B, T), S = self.b, q.shape[:2], k.shape[1]
        n, m = -(-T // b), -(-S // b)
        w = min(self.w, max(n, m))
        after = 0 if visibility.causal else w
        block = on_axis(1, 4, jnp.arange(n))
        near = b * block + on_axis(3, 4, jnp.arange(-w * b, (1 + after) * b))
        first = on_axis(3, 4, jnp.arange(self.g * b))
        far = self._positions(self._drawn(visibility, n, m))

        def sources(x: Array) -> tuple[Array, Array, Array]:
            window = jnp.concatenate([blocks(x, b, n, i) for i in range(-w, after + 1)], axis=2)
            random = take_positions(x, far.reshape(B, -1)).reshape(B, n, -1, *x.shape[2:])
            return window, blocks(x, self.g * b, 1)[:, 0], random

        keys, values = sources(k), sources(v)
        always = jnp.ones((1, 1, 1, 1), bool)
        sets = [
            Keys("nsh", keys[0], values[0], near, always),
            Keys("sh", keys[1], values[1], first, jnp.abs(block - first // b) > w),
            Keys("nsh", keys[2], values[2], far[:, :, None], always),
        ]
        out = unblock(attend(blocks(q, b, n), sets, visibility, dropout, bias), T)
        if visibility.causal:
            return out
        return with_global(self.g * b, out, q, k, v, visibility, dropout, bias)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        """Two sets of keys: those of the window and the random blocks, and those of the first g."""
        b, T, causal, tile = self.b, q.shape[1], visibility.causal, tile_of(self.b)
        if not tile or not has_kernel(q, v):
            return None
        visibility = visibility.with_lengths(q, k)
        lengths, n, first = visibility.q_lengths, -(-T // b), self.g * b
        sets = (
            FusedKeys(k, v, lengths, table(self._drawn(visibility, n, n), b, tile, T, T)),
            FusedKeys(k[:, :first], v[:, :first], jnp.minimum(lengths, first)),
        )
        patterns = (Near(b, self.w, causal), Listed(b)), (Far(b, b, self.w, causal),)
        out, _ = sparse_attention(q, lengths, sets, patterns, q.shape[-1] ** -0.5, tile)
        if causal:
            return out
        q, k, v = (zero_padding(x, lengths) for x in (q, k, v))
        out = with_global(first, out, q, k, v, visibility, None, None)
        return zero_padding(out, lengths)  # which also zeroes the gradient of padding

    def seen_from(self, t: Array, S: int) -> tuple[Array, Array]:
        b, w, i = self.b, self.w, t // self.b
        near = (i - w) * b + jnp.arange((w + 1) * b)
        first = jnp.arange(self.g * b)
        j, drawn = self._random(i[None, None], i[None, None], -(-S // b))
        far = self._positions(jnp.where(drawn, j, -1))[0, 0]
        return jnp.concatenate([near, first, far]), jnp.concatenate(
            [near >= 0, first // b < i - w, far >= 0]
        )

    def _random(self, i: Array, m: Array, n: int | None = None) -> tuple[Array, Array]:
        j, drawn = super()._random(i, m, n)
        return j, drawn & (j >= self.g) & (jnp.abs(j - i[..., None]) > self.w)

    def _drawn(self, visibility: Visibility, n: int, m: int) -> Array:
        """The random blocks of keys [B, n, r], among m, of n blocks of queries; -1 is none."""
        i, lengths = jnp.arange(n)[None], visibility.kv_lengths
        candidates = jnp.minimum(i, m) if visibility.causal else -(-lengths[:, None] // self.b)
        j, drawn = self._random(i, candidates)
        return jnp.broadcast_to(jnp.where(drawn, j, -1), (len(lengths), n, self.r))

    def _positions(self, j: Array) -> Array:
        """The positions [B, n, r b] of blocks [B, n, r]; negative where there is no block."""
        s = self.b * j[..., None] + jnp.arange(self.b)[None, None, None]
        return s.reshape(*j.shape[:2], -1)
