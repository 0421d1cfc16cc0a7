"""Figure 2 (left) and its rivals: one file a mechanism, one contract for all.

A mechanism is a Flax module that knows heads but neither projections nor roles:

    out = mechanism(q, k, v, visibility, drop)

with q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] and out [B, T, h, d_v]; T and S may
differ, and so may d_k and d_v. `Visibility` says who may see whom. A query that may see nothing
gives zeros, and what stands in a padded slot, even NaN, changes nothing. `drop`, None unless
attention weights are to be dropped, is a function to apply to them.

It also decodes, one position at a time and all rows in lockstep:

    state = mechanism.start(k, v, visibility)
    out, state = mechanism.step(state, q, t, k, v)

`start` takes the keys and values known beforehand. Cross-attention starts with the source's and
steps with neither k nor v, and its state stays as it is. Self-attention (`visibility.causal`)
starts with room for all S positions, of which `visibility.kv_lengths` are known (none: zeros); each
step adds the key and value [B, 1, h, d] of position t (int32 scalar), which the query
[B, 1, h, d_k] at t also sees. Stepping through t = 0, 1, ... gives what one causal call gives.

>>> import jax
>>> from t2t_jax.attention import MECHANISMS, Visibility
>>> q, k, v = (jax.random.normal(jax.random.key(i), (2, 5, 4, 8)) for i in range(3))
>>> attention = MECHANISMS["scaled_dot_product"]()
>>> weights = attention.init(jax.random.key(3), q, k, v, Visibility())
>>> attention.apply(weights, q, k, v, Visibility(causal=True)).shape
(2, 5, 4, 8)

A new mechanism is a file here and a line in `MECHANISMS`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_jax.attention.visibility import Visibility as Visibility


class _Lazy(Mapping[str, Any]):
    """Name -> class, imported when it is asked for: the names alone need no jax."""

    def __init__(self, **where: str) -> None:
        self.where = where

    def __getitem__(self, name: str) -> Any:
        module, _, cls = self.where[name].partition(":")
        return getattr(import_module(f"{__name__}.{module}"), cls)

    def __contains__(self, name: object) -> bool:
        return name in self.where

    def __iter__(self) -> Iterator[str]:
        return iter(self.where)

    def __len__(self) -> int:
        return len(self.where)


MECHANISMS: Mapping[str, Any] = _Lazy(
    scaled_dot_product="dot_product:ScaledDotProduct",
    dot_product="dot_product:DotProduct",
)


def __getattr__(name: str) -> Any:
    if name == "Visibility":
        return import_module(f"{__name__}.visibility").Visibility
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
