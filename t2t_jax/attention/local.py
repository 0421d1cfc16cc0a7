"""Attention within a window, in O(n w): sliding, and Luong's local-m and local-p (2015)."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.blocks import along, around, blocks, gather, scaled, unblock
from t2t_jax.attention.dense import one, softmax
from t2t_jax.attention.mechanism import Bias, Drop, Mechanism, State, put, refuse
from t2t_jax.attention.visibility import Visibility, blank
from t2t_jax.attention.weights import PerHead
from t2t_jax.attention.work import LOCAL_BLOCK, LOCAL_P_TILE


class Local(Mechanism):
    """softmax(q k^T / sqrt(d_k)) v over the keys at distance w at most; causal: of those, the past.

    From one sequence to another it is Luong's local-m, whose window is centred at the query's own
    position. Queries stand in blocks of at least w, and see their own block and its neighbours.
    """

    w: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        T, b = q.shape[1], max(self.w, LOCAL_BLOCK)
        n = -(-T // b)
        after = 0 if visibility.causal else 1
        q = blocks(q, b, n)
        k, v = around(k, b, n, after), around(v, b, n, after)
        start = b * along(1, 4, jnp.arange(n))
        t = start + along(2, 4, jnp.arange(b))
        s = start + along(3, 4, jnp.arange(-b, (1 + after) * b))
        scores = scaled("bnqhd,bnkhd->bnhqk", q, k)
        if bias is not None:
            scores += bias((s - t)[0, 0])[None, None]
        seen = visibility.allows(t, s) & (jnp.abs(s - t) <= self.w)
        a = softmax(scores, seen[:, :, None])
        if drop is not None:
            a = drop(a)
        return unblock(jnp.einsum("bnhqk,bnkhd->bnqhd", a.astype(v.dtype), v), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """Causal: the last w + 1 keys and values, position p in slot p mod (w + 1).

        Otherwise all of them, with w empty positions on either side, and how many are real.
        """
        lengths = visibility.bounded(k, k).kv_lengths
        k, v = blank(k, lengths), blank(v, lengths)
        if not visibility.causal:
            around = ((0, 0), (self.w, self.w), (0, 0), (0, 0))
            return {"k": jnp.pad(k, around), "v": jnp.pad(v, around), "lengths": lengths}
        at = self._positions(lengths[:, None] - 1)
        return {name: gather(x, at) for name, x in (("k", k), ("v", v))}

    def step_self(
        self, state: State, q: Array, t: Array, k: Array, v: Array, bias: Bias
    ) -> tuple[Array, State]:
        slot = t % (self.w + 1)
        state = {"k": put(state["k"], k, slot), "v": put(state["v"], v, slot)}
        s = self._positions(jnp.full((1, 1), t))
        return one(q, state["k"], state["v"], s >= 0, s - t, bias), state

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        size = 2 * self.w + 1
        at = jnp.minimum(t, state["k"].shape[1] - size)
        k, v = (jax.lax.dynamic_slice_in_dim(state[n], at, size, axis=1) for n in "kv")
        s = at - self.w + jnp.arange(size)[None]
        seen = (s >= 0) & (s < state["lengths"][:, None]) & (jnp.abs(s - t) <= self.w)
        return one(q, k, v, seen, s - t, bias)

    def _positions(self, last: Array) -> Array:
        """The position in every slot of the ring when `last` [B, 1] is the newest; some below 0."""
        return last - (last - jnp.arange(self.w + 1)[None]) % (self.w + 1)


class LocalPredictive(Mechanism):
    """Luong's local-p, from one sequence to another: the window's centre is predicted.

    p_t = S sigmoid(v_p^T tanh(W_p q)), S the real length, from each head's own query; the keys at
    distance w at most from it are weighted by their softmax and by a Gaussian of sigma w / 2.
    """

    w: int

    def setup(self) -> None:
        self.W_p = PerHead(("d_k", "d_hidden"))
        self.v_p = PerHead(("d_hidden",))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, drop: Drop, bias: Bias
    ) -> Array:
        refuse("local_p", drop=drop, bias=bias, causality=visibility.causal)
        T, d_k = q.shape[1], q.shape[3]
        x = q.astype(jnp.promote_types(q.dtype, jnp.float32))  # the window's edges are sharp
        hidden = jnp.tanh(jnp.einsum("bthd,hde->bthe", x, self.W_p(x, d_k, d_k)))
        predicted = jnp.einsum("bthe,he->bth", hidden, self.v_p(x, d_k))
        lengths = visibility.kv_lengths[:, None, None]
        p = lengths * jax.nn.sigmoid(predicted)
        k, v = k.astype(x.dtype), v.astype(x.dtype)  # gathered often: their gradients are sums

        @jax.checkpoint
        def rows(q: Array, p: Array, seeing: Array) -> Array:
            s = jnp.ceil(p - self.w).astype(jnp.int32)[..., None]
            s += along(3, 4, jnp.arange(2 * self.w + 1))
            seen = (s >= 0) & (s < lengths[..., None]) & (jnp.abs(s - p[..., None]) <= self.w)
            scores = scaled("bthd,bthkd->bthk", q, _each(k, s).astype(q.dtype))
            a = softmax(scores, seen & seeing[..., None])
            a *= jnp.exp(-2 * ((s - p[..., None]) / self.w) ** 2)
            values = _each(v, s).astype(q.dtype)
            return jnp.einsum("bthk,bthkd->bthd", a.astype(q.dtype), values)

        n = -(-T // LOCAL_P_TILE)
        t = jnp.arange(T)[None, :, None]
        tiled = [
            blocks(x, min(T, LOCAL_P_TILE), n).swapaxes(0, 1)
            for x in (q, p, t < visibility.q_lengths[:, None, None])
        ]
        out = jax.lax.map(lambda x: rows(*x), tiled)
        return unblock(out.swapaxes(0, 1), T)

    def start(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The keys and values, and how many are real."""
        lengths = visibility.bounded(k, k).kv_lengths
        return {"k": blank(k, lengths), "v": blank(v, lengths), "lengths": lengths}

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        visibility = Visibility(kv_lengths=state["lengths"])
        return self(q, state["k"], state["v"], visibility, bias=bias)


def _each(x: Array, at: Array) -> Array:
    """x [B, S, h, d] at positions [B, T, h, K], of each head its own -> [B, T, h, K, d]."""
    B, T, h, K = at.shape
    at = jnp.clip(at, 0, x.shape[1] - 1).swapaxes(2, 3).reshape(B, T * K, h, 1)
    return jnp.take_along_axis(x, at, axis=1).reshape(B, T, K, h, -1).swapaxes(2, 3)
