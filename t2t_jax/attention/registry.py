"""The attention mechanisms by name, without JAX: roles, options, supported combinations, cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from t2t_jax.attention import costs, reach
from t2t_jax.attention.costs import Number, Options, Shape, gathered, sums

SELF, ALL = ("encoder", "decoder"), ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Entry:
    """A mechanism.

    Attributes:
      where: `file:name` of a class, or of a function that returns a `Reach`, with a file of this
        folder or the path of another.
      about: what it computes, in a few words.
      products: the multiply-adds of one head in the forward pass, counted as in `costs.py`.
      options: what a config may set, with the defaults; a value has the type of its default.
      sizes: its other attributes, chosen for speed; a config cannot set them.
      at_most: for an option, its upper bound: another option, or a number.
      capacity: the option that says how many positions a sequence can have; empty if any number.
      halves: whether it cuts queries and keys into halves, so that d_k must be even.
      roles: the attention layers of Figure 1 that can use it.
      why: why the others cannot.
      changing: the entries of its state that a step of cross-attention changes. If there are any,
        a query depends on those before it, and the decoder must be recurrent.
      gates: the number of features that it needs for each key and head beside the d_k of the key, a
        function of d_k; `models/multihead.py` projects them and appends them to the key.
      supports: what it can be combined with: `rotary` positions; a `bias` that a position scheme
        adds to the scores; `dropout` of the weights; `mup`, which has no learning rate for a
        mechanism's own matrices; `documents` whose positions do not see other documents; and a
        `latent` (`models/latent.py`): scores are functions of q k^T / d_k^power with the attribute
        `power`; states hold keys and values of fewer heads as they are, named k... and v...
    """

    where: str
    about: str
    products: Callable[[Options, Shape], Number] = lambda o, s: s.T * s.S * (s.d_k + s.d_v)
    options: Options = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    at_most: Mapping[str, str | Number] = field(default_factory=dict)
    capacity: str = ""
    halves: bool = False
    roles: tuple[str, ...] = ALL
    why: str = ""
    changing: tuple[str, ...] = ()
    gates: Callable[[int], int] = lambda d_k: 0
    supports: tuple[str, ...] = ("rotary", "bias", "dropout", "mup", "documents", "latent")


_SCALED = dict(power=0.5)  # the paper's
IN_ONE_SEQUENCE: dict[str, Any] = dict(
    roles=SELF, why="its pattern relates positions of one sequence"
)
_MEMORY: dict[str, Any] = dict(
    products=costs.memory,
    sizes=dict(chunk=64),
    roles=SELF,
    why="its memory decays from each position of one sequence to the next",
    supports=("mup", "documents"),
)
_DELTA = _MEMORY | dict(
    products=costs.delta,
    roles=("decoder",),
    why="it erases what earlier positions of the same sequence have stored",
)


def pattern(function: Callable[..., reach.Reach], options: Options) -> dict[str, Any]:
    """What a function of the options that returns a `Reach` says of its entry."""
    left_out = () if function(**options).in_documents else ("documents",)
    return IN_ONE_SEQUENCE | dict(
        products=lambda o, s: function(**o).products(s),
        options=options,
        supports=tuple(x for x in Entry.supports if x not in left_out),
    )


def _pattern(name: str, about: str, options: Options, **rest: Any) -> Entry:
    """The entry of a function of `reach.py`."""
    made = pattern(getattr(reach, name), options)
    return Entry(f"reach:{name}", about, **made | rest)


def _additive(o: Options, s: Shape) -> Number:
    return (s.T + s.S) * s.d_k**2 + gathered(o, s, s.S)


def _block_select(o: Options, s: Shape) -> Number:
    blocks = -(-s.S // o["b"])
    return s.T * blocks * s.d_k + gathered(o, s, (1 + min(o["n"], blocks)) * o["b"])


def _native_sparse(o: Options, s: Shape) -> Number:
    blocks = -(-s.S // o["b"])
    compressed = blocks * (o["b"] * (s.d_k**2 + s.d_v**2) + s.T * (s.d_k + s.d_v))
    return compressed + _block_select(o, s) + reach.local(int(o["w"])).products(s)


def _lsh(o: Options, s: Shape) -> Number:
    seen = o["r"] * o["c"] * (1 if s.causal else 2) + 1
    return (s.T + s.S) * s.d_k * o["r"] * -(-o["b"] // 2) + gathered(o, s, seen)


def _nystrom(o: Options, s: Shape) -> Number:
    m = o["m"]
    iterations = 6 * 4 * m**3
    return (s.T + s.S) * m * s.d_k + (s.T + s.S + m) * m * (s.d_k + s.d_v) + iterations


MECHANISMS: dict[str, Entry] = {
    "scaled_dot_product": Entry(
        "dense:ScaledDotProduct",
        "softmax(q k^T / d_k^power) v; power=0.5 is the paper's",
        options=_SCALED,
    ),
    "dot_product": Entry("dense:DotProduct", "softmax(q k^T) v"),
    "general": Entry(
        "dot_product:General",
        "softmax(q W k^T) v",
        lambda o, s: s.S * s.d_k**2 + s.T * s.S * (s.d_k + s.d_v),
        supports=("bias", "dropout", "documents"),
    ),
    "cosine": Entry(
        "dot_product:Cosine",
        "softmax(tau cos(q, k)) v, tau learned from its initial value",
        options=dict(tau=10.0),
        supports=("rotary", "bias", "dropout", "mup", "documents"),
    ),
    "softcap": Entry(
        "dot_product:Softcap",
        "softmax(cap tanh(q k^T / (d_k^power cap))) v: no score exceeds cap",
        options=dict(cap=50.0, **_SCALED),
    ),
    "forgetting": Entry(
        "dot_product:Forgetting",
        "softmax(q k^T / d_k^power + sum of log f from key to query) v, f a gate of each key",
        options=_SCALED,
        roles=("decoder",),
        why="its scores decay from each position of one sequence to the later ones",
        gates=lambda d_k: 1,
        supports=("rotary", "bias", "dropout", "mup", "documents"),
    ),
    "softmax1": Entry(
        "softmax:Softmax1", "a softmax with 1 added to its denominator", options=_SCALED
    ),
    "sink": Entry(
        "softmax:Sink",
        "a softmax with exp of a learned logit added to its denominator",
        options=_SCALED,
    ),
    "sparsemax": Entry(
        "softmax:Sparsemax", "the nearest point of the simplex: many weights are 0", options=_SCALED
    ),
    "entmax": Entry("softmax:Entmax", "1.5-entmax, between softmax and sparsemax", options=_SCALED),
    "talking_heads": Entry(
        "dot_product:TalkingHeads",
        "heads mixed by matrices before and after the softmax",
        lambda o, s: s.T * s.S * (s.d_k + s.d_v + 2 * s.h),
        supports=("rotary", "bias", "dropout", "documents", "latent"),
    ),
    "differential": Entry(
        "dot_product:Differential",
        "the difference of two softmaxes, each of half of d_k, normalised",
        lambda o, s: s.T * s.S * (s.d_k + 2 * s.d_v),
        options=dict(lambda_init=0.8),
        at_most=dict(lambda_init=0.99),
        halves=True,
        # rotary would give the halves other wavelengths; lambda, a product of vectors [d_k / 2],
        # would change with the width under muP
        supports=("bias", "dropout", "documents"),
    ),
    "additive": Entry(
        "additive:Additive",
        "scores v^T tanh(W_q q + W_k k)",
        _additive,
        sizes=dict(tile=128),  # queries whose scores are in memory at once
        supports=("bias", "documents"),
    ),
    "coverage": Entry(
        "additive:Coverage",
        "v^T tanh(W_q q + W_k k + w_c c), c: the weights that a key had at earlier queries",
        _additive,
        sizes=dict(tile=1),  # of additive: the scores of one query are in memory at once
        roles=("cross",),
        why="it sums the weights that keys of another sequence had at earlier queries",
        changing=("coverage",),
        supports=(),
    ),
    "local": _pattern(
        "local",
        "keys within distance w; as cross-attention, local-m (Luong et al. 2015)",
        dict(w=16),
        roles=ALL,
    ),
    "local_p": Entry(
        "local:LocalPredictive",
        "a window of w around a predicted position, with a Gaussian",
        lambda o, s: s.T * (s.d_k**2 + s.d_k) + gathered(o, s, 2 * o["w"] + 1),
        options=dict(w=8),
        sizes=dict(tile=64),  # queries whose keys are gathered at once
        roles=("cross",),
        why="it predicts a position in another sequence",
        supports=(),
    ),
    "dilated": _pattern("dilated", "keys at distances 0, r, ..., w r", dict(w=8, r=2), roles=ALL),
    "block_local": _pattern("block_local", "the query's own block of b keys", dict(b=16)),
    "streaming": _pattern("streaming", "keys within distance w, and the first g", dict(w=16, g=4)),
    "longformer": _pattern(
        "longformer", "streaming, where the first g queries also see every key", dict(w=16, g=1)
    ),
    "sparse_strided": _pattern(
        "sparse_strided", "keys within distance l, and at multiples of l", dict(l=8)
    ),
    "sparse_fixed": _pattern(
        "sparse_fixed",
        "the query's own block of l, and the last c keys of the other blocks",
        dict(l=8, c=2),
        at_most=dict(c="l"),
    ),
    "sparse_random": _pattern(
        "bigbird", "blocks of b: the neighbours, the first, and r at random", dict(b=4, r=2, seed=0)
    ),
    "bigbird": _pattern(
        "bigbird",
        "blocks of b: w on either side, the first g, and r at random",
        dict(b=4, w=1, g=1, r=2, seed=0),
    ),
    "block_select": Entry(
        "gathered:BlockSelect",
        "the query's own block of b, and the n with the highest mean score",
        _block_select,
        options=dict(b=8, n=2),
        sizes=dict(tile=64),
        **IN_ONE_SEQUENCE,
        supports=("rotary", "mup"),
    ),
    "native_sparse": Entry(
        "native_sparse:NativeSparse",
        "blocks of b compressed, the n best of them, and a window w, each gated by the query",
        _native_sparse,
        options=dict(b=8, n=2, w=16),
        sizes=dict(tile=64),
        roles=("decoder",),
        why="its compressed blocks are of the same sequence and end before the query",
        gates=lambda d_k: 3,
        supports=("rotary",),
    ),
    "lsh": Entry(
        "gathered:LSH",
        "in each of r rounds, the c nearest keys whose hash, one of b, is the query's",
        _lsh,
        options=dict(b=4, c=4, r=2, seed=0),
        sizes=dict(tile=64),
        **IN_ONE_SEQUENCE,
        supports=("rotary", "mup"),
    ),
    "top_k": Entry(
        "softmax:TopK", "the k highest scores of each query", options=dict(k=8, **_SCALED)
    ),
    "linear": Entry(
        "linear:Linear",
        "phi(q) (phi(k)^T v), phi = elu + 1",
        lambda o, s: sums(s.d_k, o, s),
        sizes=dict(chunk=64),  # positions by which a causal sum advances
        supports=("mup", "documents"),
    ),
    "performer": Entry(
        "linear:Performer",
        "phi(q) (phi(k)^T v), phi = m random features of exp",
        lambda o, s: (s.T + s.S) * o["m"] * s.d_k + sums(o["m"], o, s),
        options=dict(m=64, seed=0),
        sizes=dict(chunk=64),
        supports=("rotary", "mup", "documents"),
    ),
    "cosformer": Entry(
        "linear:Cosformer",
        "phi(q) (phi(k)^T v), phi_i = relu at an angle of pi i / 2M",
        lambda o, s: sums(2 * s.d_k, o, s),
        options=dict(M=512),
        capacity="M",
        sizes=dict(chunk=64),
        roles=SELF,
        why="its weights fall with the distance of positions in one sequence",
        supports=("mup", "documents"),
    ),
    "taylor": Entry(
        "linear:Taylor",
        "phi(q) (phi(k)^T v), phi: exp to second order, for a small d_k",
        lambda o, s: sums(1 + s.d_k + s.d_k**2, o, s),
        sizes=dict(chunk=64),
        supports=("rotary", "mup", "documents"),
    ),
    "retention": Entry(
        "memory:Retention",
        "q S, memory S = a S + k^T v, a decay a for each head",
        **_MEMORY | dict(supports=("rotary", "mup", "documents")),
    ),
    "gated_linear": Entry(
        "memory:GatedLinear",
        "q S, S = diag(a) S + k^T v, a gate for each feature",
        gates=lambda d_k: d_k,
        **_MEMORY | dict(sizes=dict(chunk=16)),  # each pair has d_k decays
    ),
    "mamba2": Entry(
        "memory:Mamba2",
        "q S, S = a S + dt k^T v, a gate for step dt and decay a",
        gates=lambda d_k: 1,
        **_MEMORY | dict(supports=("rotary", "mup", "documents")),
    ),
    "delta": Entry(
        "memory:Delta",
        "q S, S = (I - b k^T k) S + b k^T v, a gate b",
        gates=lambda d_k: 1,
        **_DELTA,
    ),
    "gated_delta": Entry(
        "memory:GatedDelta",
        "delta, after a decay of S by a second gate",
        gates=lambda d_k: 2,
        **_DELTA,
    ),
    "kimi_delta": Entry(
        "memory:KimiDelta",
        "delta, after a decay of S by a gate for each feature",
        gates=lambda d_k: d_k + 1,
        **_DELTA | dict(sizes=dict(chunk=16)),  # each pair has d_k decays
    ),
    "linformer": Entry(
        "lowrank:Linformer",
        "softmax(q (E k)^T) F v, E and F project n keys to k",
        lambda o, s: (s.T + s.S) * o["k"] * (s.d_k + s.d_v),
        options=dict(n=512, k=64),
        capacity="n",
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
