"""The mechanism that a config names, without JAX: parsed, checked and built.

A config names a mechanism and, after a colon, options that differ from the defaults: "local:w=32".
Several such pieces, separated by commas, alternate over the layers of a stack: "linear,local:w=32".
"""

import math
from collections.abc import Mapping
from typing import Any

from t2t_jax import parts
from t2t_jax.attention.costs import Number, Shape
from t2t_jax.attention.reach import Reach
from t2t_jax.attention.registry import MECHANISMS, Entry
from t2t_jax.errors import UsageError, near
from t2t_jax.parts import implementation


def pieces(text: str) -> list[str]:
    """The mechanisms of layers 0, 1, ...; a deeper stack repeats the list.

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
    options = parts.options(rest, defaults, f"attention {name}", repr(text))
    full = {**defaults, **options}
    for small, large in MECHANISMS[name].at_most.items():
        bound = full[large] if isinstance(large, str) else large
        if full[small] > bound:
            what = f"{large}, which is {bound}" if isinstance(large, str) else bound
            raise UsageError(f"{small} in {text!r} can be at most {what}.")
    return name, options


def check(
    text: str, role: str, d_k: int, partners: Mapping[str, str], recurrent: bool = False
) -> None:
    """Checks that one mechanism can take a role and can be combined with other settings.

    Args:
      role: encoder, decoder or cross.
      d_k: width of a head's queries.
      partners: what the config uses of `Entry.supports`, each with the setting that asks for it.
      recurrent: whether the decoder is recurrent, so that it computes one query after another.

    Raises:
      UsageError: it cannot; the message says why, and what can be used instead.
    """
    name, mechanism = parse(text)[0], entry(text)
    if role not in mechanism.roles:
        able = ", ".join(
            n for n, e in MECHANISMS.items() if role in e.roles and (recurrent or not e.changing)
        )
        why = f", as {mechanism.why}" if mechanism.why else ""
        raise UsageError(f"{name} cannot be {role}_attention{why}: use one of {able}.")
    if (reach := _reach(text)) and role == "cross" and not reach.near_only:
        raise UsageError(
            f"cross_attention={text} has kept keys, multiples, random blocks or rows, which "
            "cross-attention cannot decode: choose other options."
        )
    if mechanism.changing and not recurrent:
        raise UsageError(
            f"{role}_attention={text} needs a decoder that computes one query after another: use "
            "architecture=recurrent, or another mechanism."
        )
    if mechanism.halves and d_k % 2:
        raise UsageError(
            f"{role}_attention={text} halves the queries and keys of a head, so their width must "
            f"be even, not {d_k}."
        )
    for partner, setting in partners.items():
        if partner not in mechanism.supports:
            able = ", ".join(
                n for n, e in MECHANISMS.items() if role in e.roles and {*partners} <= {*e.supports}
            )
            raise UsageError(
                f"{role}_attention={text} cannot be combined with {setting}: change the latter, or "
                f"set {role}_attention to one of {able}."
            )


def entry(text: str) -> Entry:
    """The entry of one mechanism, whatever its options."""
    return MECHANISMS[parse(text)[0]]


def attributes(text: str) -> dict[str, Number]:
    """The attributes that the module of a mechanism is built with: its sizes and its options."""
    name, options = parse(text)
    return {**MECHANISMS[name].sizes, **MECHANISMS[name].options, **options}


def products(text: str, shape: Shape) -> Number:
    """Multiply-adds of one head of a mechanism in the forward pass."""
    return entry(text).products(attributes(text), shape)


def capacity(text: str) -> tuple[str, Number]:
    """The option of a mechanism that limits its positions, and how many it has."""
    option = entry(text).capacity
    return option, attributes(text)[option] if option else math.inf


def _reach(text: str) -> Reach | None:
    """What a pattern reaches, without JAX; None of another mechanism."""
    where = entry(text).where
    if not where.startswith("reach:") and not parts.in_file(where):
        return None
    function = implementation(where, "t2t_jax.attention")
    return None if isinstance(function, type) else function(**attributes(text))


def build(text: str) -> Any:
    """The Flax module of a mechanism."""
    if reach := _reach(text):
        from t2t_jax.attention.patterns import Pattern  # which imports JAX

        return Pattern(reach)
    return implementation(entry(text).where, "t2t_jax.attention")(**attributes(text))
