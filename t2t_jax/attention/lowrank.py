"""Attention of low rank: Linformer (Wang et al. 2020) and Nyströmformer (Xiong et al. 2021)."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.dense import scaled_products, softmax
from t2t_jax.attention.mechanism import Bias, Dropout, Mechanism, State, refuse, wide
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.visibility import Visibility, length_mask, zero_padding
from t2t_jax.errors import UsageError


class Linformer(Mechanism):
    """softmax(q (E K)^T / sqrt(d_k)) F V: E and F project keys and values from n to k positions.

    This is equation 7 of Wang et al. (2020): each head has its own E and F. Padding is projected as
    zeros, and so are missing positions.
    """

    n: int
    k: int

    def setup(self) -> None:
        self.E, self.F = PerHead(("position", "d_hidden")), PerHead(("position", "d_hidden"))

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("linformer", bias=bias, causality=visibility.causal)
        out = self._attend(q, *self._project(k, v), dropout)
        return zero_padding(out, visibility.q_lengths)

    def store(self, k: Array, v: Array, visibility: Visibility) -> State:
        """The projected keys and values, [B, k, h, d]."""
        refuse("linformer", causality=visibility.causal)
        return dict(zip("kv", self._project(k, v), strict=True))

    def step_cross(self, state: State, q: Array, t: Array, bias: Bias) -> Array:
        refuse("linformer", bias=bias)
        return self._attend(q, state["k"], state["v"], None)

    def _project(self, k: Array, v: Array) -> tuple[Array, Array]:
        S = k.shape[1]
        if self.n < S:
            raise UsageError(
                f"linformer:n={self.n} projects at most {self.n} keys, and a sequence has {S}: "
                "shorten it, or train with a larger n."
            )
        E, F = (W(k, self.n, self.k)[:, :S] for W in (self.E, self.F))
        return jnp.einsum("hsr,bshd->brhd", E, k), jnp.einsum("hsr,bshd->brhd", F, v)

    def _attend(self, q: Array, k: Array, v: Array, dropout: Dropout) -> Array:
        scores = scaled_products("bthd,brhd->bhtr", q, k)
        a = softmax(scores, jnp.ones((1, 1, 1, 1), bool))
        if dropout is not None:
            a = dropout(a)
        return jnp.einsum("bhtr,brhd->bthd", a.astype(v.dtype), v)


class Nystrom(Mechanism):
    """softmax(q y^T) Z softmax(x k^T) v, where Z approximates the pseudo-inverse of softmax(x y^T).

    This is equation 17 of Xiong et al. (2021). The landmarks x and y are the means of m segments of
    the queries and keys before the padding; a sequence shorter than m has a landmark for each
    position. All products are divided by sqrt(d_k). Z is the result of six iterations (equation
    14). The convolution over the values that is added to the output (their figure 4) is left out.
    """

    m: int

    def attend(
        self, q: Array, k: Array, v: Array, visibility: Visibility, dropout: Dropout, bias: Bias
    ) -> Array:
        refuse("nystrom", dropout=dropout, bias=bias, causality=visibility.causal)
        q, k, v, dtype = wide(q), wide(k), wide(v), v.dtype
        means_q, has_q = self._landmarks(q, visibility.q_lengths)
        means_k, has_k = self._landmarks(k, visibility.kv_lengths)
        present = length_mask(visibility.kv_lengths, k.shape[1])

        def weights(q: Array, k: Array, seen: Array) -> Array:
            return softmax(scaled_products("bthd,bshd->bhts", q, k), seen[:, None])

        A = weights(means_q, means_k, has_q[:, :, None] & has_k[:, None])
        B = weights(means_q, k, has_q[:, :, None] & present[:, None])
        out = jnp.einsum("bhms,bshd->bhmd", B, v)
        out = jnp.einsum("bhnm,bhmd->bhnd", _pseudo_inverse(A), out)
        out = jnp.einsum("bhtn,bhnd->bthd", weights(q, means_k, has_k[:, None]), out)
        return zero_padding(out, visibility.q_lengths).astype(dtype)

    def _landmarks(self, x: Array, lengths: Array) -> tuple[Array, Array]:
        """Means [B, m, h, d] of the segments of x [B, L, h, d], and which exist, bool [B, m].

        Of L positions, position i is in segment floor(i m / L).
        """
        i, segment = jnp.arange(x.shape[1])[None], jnp.arange(self.m)[None, :, None]
        among = (i * self.m // jnp.maximum(lengths, 1)[:, None])[:, None] == segment
        among &= length_mask(lengths, x.shape[1])[:, None]
        count = among.sum(-1)
        P = among.astype(x.dtype) / jnp.maximum(count, 1)[..., None].astype(x.dtype)
        return jnp.einsum("bml,blhd->bmhd", P, x), count > 0


def _pseudo_inverse(A: Array) -> Array:
    """Six iterations towards the pseudo-inverse of A [B, h, m, m], from A^T / (|A|_1 |A|_inf)."""
    rows, columns = A.sum(-1).max(-1), A.sum(-2).max(-1)
    size = (rows * columns)[..., None, None]
    Z = A.swapaxes(-1, -2) / jnp.where(size > 0, size, 1)
    I = jnp.eye(A.shape[-1], dtype=A.dtype)[None, None]
    matmul = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)  # errors would be amplified
    for _ in range(6):
        AZ = matmul(A, Z)
        Z = matmul(Z, 13 * I - matmul(AZ, 15 * I - matmul(AZ, 7 * I - AZ))) / 4
    return Z
