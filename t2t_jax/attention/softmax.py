"""Scaled dot products with alternatives to the softmax over the keys that a query sees.

With softmax1 and sink, the weights may sum to less than 1, so that a head can attend to nothing.
With sparsemax, entmax and top_k, some weights are exactly zero; the first two are computed exactly,
by sorting the scores of every query.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import ScaledDotProduct, flash, softmax
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility


class Softmax1(ScaledDotProduct):
    """exp(e_s) / (1 + sum exp(e)): a softmax with one more key, whose score and value are zero.

    Miller (2023), "Attention is off by one".
    """

    def weights(self, scores: Array, seen: Array) -> Array:
        return softmax_with_sink(scores, seen, jnp.zeros((1, 1, 1, 1), scores.dtype))

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        return flash_with_sink(q, k, v, visibility, q.shape[-1] ** -self.power)


class Sink(ScaledDotProduct):
    """exp(e_s) / (exp(z) + sum exp(e)) with a learned logit z for each head, initially zero.

    It is the sink of gpt-oss (OpenAI 2025). The sink token of Xiao et al. (2024, section 3.3) is
    learned, too, but it has a key and a value.
    """

    def setup(self) -> None:
        self.logit = PerHead(initial=nn.initializers.zeros)

    def weights(self, scores: Array, seen: Array) -> Array:
        z = self.logit(scores.swapaxes(1, 2))  # PerHead reads h from axis 2
        return softmax_with_sink(scores, seen, z[None, :, None, None])

    def fused(self, q: Array, k: Array, v: Array, visibility: Visibility) -> Array | None:
        scale = q.shape[-1] ** -self.power
        # The score is the product of one more feature: 1 in queries, 0 in all keys but the first.
        feature = (0, 0), (0, 0), (0, 0), (0, 1)
        q, k = jnp.pad(q, feature, constant_values=1), jnp.pad(k, feature)
        return flash_with_sink(q, k, v, visibility, scale, self.logit(q) / scale)


class Sparsemax(ScaledDotProduct):
    """The point of the simplex nearest to the scores (Martins and Astudillo 2016).

    The weights are max(z - tau, 0) with the tau for which they sum to 1. The support is found by
    sorting, as in their algorithm 1: the tau of the k highest scores alone is computed for every k,
    and the largest of these is the tau of all scores. Given the support, tau is linear in z, so
    that JAX derives the exact gradient.
    """

    def weights(self, scores: Array, seen: Array) -> Array:
        z = _shifted(scores, seen)
        ordered, k = _ordered(z)
        support = z > ((ordered.cumsum(-1) - 1) / k).max(-1, keepdims=True)
        tau = (_sum(support, z) - 1) / support.sum(-1, keepdims=True)
        return jnp.where(support & seen, z - tau, 0)


class Entmax(ScaledDotProduct):
    """1.5-entmax, between softmax and sparsemax (Peters et al. 2019).

    The weights are max(z / 2 - tau, 0)^2 with the tau for which they sum to 1. The support is found
    by sorting, as in their exact algorithm. Given the support, tau has a closed form, so that JAX
    derives the exact gradient.
    """

    def weights(self, scores: Array, seen: Array) -> Array:
        z = _shifted(scores / 2, seen)
        ordered, k = _ordered(z)
        mean = ordered.cumsum(-1) / k
        spread = (ordered * ordered).cumsum(-1) - k * mean * mean
        tau = mean - jnp.sqrt(jnp.maximum(1 - spread, 0) / k)
        support = z > jnp.where(tau <= ordered, tau, -2).max(-1, keepdims=True)
        size = support.sum(-1, keepdims=True)
        mean = _sum(support, z) / size
        spread = _sum(support, (z - mean) ** 2)
        tau = mean - jnp.sqrt((1 - spread) / size)
        return jnp.where(support & seen, (z - tau) ** 2, 0)


class TopK(ScaledDotProduct):
    """softmax(q k^T / d_k^power) v over the k highest scores of each query, bias included.

    Gupta et al. (2021), "Memory-efficient Transformers via Top-k Attention". Keys whose scores
    equal the k-th highest are kept, too. All scores [B, h, T, S] exist at once, whereas Gupta et
    al. compute them for some queries at a time.
    """

    k: int = 8

    def weights(self, scores: Array, seen: Array) -> Array:
        candidates = jnp.where(seen, jax.lax.stop_gradient(scores), -jnp.inf)
        highest, keys = jax.lax.top_k(candidates, min(self.k, scores.shape[-1]))
        # A compiled program may compute the scores once for `top_k` and again for the comparison,
        # and round them differently: by its index, the k-th highest is kept in any case.
        equal = candidates >= highest[..., -1:]
        kept = jnp.put_along_axis(equal, keys, True, axis=-1, inplace=False)
        return softmax(scores, seen & kept)


def softmax_with_sink(scores: Array, seen: Array, sink: Array) -> Array:
    """The softmax over scores [B, h, T, S] and one more, `sink` [1, 1 or h, 1, 1], left out."""
    sink = jnp.broadcast_to(sink, (*scores.shape[:-1], 1))
    scores = jnp.concatenate([scores, sink], -1)
    seen = jnp.concatenate([seen, jnp.ones_like(seen[..., :1])], -1)
    return softmax(scores, seen)[..., :-1]


def flash_with_sink(
    q: Array, k: Array, v: Array, visibility: Visibility, scale: float, last: Array | float = 0.0
) -> Array | None:
    """`flash` with one more key before the others, whose value is zero.

    Its last feature is `last`, one number or one for each head; the others are zero.
    """
    visibility = visibility.with_lengths(q, k)
    first = (0, 0), (1, 0), (0, 0), (0, 0)
    k, v = jnp.pad(k, first).at[:, 0, :, -1].set(last), jnp.pad(v, first)
    ahead = int(visibility.causal)  # one more query, so that each sees the keys up to its own
    q = jnp.pad(q, first) if ahead else q
    lengths = visibility.q_lengths + ahead, visibility.kv_lengths + 1
    out = flash(q, k, v, Visibility(*lengths, causal=visibility.causal), scale)
    return None if out is None else out[:, ahead:]


def _shifted(z: Array, seen: Array) -> Array:
    """z minus its maximum over the seen keys, and at least -2; keys that are not seen get -2.

    A score of -2 is outside of every support, as tau is at least -1.
    """
    largest = jnp.where(seen, z, jnp.finfo(z.dtype).min).max(-1, keepdims=True)
    return jnp.where(seen, jnp.maximum(z - jax.lax.stop_gradient(largest), -2), -2)


def _ordered(z: Array) -> tuple[Array, Array]:
    """z in descending order, without gradient, and the ranks 1, 2, ... along its last axis."""
    ordered = jnp.sort(jax.lax.stop_gradient(z), axis=-1, descending=True)
    k = jnp.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    return ordered, k.reshape((1,) * (z.ndim - 1) + (-1,))


def _sum(support: Array, x: Array) -> Array:
    return jnp.where(support, x, 0).sum(-1, keepdims=True)
