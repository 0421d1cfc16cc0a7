"""Linear attention: features of cosFormer (Qin et al. 2022) and of Based (Arora et al. 2024)."""

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention.linear import Linear
from t2t_jax.errors import UsageError


class Cosformer(Linear):
    """phi(x) = relu(x) [cos(pi i / 2M), sin(pi i / 2M)] at position i.

    The weight of a pair is thus relu(q) relu(k) cos(pi (t - s) / 2M), the cos-based re-weighting of
    Qin et al. (2022). It falls with the distance, and would be negative at a distance above M. In
    their code, M is the length of the sequence.

    Attributes:
      M: the largest number of positions; a longer sequence, or decoding state, raises UsageError.
    """

    M: int

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        if len(positions) > self.M:
            raise UsageError(
                f"cosformer:M={self.M} has weights for {self.M} positions, and a sequence has "
                f"{len(positions)}: set M to the greatest length."
            )
        x = jax.nn.relu(x.astype(jnp.promote_types(x.dtype, jnp.float32)))
        angle = (jnp.pi / 2 / self.M * positions).astype(x.dtype)[None, :, None, None]
        phi = jnp.concatenate([x * jnp.cos(angle), x * jnp.sin(angle)], -1)
        return phi, jnp.zeros_like(x[..., 0])


class Taylor(Linear):
    """phi(q) phi(k) = 1 + x + x^2 / 2 with x = q k^T / sqrt(d_k), the Taylor series of exp(x).

    It is the linear attention of Based (Arora et al. 2024, section 4.1), with its denominator.
    Their equation 4 omits the sqrt, which their code has. As there are 1 + d_k + d_k^2 features,
    Based projects queries and keys to 16 elements: set d_k=16. In Based, it alternates with layers
    of softmax attention in a narrow window, the mechanism `local`.
    """

    def features(self, x: Array, positions: Array) -> tuple[Array, Array]:
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32)) / x.shape[-1] ** 0.25
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], -1)
        phi = jnp.concatenate([jnp.ones_like(x[..., :1]), x, squares / 2**0.5], -1)
        return phi, jnp.zeros_like(x[..., 0])
