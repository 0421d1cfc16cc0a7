"""Dot products whose scores or heads differ from the paper's, and a difference of softmaxes."""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import DotProduct, ScaledDotProduct, flash, softmax
from t2t_jax.attention.mechanism import wide
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, zero_padding


class General(DotProduct):
    """softmax(q W k^T) v with a matrix W for each head (Luong et al. 2015, section 3.1)."""

    grouped: ClassVar[bool] = False

    def setup(self) -> None:
        self.W = PerHead(("d_k", "d_hidden"))

    def keys(self, k: Array, s: Array) -> Array:
        """W k, computed once for each key."""
        d_k = k.shape[-1]
        return jnp.einsum("bshe,hde->bhsd", k, self.W(k, d_k, d_k))

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        k = self.keys(k, jnp.arange(k.shape[1])).swapaxes(1, 2)
        # The kernel leaves the gradient of padding undefined, and W has a gradient from all rows.
        k = zero_padding(k, visibility.kv_lengths)
        return flash(q, k, v, visibility, 1.0)


class Cosine(DotProduct):
    """softmax(tau cos(q, k)) v with a learned tau for each head.

    It is query-key normalisation (Henry et al. 2020, QKNorm), where each layer learns one factor g.
    Swin v2 (Liu et al. 2022, equation 2) has one for each head, by which it divides the cosine.
    Henry et al. begin with log2(L^2 - L), where L is the 97.5th percentile of the lengths of
    training sequences.
    """

    tau: float  # the initial value of every tau

    def setup(self) -> None:
        self.factor = PerHead(initial=nn.initializers.constant(self.tau))

    def keys(self, k: Array, s: Array) -> Array:
        return _unit(k).swapaxes(1, 2)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        products = super().scores(_unit(q), keys, t, s)
        return self.factor(q).astype(products.dtype)[None, :, None, None] * products

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        q = _unit(q) * self.factor(q)[None, None, :, None]
        # The kernel leaves the gradient of padding undefined, and tau has a gradient from all rows.
        return flash(zero_padding(q, visibility.q_lengths), _unit(k), v, visibility, 1.0)


def _unit(x: Array) -> Array:
    """x / sqrt(|x|^2 + 1e-6) over the last axis."""
    y = wide(x)
    return (y * jax.lax.rsqrt((y * y).sum(-1, keepdims=True) + 1e-6)).astype(x.dtype)


class Softcap(ScaledDotProduct):
    """softmax(cap tanh(q k^T / (d_k^power cap))) v: no score exceeds cap (Gemma 2, section 2)."""

    cap: float = 50.0

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        return self.cap * jnp.tanh(super().scores(q, keys, t, s) / self.cap)


class Forgetting(ScaledDotProduct):
    """softmax(q k^T / d_k^power + sum of log f_l over s < l <= t) v, f the sigmoid of a gate.

    It is the Forgetting Transformer (Lin et al. 2025), without a bias of the gate, which is the
    last feature of a key. The sum is c_t - c_s with c the running sum of log f, and
    c_t, equal for all keys of a query, cancels in the softmax.
    """

    def keys(self, k: Array, s: Array) -> Array:
        return jnp.concatenate([k[..., :-1], nn.log_sigmoid(k[..., -1:])], -1).swapaxes(1, 2)

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        c = wide(keys[..., -1]).cumsum(-1)  # [B, h, S]
        return super().scores(q, keys[..., :-1], t, s) - c[:, :, None]


class TalkingHeads(ScaledDotProduct):
    """Heads mixed by a matrix P_l [h, h] before the softmax, and by P_w [h, h] after it.

    Shazeer et al. (2020), "Talking-Heads Attention", with the same number of heads for keys, for
    the softmax and for values. As in their code, the bias of positions is added between P_l and the
    softmax, and dropout follows P_w.
    """

    def setup(self) -> None:
        self.P_l, self.P_w = PerHead((None,)), PerHead((None,))

    def scores(self, q: Array, keys: Array, t: Array, s: Array) -> Array:
        return _mixed(self.P_l, super().scores(q, keys, t, s))

    def weights(self, scores: Array, seen: Array) -> Array:
        return _mixed(self.P_w, softmax(scores, seen))


def _mixed(P: PerHead, x: Array) -> Array:
    """x [B, h, T, S] with head i replaced by the sum over j of P_ij x_j."""
    h = x.shape[1]
    return jnp.einsum("ij,bjts->bits", P(x.swapaxes(1, 2), h), x)


class Differential(ScaledDotProduct):
    """(1 - lambda_init) RMSNorm((softmax(q_1 k_1^T / s) - lambda softmax(q_2 k_2^T / s)) v).

    Ye et al. (2024), "Differential Transformer", equations 1 to 3. The two halves of the features
    of q are q_1 and q_2, the halves of k are k_1 and k_2, and s is sqrt(d_k / 2). The heads of a
    layer share lambda and, as in their code, the scale of the norm. `lambda_init` is one value for
    all layers, as Ye et al. test with 0.8; their default is 0.8 - 0.6 exp(-0.3 l) for the layers
    l = 0, 1, ...
    """

    lambda_init: float = 0.8

    def setup(self) -> None:
        self.factor = Lambda(self.lambda_init)
        ones = nn.with_logical_partitioning(nn.initializers.ones, ("d_v",))
        self.norm = nn.RMSNorm(epsilon=1e-5, scale_init=ones)

    def rows(self, q: Array, keys: Array, v: Array, *rest: Any, **named: Any) -> Array:
        """Applies each softmax to the values, then subtracts, as does their FlashAttention code."""
        rows = super().rows
        halves = zip(jnp.split(q, 2, -1), jnp.split(keys, 2, -1), strict=True)
        first, second = (rows(x, y, v, *rest, **named) for x, y in halves)
        # Lambda is not rounded to the type of v.
        return (first - self.factor(q) * second).astype(v.dtype)

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        scale = (q.shape[-1] // 2) ** -self.power
        halves = zip(jnp.split(q, 2, -1), jnp.split(k, 2, -1), strict=True)
        first, second = (flash(x, y, v, visibility, scale) for x, y in halves)
        if first is None or second is None:
            return None
        # The kernel leaves padding undefined, and lambda and the norm have gradients from all rows.
        first, second = (zero_padding(x, visibility.q_lengths) for x in (first, second))
        return (first - self.factor(q) * second).astype(v.dtype)

    def finish(self, out: Array) -> Array:
        return (1 - self.lambda_init) * self.norm(out).astype(out.dtype)


class Lambda(nn.Module):
    """exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + initial, of vectors [d_k / 2]."""

    initial: float

    @nn.compact
    def __call__(self, q: Array) -> Array:
        """The scalar for queries [B, T, h, d_k], in their type or in float32."""
        dtype = jnp.promote_types(q.dtype, jnp.float32)
        normal = nn.with_logical_partitioning(nn.initializers.normal(0.1), ("d_k",))

        def vector(name: str) -> Array:
            drawn = self.param(f"lambda_{name}", normal, (q.shape[-1] // 2,), jnp.float32)
            return jnp.asarray(drawn, dtype)

        first, second = (jnp.exp((vector(f"q{i}") * vector(f"k{i}")).sum()) for i in (1, 2))
        return first - second + self.initial
