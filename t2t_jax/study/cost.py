"""What a config costs before it is run, and what its runs have cost."""

import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.runs import store
from t2t_jax.runs.results import Run
from t2t_jax.study.entries import Entry
from t2t_jax.study.typeset import Cell, Table, without_empty


def parameters(c: Config, V: int) -> int:
    """Parameters of a config's model with V subwords, counted without making them."""
    import jax
    import jax.numpy as jnp

    from t2t_jax.models import build

    token = jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(build(c, V).init, jax.random.key(0), token, token)
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["params"]))


def table(entries: Sequence[Entry]) -> Table:
    """What every row cost: means over its seeds."""
    header = (
        ("", ""),
        ("params", "(M)"),
        ("training FLOPs", "paper"),
        ("training FLOPs", "counted"),
        ("training FLOPs", "compiled"),
        ("training FLOPs", "time x peak"),
        ("time of", "training (min)"),
        ("time of", "a step (ms)"),
        ("time of", "scoring (s)"),
        ("time of", "compiling, dev (s)"),
        ("memory", "(MB)"),
        ("", "device"),
    )
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for entry in entries:
        if not entry.runs:
            continue
        of = [costs(run) for run in entry.runs]
        mean = {name: math.fsum(o[name] for o in of) / len(of) for name in of[0]}
        peaks = [run.result.get("peak_flops") for run in entry.runs]
        timed = [s["training_seconds"] * p for s, p in zip(of, peaks, strict=True) if p]
        theirs = entry.row.FLOPs
        steps = [seconds for run in entry.runs if (seconds := _step(run)) is not None]
        devices = sorted({run.result["environment"]["device"] for run in entry.runs})
        cells = (
            entry.row.name,
            f"{mean['parameters'] / 1e6:.2f}",
            "" if theirs is None else f"{theirs:.1e}",
            f"{mean['flops']:.2e}",
            f"{mean['compiled_flops']:.2e}",
            f"{math.fsum(timed) / len(timed):.2e}" if timed else "",
            f"{mean['training_seconds'] / 60:.1f}",
            f"{1e3 * math.fsum(steps) / len(steps):.0f}" if steps else "",
            f"{mean['scoring_seconds']:.0f}",
            f"{mean['overhead_seconds']:.0f}",
            f"{mean['memory'] / 1e6:.0f}",
            ", ".join(devices),
        )
        groups.setdefault(entry.row.group, []).append(tuple(map(Cell, cells)))
    notes = (
        "FLOPs counted: matrix products, backward twice forward; compiled: what XLA counts, which "
        "takes a loop's body once; time x peak, as the paper reckons: seconds of training by what "
        "the device reaches at most. The time of training is that of steps and checkpoints; the "
        "first of the runs that share a program compiles it. A run that was trained at once with "
        "others has its share of their time.",
    )
    return without_empty("Cost of a run", header, groups, notes)


def _step(run: Run) -> float | None:
    """Median seconds of a training step, in a program with others its share; None if unknown."""
    records = store.read_curves(run.directory)
    each = [r["seconds_per_step"] for r in records if "seconds_per_step" in r]
    return float(np.median(each)) / run.result["trained_together"] if each else None


SHARED = "training_seconds", "overhead_seconds"  # by the runs that were trained at once
COSTS = ("parameters", "flops", "compiled_flops", *SHARED, "scoring_seconds", "memory")


def costs(run: Run) -> dict[str, float]:
    """What a run has cost, by the names in `COSTS`."""
    costs = {name: float(run.result[name]) for name in COSTS if name in run.result}
    shares = {name: costs[name] / run.result["trained_together"] for name in SHARED}
    return costs | shares | {"scoring_seconds": run.scoring_seconds}
