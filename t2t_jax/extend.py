"""Decorators with which a file outside of this package adds to its tables.

    @mechanism("distance", options=dict(tau=0.1))
    class Distance(DotProduct): ...

The name is then a value of the config fields that the table serves. The decorated class or function
must be at the top level of its file: its code is hashed as a part of the runs that use it.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from t2t_jax import parts
from t2t_jax.attention import registry
from t2t_jax.data.corpora import CORPORA, LIKELIHOODS, TRANSLATION, Corpus
from t2t_jax.errors import UsageError

Decorator = Callable[[Any], Any]

PARTS: Mapping[str, dict[str, Any]] = {
    "norm": parts.NORMS,
    "norm_placement": parts.NORM_PLACEMENTS,
    "feed_forward": parts.FEED_FORWARD,
    "positions": parts.POSITIONS,
    "optimizer": parts.OPTIMIZERS,
    "schedule": parts.SCHEDULES,
    "output_rule": parts.OUTPUT_RULES,
    "cell": parts.CELLS,
}
TABLES = {"attention": registry.MECHANISMS, **PARTS, "corpus": CORPORA}
TABLES["architecture"] = parts.ARCHITECTURES
TABLE_OF = {  # the table that has the values of a config field
    **dict.fromkeys(("encoder_attention", "decoder_attention", "cross_attention"), "attention"),
    **{name: name for name in TABLES if name != "attention"},
    "qk_norm": "norm",
}
_TAKEN = {table: {"none", *entries} for table, entries in TABLES.items()}  # by the package


def mechanism(name: str, about: str = "", **fields: Any) -> Decorator:
    """Adds an attention mechanism: a subclass of `attention.mechanism.Mechanism`, or a pattern.

    A pattern is a function of the options that returns an `attention.reach.Reach`, from which its
    cost follows. A class inherits what its base class declares, if that is a mechanism, too: a
    subclass with matrices or products of its own declares `products`, and `supports` without mup.
    The fields belong to `attention.registry.Entry`, such as `options=dict(tau=0.1)`.
    """

    def add(implementation: Any) -> Any:
        if isinstance(implementation, type):
            base = _inherited(implementation)
            options = {**base.get("options", {}), **fields.get("options", {})}
            declared = {**base, **fields, "options": options}
            if missing := [x for x in ("products", "supports") if x not in declared]:
                raise UsageError(
                    f"mechanism {name!r} has no base class with a declaration, so it must declare "
                    f"{' and '.join(missing)} itself (`t2t-jax help mechanism`)."
                )
            methods = {getattr(implementation, x).__qualname__ for x in ("step", "step_cross")}
            undefined = methods == {"Mechanism.step", "Mechanism.step_cross"}
            if undefined and "cross" in declared.get("roles", registry.ALL):
                raise UsageError(
                    f"mechanism {name!r} has no step_cross, with which cross-attention decodes: "
                    "define it, or declare the mechanism without the role cross."
                )
        else:
            options = fields.get("options", {})
            why = {"why": ""} if "roles" in fields else {}
            declared = registry.pattern(implementation, options) | why | fields
            if "cross" in declared["roles"] and not implementation(**options).near_only:
                raise UsageError(
                    f"pattern {name!r} has kept keys, multiples, random blocks or rows, which "
                    "cross-attention cannot decode: declare it without the role cross."
                )
        entry = lambda where: registry.Entry(**declared | dict(where=where, about=about))  # noqa: E731
        return _adding("attention", name, entry)(implementation)

    return add


def _inherited(mechanism: type) -> dict[str, Any]:
    """Returns the declaration of the nearest base class that is a mechanism with an entry."""
    entries = {entry.where: entry for entry in registry.MECHANISMS.values()}
    for base in mechanism.__mro__[1:]:
        home, _, file = base.__module__.rpartition(".")
        if home != "t2t_jax.attention":
            file = getattr(sys.modules[base.__module__], "__file__", "")
        if entry := entries.get(f"{file}:{base.__qualname__}"):
            supports = tuple(x for x in entry.supports if x != "latent")  # of its own scores
            return vars(entry) | {"supports": supports}
    return {}


def architecture(name: str, *, products: Any, fields: str = "", **others: Any) -> Decorator:
    """Adds an architecture: a subclass of `models.interface.Model`.

    The arguments are fields of `parts.Architecture`: `products` is a function at the top level of
    the file, and `fields` are separated by spaces.
    """

    def entry(where: str) -> parts.Architecture:
        return parts.Architecture(where, _location(products), tuple(fields.split()), **others)

    return _adding("architecture", name, entry)


def cell(name: str, about: str = "", *, products: Callable[[int, int], int]) -> Decorator:
    """Adds a recurrent cell: a subclass of `models.recurrent.LSTM`.

    `products` is a function of (d_in, width): the multiply-adds of the cell at one position.
    """
    return _adding("cell", name, lambda where: parts.Cell(where, about, products=products))


def _part(table: str, kind: Callable[..., Any] = parts.Part) -> Callable[..., Decorator]:
    """Returns a decorator of a name, a line about it, and fields of its entry in a table."""

    def declare(name: str, about: str = "", **fields: Any) -> Decorator:
        return _adding(table, name, lambda where: kind(where, about, **fields))

    return declare


norm = _part("norm")
"""Adds a norm: a Flax module with the attributes of `models.norms.RMSNorm`.

The field is `export` of `parts.Part`.
"""

norm_placement = _part("norm_placement", parts.NormPlacement)
"""Adds a flow of a layer: a function as `models.transformer.post`.

The fields are `final_norm`, `products`, `mup` and `export` of `parts.NormPlacement`.
"""

schedule = _part("schedule")
"""Adds a schedule of the learning rate: a function of (step, warmup, steps), float32 scalars.

Its value is a factor on the peak learning rate, in the warm-up as well; the first step is 1.
"""

output_rule = _part("output_rule")
"""Adds a rule for outputs: a class as in `inference.well_formed`.

The corpora that it is for declare it: `@corpus(..., output_rule=name)`.
"""


def feed_forward(name: str, about: str = "", **fields: Any) -> Decorator:
    """Adds a feed-forward layer: its activation, a function of an array, or a Flax module.

    A module has the attributes and the call of `models.feed_forward.FeedForward`. It must declare
    `products`, and has no dropout of its own and no muP rules unless it declares them. The fields
    belong to `parts.FeedForward`: `gated` of an activation; the others of a module.
    """

    def add(implementation: Any) -> Any:
        def entry(where: str) -> parts.FeedForward:
            if isinstance(implementation, type):
                return parts.FeedForward(where, about, **{"dropout": False, **fields})
            products = parts.three_matrices if fields.get("gated") else parts.two_matrices
            own: dict[str, Any] = dict(activation=where, products=products) | fields
            return parts.FeedForward("feed_forward:FeedForward", about, **own)

        if isinstance(implementation, type) and "products" not in fields:
            raise UsageError(
                f"feed_forward {name!r} does not say what it costs: declare products, a function "
                "of (config.Model, L) that returns its multiply-adds on L positions."
            )
        return _adding("feed_forward", name, entry)(implementation)

    return add


def positions(
    name: str, kind: Literal["encode", "rotate", "bias"], about: str = "", **fields: Any
) -> Decorator:
    """Adds a position scheme, or another function to a scheme of the same file.

    The function has the signature of its kind in `models/positions.py`. The fields are `even`,
    `limited` and `export` of `parts.Positions`.
    """
    if kind not in ("encode", "rotate", "bias"):
        raise UsageError(f"positions {name!r} encode, rotate or add a bias, but not {kind!r}.")

    def entry(where: str) -> parts.Positions:
        other = parts.POSITIONS.get(name, parts.Positions(about))
        wheres = in_files(other)
        same_file = wheres and wheres[0].rpartition(":")[0] == where.rpartition(":")[0]
        scheme = other if same_file else parts.Positions(about)
        return replace(scheme, **{str(kind): where, **fields})

    return _adding("positions", name, entry)


def optimizer(name: str, about: str = "", mup: bool = False) -> Decorator:
    """Adds an optimizer: a function that returns an `optax.GradientTransformation`.

    The step subtracts its updates times the learning rate, so it is one of optax's `scale_by_...`;
    a whole optimizer, whose updates are added, gets -1 as its learning rate. It is not to clip
    gradients or decay weights, which the fields `clip_norm` and `weight_decay` do. The function's
    arguments without a default are among the fields `parts.OF_OPTIMIZERS`.
    """

    def add(function: Any) -> Any:
        arguments = inspect.signature(function).parameters.values()
        fields = tuple(x.name for x in arguments if x.default is x.empty)
        if others := [x for x in fields if x not in parts.OF_OPTIMIZERS]:
            raise UsageError(
                f"optimizer {name!r} has an argument {others[0]}, which is none of the fields "
                f"{', '.join(parts.OF_OPTIMIZERS)}: give it a default value."
            )
        entry = lambda where: parts.Optimizer(where, about, fields=fields, mup=mup)  # noqa: E731
        return _adding("optimizer", name, entry)(function)

    return add


def corpus(
    name: str,
    splits: str = "train dev test",
    files: Sequence[str | Path] = (),
    metrics: str = "",
    minimal_pairs: Callable[..., Any] | None = None,
    words: str = "",
    **fields: Any,
) -> Decorator:
    """Adds a corpus: a function of a split and of its options that yields its pairs.

    A pair is a source and a target text, and perhaps a mapping with annotations of it; with
    `documents=True`, the function yields the text of each document in place of a pair. The pairs
    must be the same every time. They are prepared again if the function's code changes.

    Args:
      splits: train and dev are required; every split that begins with test is a test set.
      files: paths, from the folder of the study file, of files that it reads; the pairs are
        prepared again if their content changes.
      metrics: names of the metrics that its runs keep, separated by commas; the first is the main
        one. By default they are of translations, or of documents.
      minimal_pairs: the function that returns its contrastive set, at the top level of the file.
      words: the vocabulary if it consists of whole words, separated by spaces.
      fields: `options`, `prompts` and other fields of `data.corpora.Corpus`.
    """

    def entry(where: str) -> Corpus:
        folder = Path(where.rpartition(":")[0]).parent
        own = LIKELIHOODS if fields.get("documents") else TRANSLATION
        return Corpus(
            where,
            tuple(x.strip() for x in metrics.split(",")) if metrics else own,
            splits=tuple(splits.split()),
            files=tuple(str(folder / path) for path in files),
            words=tuple(words.split()),
            minimal_pairs=_location(minimal_pairs) if minimal_pairs else "",
            **fields,
        )

    return _adding("corpus", name, entry)


def in_files(entry: Any) -> list[str]:
    """Returns the names in study files that an entry of a table refers to, as `/PATH.py:name`."""
    return [x for x in vars(entry).values() if isinstance(x, str) and parts.in_file(x)]


def _adding(table: str, name: str, entry: Callable[[str], Any]) -> Decorator:
    """Returns a decorator that adds the entry of what it decorates to a table."""
    if not name.isidentifier():
        raise UsageError(f"{table} {name!r} is not a name: use letters, digits and underscores.")
    if name in _TAKEN[table]:
        raise UsageError(f"{table} {name!r} exists in the package: choose another name.")

    def add(implementation: Any) -> Any:
        TABLES[table][name] = entry(_location(implementation))
        return implementation

    return add


def _location(implementation: Any) -> str:
    """Returns `/PATH.py:name` of a class or function, by which `parts.implementation` finds it."""
    module, name = sys.modules[implementation.__module__], implementation.__qualname__
    file = getattr(module, "__file__", None)
    if file is None or "." in name:
        raise UsageError(f"{name} must be defined at the top level of a file.")
    path = str(Path(file).resolve())
    sys.modules.setdefault(path, module)
    return f"{path}:{name}"
