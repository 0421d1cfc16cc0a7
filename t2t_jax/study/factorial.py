"""Main effects and interactions of a factorial study, the rows of which `study.cross` makes."""

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from t2t_jax import config
from t2t_jax.study import statistics
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.comparison import main_metric
from t2t_jax.study.grid import Grid
from t2t_jax.study.typeset import Table, table


@dataclass(frozen=True)
class Factorial:
    """The rows of a study that have every combination of the values of some fields.

    Attributes:
      metric: the name of what `cells` measure.
      levels: the values of each field at the scale of the runs, in ascending order if numeric.
      cells: the measures of the rows, an array with an axis for each field.
      note: what changes with the fields, as a sentence.
    """

    metric: str
    levels: dict[str, list[Any]]
    cells: np.ndarray
    note: str = ""

    @property
    def means(self) -> np.ndarray:
        """The means over seeds, [levels of the first field, ...]."""
        return np.vectorize(lambda cell: cell.spread.mean, otypes=[float])(self.cells)


class Effect(NamedTuple):
    """An effect on a metric.

    Attributes:
      source, level: the field and its value, or both of an interaction.
      size: a level's mean minus the grand mean; of an interaction, the mean of a combination minus
        what the two main effects predict.
      low, high: the ends of its 95% interval; None if the statistics of sentences were not kept.
    """

    source: str
    level: str
    size: float
    low: float | None
    high: float | None


def factorial(grid: Grid, lines: Sequence[RowResult]) -> Factorial | None:
    """Returns the factorial part of a table, with the fields that its first row names.

    The last of these may follow from the others, so that the rows are the combinations of the first
    ones. It is None if a combination is missing, has no finished run, or has an unusual run.
    """
    named = list(lines[0].row.changes)
    members = [line for line in lines if line.row.changes.keys() == set(named)]
    values = [[config.flatten(line.c)[name] for name in named] for line in members]
    different = [len({row[i] for row in values}) for i in range(len(named))]
    if not named or min(different) < 2:
        return None
    combinations = [*itertools.accumulate(different, operator.mul)]
    last = combinations.index(len(members)) if len(members) in combinations else len(named) - 1
    fields, follow = named[: last + 1], named[last + 1 :]
    levels = {n: list(dict.fromkeys(row[i] for row in values)) for i, n in enumerate(fields)}
    for ordered in levels.values():
        if all(isinstance(x, int | float) for x in ordered):
            ordered.sort()
    shape = tuple(len(x) for x in levels.values())
    cells, parameters = np.empty(shape, dtype=object), np.empty(shape)
    for line, row in zip(members, values, strict=True):
        measure = line.measure(main_metric(grid))
        if measure is not None and not line.unusual:
            place = tuple(levels[n].index(x) for n, x in zip(fields, row, strict=False))
            cells[place], parameters[place] = measure, line.runs[0].result["parameters"]
    if not all(cells.flat):
        return None
    grow = [n for i, n in enumerate(fields) if (parameters.max(i) > parameters.min(i)).any()]
    note = f"From these levels follow {' and '.join(follow)}. " if follow else ""
    note += f"The number of parameters changes with {' and '.join(grow)}." if grow else ""
    return Factorial(main_metric(grid), levels, cells, note.strip())


def effects(study: Factorial) -> list[Effect]:
    """Returns the main effects of every field, then the interactions of every pair of fields.

    An interval is Student's t times the deviation over draws, and its degrees of freedom are those
    of all seeds; the quantiles of the draws would be too close for few seeds.
    """
    names, out, random = list(study.levels), [], np.random.default_rng(0)
    kept = [x.draws for x in study.cells.flat if x.draws is not None]
    shape, draws = study.cells.shape, None
    if len(kept) == study.cells.size:
        # Means over resampled seeds and sentences, [levels of the first field, ..., DRAWS]. The
        # variance over seeds contains their interaction with sentences, which both resamplings add.
        draws = np.stack([statistics.over_seeds(x, random) for x in kept]).reshape(*shape, -1)
        twice = 2 * np.array([statistics.interaction(x) for x in kept])
        cells = np.eye(len(kept)).reshape(*shape, -1)  # of which effects are linear combinations
    n = [cell.spread.n for cell in study.cells.flat]
    t = special.stdtrit(sum(n) - len(n) if min(n) > 1 else math.inf, 0.975)
    every = range(len(names))
    for axes in (*itertools.combinations(every, 1), *itertools.combinations(every, 2)):
        sizes = _sizes(study.means, axes, len(names))
        halves = None
        if draws is not None:
            variances = _sizes(draws, axes, len(names)).var(axis=-1)
            counted = _sizes(cells, axes, len(names)) ** 2 @ twice
            halves = t * np.sqrt(np.maximum(0, variances - counted))
        for place in np.ndindex(sizes.shape):
            levels = (study.levels[names[a]][i] for a, i in zip(axes, place, strict=True))
            size, half = float(sizes[place]), None if halves is None else float(halves[place])
            ends = (None, None) if half is None else (size - half, size + half)
            source = " × ".join(names[a] for a in axes)
            out.append(Effect(source, ", ".join(map(str, levels)), size, *ends))
    return out


def _sizes(cells: np.ndarray, axes: Sequence[int], count: int) -> np.ndarray:
    """Returns the main effects of one, or the interactions of two, of the first `count` axes."""
    sizes = cells.mean(axis=tuple(i for i in range(count) if i not in axes))
    for axis in range(len(axes)):
        sizes = sizes - sizes.mean(axis=axis, keepdims=True)
    return sizes


def effects_table(study: Factorial) -> Table:
    """Returns the table of effects, a group of lines for each field and each pair of fields."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for effect in effects(study):
        interval = "" if effect.low is None else f"{effect.low:+.2f} to {effect.high:+.2f}"
        texts = effect.source, effect.level, f"{effect.size:+.2f}", interval
        groups.setdefault(effect.source, []).append(texts)
    seeds = min(cell.spread.n for cell in study.cells.flat)
    over = "seeds and sentences" if seeds > 1 else "sentences"
    note = (
        "Levels are at the scale of the runs. A level's effect is its mean minus the grand mean; "
        "the interaction of two levels is the mean of their combination minus the grand mean and "
        f"both effects. Intervals are over {over}, by Student's t with a bootstrapped deviation; "
        "each alone covers its effect with 95%, without a correction for the others."
    )
    header = ("", ""), ("", "level"), (study.metric, "effect"), (study.metric, "95% interval")
    notes = filter(None, (note, study.note))
    return table(f"Effects on {study.metric}", header, groups.values(), notes)
