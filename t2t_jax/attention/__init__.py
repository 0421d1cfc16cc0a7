"""Figure 2 (left) and its rivals: one file a mechanism, one contract for all.

A mechanism is a Flax module that knows heads but neither projections nor roles:

    out = mechanism(q, k, v, visibility, drop, bias)

with q [B, T, h, d_k], k [B, S, h, d_k], v [B, S, h, d_v] and out [B, T, h, d_v]; T and S may
differ, and so may d_k and d_v. `Visibility` says who may see whom. A query that may see nothing
gives zeros, and what stands in a padded slot or in the future, even NaN, changes nothing. `drop`,
None unless attention weights are to be dropped, is a function to apply to them; `bias`, None or a
function of the distances s - t, is what to add to the scores.

It also decodes, one position at a time and all rows in lockstep:

    state = mechanism.start(k, v, visibility)
    out, state = mechanism.step(state, q, t, k, v, bias)

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

`MECHANISMS[name]` makes the module, and takes the options that the table has for it. In a config
they follow the name: "local:w=32". A new mechanism is a file here and an entry in the table.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from t2t_jax.attention import work

if TYPE_CHECKING:
    from t2t_jax.attention.visibility import Visibility as Visibility

SELF, ALL = ("encoder", "decoder"), ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Entry:
    """What is to be known of a mechanism before jax is.

    Attributes:
      where: its module and class.
      about: what it is in a few words.
      options: its attributes and their defaults.
      at_most: options that another bounds.
      roles: which attentions of Figure 1 it can be.
      why: why it cannot be the others.
      carries: what it can be combined with: rotary positions, a relative bias, drop of its weights.
      work: its products, a function of `t2t_jax.attention.work`.
    """

    where: str
    about: str
    options: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ALL
    why: str = ""
    carries: tuple[str, ...] = ("rotary", "relative", "drop")
    work: Callable[..., int] = work.dense


_ONE_SEQUENCE = "its pattern relates positions of one sequence"

TABLE: Mapping[str, Entry] = {
    "scaled_dot_product": Entry(
        "dot_product:ScaledDotProduct", "softmax(q k^T / sqrt(d_k)) v, the paper's"
    ),
    "dot_product": Entry("dot_product:DotProduct", "softmax(q k^T) v"),
    "general": Entry(
        "dot_product:General",
        "softmax(q W k^T) v",
        carries=("relative", "drop"),
        work=work.general,
    ),
    "additive": Entry(
        "additive:Additive",
        "scores v^T tanh(W_q q + W_k k)",
        carries=("relative",),
        work=work.additive,
    ),
    "local": Entry(
        "local:Local",
        "keys at distance w at most; between two sequences local-m",
        dict(w=16),
        work=work.local,
    ),
    "local_p": Entry(
        "local:LocalPredictive",
        "a window of w about a predicted place, with a Gaussian",
        dict(w=8),
        roles=("cross",),
        why="it predicts where to look in another sequence",
        carries=(),
        work=work.local_p,
    ),
    "sparse_strided": Entry(
        "sparse:Strided",
        "the last l keys, and every l-th",
        dict(l=8),
        roles=SELF,
        why=_ONE_SEQUENCE,
        work=work.strided,
    ),
    "sparse_fixed": Entry(
        "sparse:Fixed",
        "the own block of l, and the last c keys of the others",
        dict(l=8, c=2),
        at_most=dict(c="l"),
        roles=SELF,
        why=_ONE_SEQUENCE,
        work=work.fixed,
    ),
    "sparse_random": Entry(
        "sparse:Random",
        "blocks of b: the neighbours, the first, and r at random",
        dict(b=4, r=2, seed=0),
        roles=SELF,
        why=_ONE_SEQUENCE,
        work=work.random,
    ),
    "linear": Entry(
        "linear:Linear", "phi(q) (phi(k)^T v), phi = elu + 1", carries=(), work=work.linear
    ),
    "performer": Entry(
        "linear:Performer",
        "phi(q) (phi(k)^T v), phi = m random features of exp",
        dict(m=64, seed=0),
        carries=("rotary",),
        work=work.performer,
    ),
}


class _Lazy(Mapping[str, Any]):
    """Name -> what makes the module, imported when it is asked for: the names need no jax."""

    def __getitem__(self, name: str) -> Any:
        module, _, cls = TABLE[name].where.partition(":")
        return partial(getattr(import_module(f"{__name__}.{module}"), cls), **TABLE[name].options)

    def __contains__(self, name: object) -> bool:
        return name in TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(TABLE)

    def __len__(self) -> int:
        return len(TABLE)


MECHANISMS: Mapping[str, Any] = _Lazy()


def __getattr__(name: str) -> Any:
    if name == "Visibility":
        return import_module(f"{__name__}.visibility").Visibility
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
