"""The chart of a factorial study: the metric against each field."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_jax.plotting import LINES, SHAPE, Axis, Spec, interval, panel, styles, tooltip
from t2t_jax.study.factorial import Factorial

SIZE = 240, 200  # of a panel, in pixels


def fields(study: Factorial) -> Spec:
    """Returns a chart of the metric against each field, with the range of seeds.

    There is a line for each combination of the other fields.
    """
    return {"hconcat": [_against(study, name) for name in study.levels]}


def _against(study: Factorial, name: str) -> Spec:
    levels, values = study.levels[name], _values(study, name)
    y = Axis.over("mean", study.metric, (v[end] for v in values for end in ("low", "high")))
    if all(isinstance(level, int | float) for level in levels):
        x = Axis.over(name, name, levels, logarithmic(levels), values=levels)
    else:
        x = Axis.of_levels("level", name, levels)
    shown = {"tooltip": tooltip(*study.levels, "mean", "n", mean=".2f")}
    layers = [("line", LINES[0][1] | shown), ("point", SHAPE | shown), interval(y)]
    ends = [v for v in values if v[name] == levels[-1]]
    return panel(x, y, SIZE, layers, ends, always=True) | {"data": {"values": values}}


def logarithmic(levels: Sequence[Any]) -> bool:
    """Returns whether an axis is logarithmic: its greatest value is at least 4 times the least."""
    return all(isinstance(x, int | float) for x in levels) and 0 < 4 * min(levels) <= max(levels)


def _values(study: Factorial, name: str) -> list[dict[str, Any]]:
    """Returns the metric of every combination, in the style of the values of the other fields."""
    names, out = list(study.levels), []
    for place, cell in np.ndenumerate(study.cells):
        levels = {n: study.levels[n][i] for n, i in zip(names, place, strict=True)}
        row = ", ".join(f"{n}={level}" for n, level in levels.items() if n != name)
        out.append({"row": row, "mean": cell.spread.mean, "n": cell.spread.n,
                    "low": min(cell.values), "high": max(cell.values),
                    "level": study.levels[name].index(levels[name])}
                   | levels)  # fmt: skip
    style = styles(list(dict.fromkeys(value["row"] for value in out)))
    return [value | style[value["row"]] for value in out]
