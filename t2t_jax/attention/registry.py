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


def _none(d_k: int) -> int:
    return 0


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
      gates: how many features it needs of each key and head beside the d_k of the key, a function
        of d_k; `models/multihead.py` projects them and appends them to the key.
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
    gates: Callable[[int], int] = _none
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


def _dilated(o: Options, s: Shape) -> Number:
    b = max(o["w"], o["block"])
    return o["r"] * _whole(-(-s.T // o["r"]), b) * _near(b, s.causal) * (s.d_k + s.d_v)


def _block_local(o: Options, s: Shape) -> Number:
    return _whole(s.T, o["b"]) * o["b"] * (s.d_k + s.d_v)


def _streaming(o: Options, s: Shape) -> Number:
    return _local(o, s) + _whole(s.T, max(o["w"], o["block"])) * o["g"] * (s.d_k + s.d_v)


def _longformer(o: Options, s: Shape) -> Number:
    first = 0 if s.causal else min(s.T, o["g"]) * s.S
    return _streaming(o, s) + first * (s.d_k + s.d_v)


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


def _bigbird(o: Options, s: Shape) -> Number:
    b, blocks = o["b"], -(-max(s.T, s.S) // o["b"])
    window = (1 + (1 if s.causal else 2) * min(o["w"], blocks)) * b
    first = 0 if s.causal else min(s.T, o["g"] * b) * s.S
    pattern = _whole(s.T, b) * (window + (o["g"] + o["r"]) * b)
    return (pattern + first) * (s.d_k + s.d_v)


def _block_select(o: Options, s: Shape) -> Number:
    blocks = -(-s.S // o["b"])
    seen = (1 + min(o["n"], blocks)) * o["b"]
    return s.T * blocks * s.d_k + _gathered(o, s, seen)


def _lsh(o: Options, s: Shape) -> Number:
    seen = o["r"] * o["c"] * (1 if s.causal else 2) + 1
    return (s.T + s.S) * s.d_k * o["r"] * -(-o["b"] // 2) + _gathered(o, s, seen)


def _gathered(o: Options, s: Shape, seen: Number) -> Number:
    """Products of each query with its own list of keys, tile by tile."""
    return _whole(s.T, min(s.T, o["tile"])) * seen * (s.d_k + s.d_v)


def _linear(o: Options, s: Shape) -> Number:
    return _sums(s.d_k, o["chunk"], s)


def _performer(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * o["m"] * s.d_k + _sums(o["m"], o["chunk"], s)


def _cosformer(o: Options, s: Shape) -> Number:
    return _sums(2 * s.d_k, o["chunk"], s)


def _taylor(o: Options, s: Shape) -> Number:
    return _sums(1 + s.d_k + s.d_k**2, o["chunk"], s)


def _memory(o: Options, s: Shape) -> Number:
    """The memory is read and written, and the pairs within each chunk are computed."""
    T = _whole(max(s.T, s.S), o["chunk"])
    passes = 1 if s.causal else 2
    return passes * T * (2 * s.d_k * s.d_v + o["chunk"] * (s.d_k + s.d_v))


def _delta(o: Options, s: Shape) -> Number:
    """Each chunk also reads the memory at its keys, and solves a triangular system."""
    T, C = _whole(max(s.T, s.S), o["chunk"]), o["chunk"]
    return _memory(o, s) + T * (s.d_k * s.d_v + C * s.d_k) + T * (C - 1) // 2 * s.d_v


def _linformer(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * o["k"] * (s.d_k + s.d_v)


def _nystrom(o: Options, s: Shape) -> Number:
    m = o["m"]
    landmarks, iterations = (s.T + s.S) * m * s.d_k, 6 * 4 * m**3
    return landmarks + (s.T + s.S + m) * m * (s.d_k + s.d_v) + iterations


def _whole(n: Number, b: Number) -> Number:
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


def _one(d_k: int) -> int:
    """One gate a key."""
    return 1


def _two(d_k: int) -> int:
    """Two gates a key."""
    return 2


def _each(d_k: int) -> int:
    """A gate for each feature of a key."""
    return d_k


_ONE_SEQUENCE = "its pattern relates positions of one sequence"
_DECAY = "its memory decays from each position of one sequence to the next"
_ERASES = "it erases what earlier positions of the same sequence have stored"

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
    "dilated": Entry(
        "subsequences:Dilated",
        "keys at distances 0, r, ..., w r",
        _dilated,
        options=dict(w=8, r=2),
        sizes=dict(block=16),
    ),
    "block_local": Entry(
        "subsequences:BlockLocal",
        "the query's own block of b keys",
        _block_local,
        options=dict(b=16),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "streaming": Entry(
        "streaming:Streaming",
        "keys at distance w at most, and the first g",
        _streaming,
        options=dict(w=16, g=4),
        sizes=dict(block=16),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "longformer": Entry(
        "streaming:Longformer",
        "the same, where the first g queries see every key",
        _longformer,
        options=dict(w=16, g=1),
        sizes=dict(block=16),
        roles=SELF,
        why=_ONE_SEQUENCE,
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
    "bigbird": Entry(
        "bigbird:BigBird",
        "blocks of b: w on either side, the first g, and r at random",
        _bigbird,
        options=dict(b=4, w=1, g=1, r=2, seed=0),
        roles=SELF,
        why=_ONE_SEQUENCE,
    ),
    "block_select": Entry(
        "block_select:BlockSelect",
        "the query's own block of b, and the n with the highest mean score",
        _block_select,
        options=dict(b=8, n=2),
        sizes=dict(tile=64),
        roles=SELF,
        why=_ONE_SEQUENCE,
        supports=("rotary", "mup"),
    ),
    "lsh": Entry(
        "lsh:LSH",
        "the c nearest keys of the query's bucket, of b, in each of r rounds",
        _lsh,
        options=dict(b=4, c=4, r=2, seed=0),
        sizes=dict(tile=64),
        roles=SELF,
        why=_ONE_SEQUENCE,
        supports=("rotary", "mup"),
    ),
    "top_k": Entry(
        "top_k:TopK",
        "the k highest scores of each query",
        options=dict(k=8),
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
    "cosformer": Entry(
        "features:Cosformer",
        "phi(q) (phi(k)^T v), phi_i = relu at an angle of pi i / 2M",
        _cosformer,
        options=dict(M=512),
        sizes=dict(chunk=64),
        roles=SELF,
        why="its weights fall with the distance of positions in one sequence",
        supports=("mup",),
    ),
    "taylor": Entry(
        "features:Taylor",
        "phi(q) (phi(k)^T v), phi: exp to second order, for a small d_k",
        _taylor,
        sizes=dict(chunk=64),
        supports=("rotary", "mup"),
    ),
    "retention": Entry(
        "gated:Retention",
        "q S, memory S = a S + k^T v, a decay a for each head",
        _memory,
        sizes=dict(chunk=64),
        roles=SELF,
        why=_DECAY,
        supports=("rotary", "mup"),
    ),
    "gated_linear": Entry(
        "gated:GatedLinear",
        "q S, S = diag(a) S + k^T v, a gate for each feature",
        _memory,
        sizes=dict(chunk=16),  # each pair has d_k decays
        roles=SELF,
        why=_DECAY,
        gates=_each,
        supports=("mup",),
    ),
    "mamba2": Entry(
        "gated:Mamba2",
        "q S, S = a S + dt k^T v, a gate for step dt and decay a",
        _memory,
        sizes=dict(chunk=64),
        roles=SELF,
        why=_DECAY,
        gates=_one,
        supports=("rotary", "mup"),
    ),
    "delta": Entry(
        "delta:Delta",
        "q S, S = (I - b k^T k) S + b k^T v, a gate b",
        _delta,
        sizes=dict(chunk=64),
        roles=("decoder",),
        why=_ERASES,
        gates=_one,
        supports=("mup",),
    ),
    "gated_delta": Entry(
        "delta:GatedDelta",
        "delta, after a decay of S by a second gate",
        _delta,
        sizes=dict(chunk=64),
        roles=("decoder",),
        why=_ERASES,
        gates=_two,
        supports=("mup",),
    ),
    "linformer": Entry(
        "lowrank:Linformer",
        "softmax(q (E k)^T) F v, E and F project n keys to k",
        _linformer,
        options=dict(n=512, k=64),
        roles=("encoder", "cross"),
        why="its projections mix all positions of a sequence, later ones too",
        supports=("dropout",),
    ),
    "nystrom": Entry(
        "lowrank:Nystrom",
        "softmax over m landmarks, the means of segments",
        _nystrom,
        options=dict(m=32),
        roles=("encoder",),
        why="its landmarks are means of all queries, which a decoder does not have yet",
        supports=("mup",),
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


def gates(text: str, d_k: int) -> int:
    """Features of each key and head that a mechanism needs beside the d_k of the key."""
    return MECHANISMS[parse(text)[0]].gates(d_k)


def attributes(text: str) -> dict[str, Number]:
    """The attributes that the module of a mechanism is built with: its sizes and its options."""
    name, options = parse(text)
    return {**MECHANISMS[name].sizes, **MECHANISMS[name].options, **options}


def build(text: str) -> Any:
    """The Flax module of a mechanism."""
    where = MECHANISMS[parse(text)[0]].where
    return implementation(where, "t2t_jax.attention")(**attributes(text))
