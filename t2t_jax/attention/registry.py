"""The attention mechanisms by name, without jax: roles, options, what each combines with, cost.

A config names a mechanism and, after a colon, options that differ from the defaults: "local:w=32".
Several such pieces, separated by commas, alternate over the layers of a stack: "linear,local:w=32".
A new mechanism is a file of this folder and one entry of `MECHANISMS`, or a class of a study file
(`t2t_jax/extend.py`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from t2t_jax.errors import UsageError, near
from t2t_jax.parts import implementation

Number = int | float
Options = Mapping[str, Number]
SELF, ALL = ("encoder", "decoder"), ("encoder", "decoder", "cross")


class Shape(NamedTuple):
    """What one head of h computes: T queries to S keys, widths d_k and d_v."""

    T: int
    S: int
    d_k: int
    d_v: int
    causal: bool = False
    h: int = 1


def _dense(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + s.d_v)


@dataclass(frozen=True)
class Entry:
    """A mechanism.

    Attributes:
      where: its file in this folder, or the path of another, and its class there.
      about: what it computes, in a few words.
      products: its multiply-adds of one head in the forward pass, a function of its attributes
        (options and sizes) and a `Shape`. What is computed only to be masked counts, and so does
        rounding up to whole blocks; exp, tanh and softmax do not.
      options: what a config may set, with the defaults, whose type is that of the option.
      sizes: its other attributes, chosen for speed; a config cannot set them.
      at_most: options that are bounded by another option, or by a number.
      halves: whether it cuts queries and keys into halves, so that d_k must be even.
      roles: the attentions of Figure 1 that it can be.
      why: why it cannot be the others.
      supports: what it can be combined with: `rotary` positions, a `bias` of its scores that
        positions give, `dropout` of its weights, and `mup`, which has no learning rate for matrices
        of a mechanism.
    """

    where: str
    about: str
    products: Callable[[Options, Shape], Number] = _dense
    options: Options = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, str | Number] = field(default_factory=dict)
    halves: bool = False
    roles: tuple[str, ...] = ALL
    why: str = ""
    supports: tuple[str, ...] = ("rotary", "bias", "dropout", "mup")


def _general(o: Options, s: Shape) -> Number:
    return s.S * s.d_k**2 + s.T * s.S * (s.d_k + s.d_v)


def _talking_heads(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + s.d_v + 2 * s.h)


def _differential(o: Options, s: Shape) -> Number:
    return s.T * s.S * (s.d_k + 2 * s.d_v)


def _additive(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * s.d_k**2 + _whole(s.T, min(s.T, o["tile"])) * s.S * (s.d_k + s.d_v)


def _local(o: Options, s: Shape) -> Number:
    b = max(o["w"], o["block"])
    return _whole(s.T, b) * _near(b, s.causal) * (s.d_k + s.d_v)


def _local_p(o: Options, s: Shape) -> Number:
    window = _whole(s.T, min(s.T, o["tile"])) * (2 * o["w"] + 1)
    return s.T * (s.d_k**2 + s.d_k) + window * (s.d_k + s.d_v)


def _strided(o: Options, s: Shape) -> Number:
    return _whole(s.T, o["l"]) * (_near(o["l"], s.causal) + -(-s.S // o["l"])) * (s.d_k + s.d_v)


def _fixed(o: Options, s: Shape) -> Number:
    return _whole(s.T, o["l"]) * (o["l"] + o["c"] * -(-s.S // o["l"])) * (s.d_k + s.d_v)


def _random(o: Options, s: Shape) -> Number:
    b = o["b"]
    first_block = 0 if s.causal else min(s.T, b) * s.S
    pattern = _whole(s.T, b) * (_near(b, s.causal) + (1 + o["r"]) * b)
    return (pattern + first_block) * (s.d_k + s.d_v)


def _linear(o: Options, s: Shape) -> Number:
    return _sums(s.d_k, o["chunk"], s)


def _performer(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * o["m"] * s.d_k + _sums(o["m"], o["chunk"], s)


def _whole(n: int, b: Number) -> Number:
    """n rounded up to whole blocks of b."""
    return -(-n // b) * b


def _near(b: Number, causal: bool) -> Number:
    """Keys in a query's own block of b and the neighbouring ones."""
    return (2 if causal else 3) * b


def _sums(m: Number, chunk: Number, s: Shape) -> Number:
    """Sums over m features of [v, 1]; causal ones also compute the pairs within each chunk."""
    if not s.causal:
        return (s.T + s.S) * m * (s.d_v + 1)
    T = _whole(s.T, chunk)  # S = T
    return 2 * T * m * (s.d_v + 1) + T * chunk * (m + s.d_v + 1)


_ONE_SEQUENCE = "its pattern relates positions of one sequence"

MECHANISMS: dict[str, Entry] = {
    "scaled_dot_product": Entry(
        "dot_product:ScaledDotProduct",
        "softmax(q k^T / d_k^power) v; power=0.5 is the paper's",
        options=dict(power=0.5),
    ),
    "dot_product": Entry("dot_product:DotProduct", "softmax(q k^T) v"),
    "general": Entry(
        "dot_product:General", "softmax(q W k^T) v", _general, supports=("bias", "dropout")
    ),
    "cosine": Entry(
        "dot_product:Cosine",
        "softmax(tau cos(q, k)) v, tau learned from its initial value",
        options=dict(tau=10.0),
    ),
    "softmax1": Entry("softmax:Softmax1", "a softmax with 1 added to its denominator"),
    "sink": Entry("softmax:Sink", "a softmax with exp of a learned logit added to its denominator"),
    "sparsemax": Entry("softmax:Sparsemax", "the nearest point of the simplex: many weights are 0"),
    "entmax": Entry("softmax:Entmax", "1.5-entmax, between softmax and sparsemax"),
    "talking_heads": Entry(
        "heads:TalkingHeads",
        "heads mixed by matrices before and after the softmax",
        _talking_heads,
        supports=("rotary", "bias", "dropout"),
    ),
    "differential": Entry(
        "heads:Differential",
        "the difference of two softmaxes, each of half of d_k, normalised",
        _differential,
        options=dict(lambda_init=0.8),
        at_most=dict(lambda_init=0.99),
        halves=True,
        supports=("bias", "dropout", "mup"),  # a rotation turns the halves by other wavelengths
    ),
    "additive": Entry(
        "additive:Additive",
        "scores v^T tanh(W_q q + W_k k)",
        _additive,
        sizes=dict(tile=128),  # queries whose scores exist at once
        supports=("bias",),
    ),
    "local": Entry(
        "local:Local",
        "keys at distance w at most; between two sequences local-m",
        _local,
        options=dict(w=16),
        sizes=dict(block=16),  # queries a block at least: blocks of a narrow w are all overhead
    ),
    "local_p": Entry(
        "local:LocalPredictive",
        "a window of w around a predicted position, with a Gaussian",
        _local_p,
        options=dict(w=8),
        sizes=dict(tile=64),  # queries whose keys are gathered at once
        roles=("cross",),
        why="it predicts a position in another sequence",
        supports=(),
    ),
    "sparse_strided": Entry(
        "sparse:Strided",
        "the last l keys, and every l-th",
        _strided,
        options=dict(l=8),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "sparse_fixed": Entry(
        "sparse:Fixed",
        "the query's own block of l, and the last c keys of the other blocks",
        _fixed,
        options=dict(l=8, c=2),
        at_most=dict(c="l"),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "sparse_random": Entry(
        "sparse:Random",
        "blocks of b: the neighbours, the first, and r at random",
        _random,
        options=dict(b=4, r=2, seed=0),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "linear": Entry(
        "linear:Linear",
        "phi(q) (phi(k)^T v), phi = elu + 1",
        _linear,
        sizes=dict(chunk=64),  # positions by which a causal sum advances
        supports=("mup",),
    ),
    "performer": Entry(
        "linear:Performer",
        "phi(q) (phi(k)^T v), phi = m random features of exp",
        _performer,
        options=dict(m=64, seed=0),
        sizes=dict(chunk=64),
        supports=("rotary", "mup"),
    ),
}


def pieces(text: str) -> list[str]:
    """The mechanisms of layers 0, 1, ..., which a stack repeats.

    The comma also separates options: "linear,sparse_fixed:l=8,c=2,local" has three mechanisms.
    """
    out: list[str] = []
    for part in text.split(","):
        if out and "=" in part.partition(":")[0]:  # one more option
            out[-1] += f",{part}"
        else:
            out.append(part.strip())
    return out


def of_layer(text: str, layer: int) -> str:
    """The mechanism of one layer."""
    every = pieces(text)
    return every[layer % len(every)]


def parse(text: str) -> tuple[str, dict[str, Number]]:
    """The name of one mechanism and the options that a config gives it, as in "local:w=32".

    Raises:
      UsageError: the mechanism or an option does not exist, or a value is out of range.
    """
    if len(pieces(text)) > 1:
        raise UsageError(f"{text!r} has {len(pieces(text))} mechanisms, but one is needed.")
    name, _, rest = text.partition(":")
    if name not in MECHANISMS:
        raise UsageError(f"there is no attention {name!r}: {near(name, MECHANISMS)}")
    defaults = MECHANISMS[name].options
    options = {}
    for part in rest.split(",") if rest else []:
        option, _, value = (x.strip() for x in part.partition("="))
        if option not in defaults:
            known = ", ".join(defaults) or "none"
            raise UsageError(
                f"attention {name} has no option {option!r} in {text!r}: it has {known}."
            )
        options[option] = _number(option, value, defaults[option], text)
    full = {**defaults, **options}
    for small, large in MECHANISMS[name].at_most.items():
        bound = full[large] if isinstance(large, str) else large
        if full[small] > bound:
            what = f"{large}, which is {bound}" if isinstance(large, str) else bound
            raise UsageError(f"{small} in {text!r} can be at most {what}.")
    return name, options


def _number(option: str, value: str, default: Number, text: str) -> Number:
    """The value of an option, of its default's type: whole from 1 (a seed from 0), or above 0."""
    if isinstance(default, int):
        least = 0 if option == "seed" else 1
        if value.isdecimal() and int(value) >= least:
            return int(value)
        raise UsageError(f"{option} in {text!r} must be a whole number from {least}.")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{option} in {text!r} must be a number above 0.")
    return number


def check(text: str, role: str, d_k: int, partners: Mapping[str, str]) -> None:
    """Refuses a role that one mechanism cannot play, and what it cannot be combined with.

    Args:
      role: encoder, decoder or cross.
      d_k: width of a head's queries.
      partners: what the config combines it with, of `Entry.supports`, and by which setting.

    Raises:
      UsageError: says why, and what can be used instead.
    """
    name, _ = parse(text)
    entry = MECHANISMS[name]
    if role not in entry.roles:
        able = ", ".join(n for n, e in MECHANISMS.items() if role in e.roles)
        raise UsageError(f"{name} cannot be {role}_attention, as {entry.why}: use one of {able}.")
    if entry.halves and d_k % 2:
        raise UsageError(
            f"{role}_attention={text} halves the queries and keys of a head, so their width must "
            f"be even, not {d_k}."
        )
    for partner, setting in partners.items():
        if partner not in entry.supports:
            able = ", ".join(
                n for n, e in MECHANISMS.items() if role in e.roles and partner in e.supports
            )
            raise UsageError(
                f"{role}_attention={text} cannot be combined with {setting}: change the latter, or "
                f"set {role}_attention to one of {able}."
            )


def products(text: str, shape: Shape) -> Number:
    """Multiply-adds of one head of a mechanism in the forward pass."""
    return MECHANISMS[parse(text)[0]].products(attributes(text), shape)


def attributes(text: str) -> dict[str, Number]:
    """The attributes that the module of a mechanism is built with: its sizes and its options."""
    name, options = parse(text)
    return {**MECHANISMS[name].sizes, **MECHANISMS[name].options, **options}


def build(text: str) -> Any:
    """The Flax module of a mechanism."""
    where = MECHANISMS[parse(text)[0]].where
    return implementation(where, "t2t_jax.attention")(**attributes(text))
