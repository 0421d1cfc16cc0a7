"""A mechanism as a config names it, "local:w=32,...": read and checked without jax."""

from typing import Any

from t2t_jax.attention import MECHANISMS, TABLE
from t2t_jax.errors import UsageError, near


def parse(text: str) -> tuple[str, dict[str, int]]:
    """The name and the options given with it.

    Raises:
      UsageError: there is no such mechanism or option, or a value is not a whole number in range.
    """
    name, _, rest = text.partition(":")
    if name not in MECHANISMS:
        raise UsageError(f"there is no attention {name!r}: {near(name, MECHANISMS)}")
    options = {}
    for part in rest.split(",") if rest else []:
        option, _, value = (x.strip() for x in part.partition("="))
        if option not in TABLE[name].options:
            known = ", ".join(TABLE[name].options) or "none"
            raise UsageError(
                f"attention {name} has no option {option!r} in {text!r}: it has {known}."
            )
        least = 0 if option == "seed" else 1
        if not value.isdecimal() or int(value) < least:
            raise UsageError(f"{option} in {text!r} must be a whole number from {least}.")
        options[option] = int(value)
    full = {**TABLE[name].options, **options}
    for small, large in TABLE[name].at_most.items():
        if full[small] > full[large]:
            raise UsageError(f"{small} in {text!r} can be at most {large}, which is {full[large]}.")
    return name, options


def check(text: str, role: str, carried: list[str]) -> None:
    """Refuses what a mechanism cannot be.

    Args:
      role: encoder, decoder or cross.
      carried: what it is to be combined with: rotary, relative, drop.

    Raises:
      UsageError: says why, and what can be used.
    """
    name, _ = parse(text)
    entry = TABLE[name]
    if role not in entry.roles:
        can = ", ".join(n for n, e in TABLE.items() if role in e.roles)
        raise UsageError(f"{name} cannot be {role}_attention, as {entry.why}: use one of {can}.")
    for what in carried:
        if what not in entry.carries:
            can = ", ".join(n for n, e in TABLE.items() if role in e.roles and what in e.carries)
            setting = "P_drop_attention > 0" if what == "drop" else f"positions={what}"
            raise UsageError(
                f"{role}_attention={text} cannot be combined with {setting}: change that, or use "
                f"one of {can}."
            )


def products(text: str, T: int, S: int, d_k: int, d_v: int, causal: bool) -> int:
    """Products of one head of what a config names; see `t2t_jax.attention.work`."""
    name, options = parse(text)
    entry = TABLE[name]
    return entry.work({**entry.options, **options}, T, S, d_k, d_v, causal)


def build(text: str) -> Any:
    """The Flax module that a config names."""
    name, options = parse(text)
    return MECHANISMS[name](**options)
