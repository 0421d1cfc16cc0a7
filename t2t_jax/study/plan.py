"""What a study would cost and find, from stored runs like its own, before anything is trained.

Costs come from the time that stored runs took, and what a table would find from the
deviations of stored rows over seeds and sentences, in simulated tables (`power.py`).
"""

import math
from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import numpy as np

from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import PPL
from t2t_jax.models.flops import run_flops
from t2t_jax.study.collecting import Lines
from t2t_jax.study.comparison import main_metric
from t2t_jax.study.declaration import Row
from t2t_jax.study.grid import Grid, Seeds
from t2t_jax.study.power import Noise, detectable, margins, power
from t2t_jax.study.statistics import Measure, prior
from t2t_jax.study.sweep import seeds_of
from t2t_jax.study.typeset import Table, table
from t2t_jax.terminal import duration

SEEDS = 1, 3, 5, 10, 20
_TABLES = 500
UNITS = {PPL: "nats per token"}  # PPL is tested as NLL


def noise(lines: Lines, name: str) -> Noise | None:
    """Returns a metric's deviations, over sentences the median, if two rows have several seeds."""

    def values(x: Measure) -> np.ndarray:
        return np.log(x.values) if name == PPL else np.array(x.values)

    def over_seeds(x: Measure) -> float:
        return float(values(x).var(ddof=1)) / x.spread.n

    measures = [x for line in lines if (x := line.measure(name)) and x.spread.n > 1]
    scaled = [(x, x.difference.scales) for x in measures if x.difference and x.difference.scales]
    # Welch's standard error, the last, has no part of other rows.
    over = [z[-1][0] ** 2 - over_seeds(x) - over_seeds(measures[0]) for x, z in scaled]
    if len(measures) < 2 or not over:
        return None
    kept = [values(x) for x in measures if np.isfinite(x.values).all()]
    variances, d = np.array([x.var(ddof=1) for x in kept]), np.array([len(x) - 1 for x in kept])
    pooled, freedom = prior(variances, d + 1)
    # Few seeds make rows look more unlike than they are: variances are shrunk as in the test.
    shrunk = (d * variances + freedom * pooled) / (d + freedom)
    return Noise(np.sqrt(shrunk), math.sqrt(max(0.0, round(median(over), 12))))


class Speed(NamedTuple):
    """The time that runs take: of training for a FLOP, and of compiling and scoring for a run."""

    of_a_flop: float
    of_a_run: float
    device: str


def speed(lines: Lines, origin: str) -> Speed:
    """Returns the speed of the stored runs on the most frequent of their devices."""
    runs = [run for line in lines for run in line.runs]
    device = Counter(run.device for run in runs).most_common(1)[0][0]
    costs = [run.costs for run in runs if run.device == device]
    timed = [x for x in costs if x["training_seconds"] is not None]
    if not timed:
        raise UsageError(f"{origin} has no run whose steps were timed: --from another one.")
    return Speed(
        sum(x["training_seconds"] for x in timed) / sum(x["flops"] for x in timed),
        sum(x["overhead_seconds"] + x["scoring_seconds"] for x in costs) / len(costs),
        device,
    )


def plan(
    grid: Grid, lines: Lines, origin: str, base: int | None = None, detect: float | None = None
) -> Table:
    """Returns a table with the cost of a grid and what it would find, for each number of seeds.

    The lines are of a stored table like the grid's, from `origin`. The seeds of base are as of
    `sweep.seeds_of`; `detect` is a difference of NLL, in nats per token, whose power is shown, too.
    A UsageError is raised if fewer than two rows there have several finished runs.
    """
    names = dict.fromkeys((PPL, main_metric(grid)))
    found = {name: x for name in names if (x := noise(lines, name))}
    if PPL not in found:
        raise UsageError(
            f"{origin} has no two rows with several seeds, which a plan is made from: name a "
            "store or a folder of published results that has, with --from."
        )
    rate, every = speed(lines, origin), [seeds_of(grid, n, base) for n in SEEDS]
    body = [_line(grid, found, seeds, rate, detect) for seeds in every]
    device = "a core" if rate.device == "1 x cpu" else rate.device
    header = [("", "seeds"), ("", "of base"), ("", "runs"), ("", f"time of {device}")]
    header += [("found with 80%", UNITS.get(name, name)) for name in found]
    header += [("power at", f"{detect} nats")]
    noises = "; ".join(
        f"{UNITS.get(name, name)} {np.median(x.deviations):.2g} and {x.sentences:.1g}"
        for name, x in found.items()
    )
    notes = (
        "The least differences from base that the tests find with a probability of 80%, in the "
        "median row; rows with one seed are not tested.",
        f"Deviations over seeds, and of a difference over sentences, of the median row in {origin}"
        f": {noises}.",
        f"Runs there took {rate.of_a_flop * 1e12:.3g} s of {rate.device} for 10^12 FLOPs, and "
        f"{rate.of_a_run:.3g} s each for compiling and scoring.",
    )
    return table(f"Plan of {grid.title}", header, [body], notes)


def _flops(grid: Grid, row: Row, n: int) -> float:
    """Returns the FLOPs of a row with n seeds; its tuned runs cost as much as the mean trial."""
    untuned, *trials = (
        run_flops(c := x.config(row), c.data.vocabulary) for x in (grid, *grid.trials)
    )
    return n * untuned + (len(trials) + n) * sum(trials) / max(1, len(trials))


def _line(
    grid: Grid, found: Mapping[str, Noise], seeds: Seeds, rate: Speed, detect: float | None
) -> list[str]:
    """Returns the cells of a number of seeds."""
    n, rows = [len(seeds(row)) for row in grid.rows], len(grid.rows)
    both = 2 if grid.sweep else 1  # every row untuned and tuned
    counts, tests = [len(grid.trials) + both * x for x in n], both * (rows - 1) * len(grid.scores)
    flops = sum(_flops(grid, row, seeds) for row, seeds in zip(grid.rows, n, strict=True))
    seconds = flops * rate.of_a_flop + sum(counts) * rate.of_a_run
    cells = [f"{n[-1]}", f"{n[0]}", f"{sum(counts)}", duration(seconds)]
    if min(*n, rows) == 1:
        return cells + [""] * (len(found) + 1)
    drawn = {}
    for name, x in found.items():
        base, shares = x.deviations[0], (np.arange(rows - 1) + 0.5) / (rows - 1)
        resized = x._replace(deviations=np.r_[base, np.quantile(x.deviations[1:], shares)])
        drawn[name] = margins(resized, (n[-1], n[0]), _TABLES, tests)
    cells += [f"{detectable(x):.2g}" for x in drawn.values()]
    return [*cells, f"{100 * power(drawn[PPL], detect):.0f}%" if detect else ""]
