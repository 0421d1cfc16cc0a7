"""Factorial studies: a row for each combination of the values of some fields."""

import itertools
from collections.abc import Sequence
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.study.registry import Row


def cross(**levels: Sequence[Any]) -> list[Row]:
    """Returns the rows of a factorial study: `cross(h=[1, 4, 8], d_model=[256, 512])` has 6.

    The first row is base: each field has the value of Table 3's base if that is one of the values
    given, and otherwise the first of them. Every row names all of the fields, so a preset scales
    their values and replaces none.

    Raises:
      UsageError: there is no such field, or it has fewer than two values or one value twice.
    """
    defaults = config.flatten(Config())
    for name, values in levels.items():
        config.field_type(name)
        if len(values) < 2 or any(x in values[:i] for i, x in enumerate(values)):
            raise UsageError(f"cross({name}={list(values)}): name two values or more, each once.")
    rows = [
        dict(zip(levels, values, strict=True)) for values in itertools.product(*levels.values())
    ]
    base = {n: defaults[n] if defaults[n] in values else values[0] for n, values in levels.items()}
    return [Row("base", base), *(Row("A", row) for row in rows if row != base)]
