"""The cost of runs: parameters, FLOPs, time and memory."""

import math
from collections.abc import Sequence

import numpy as np

from t2t_jax.config import Config
from t2t_jax.runs import store
from t2t_jax.runs.results import Run, costs
from t2t_jax.study.entries import Entry
from t2t_jax.study.typeset import Cell, Table, without_empty

_HEADER = (
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
_NOTE = (
    "FLOPs, counted: those of matmuls, with the backward pass as twice the forward pass; compiled: "
    "as counted by XLA, which counts the body of a loop once; time x peak: training time times the "
    "peak FLOP/s of the device, as in the paper. Training time is that of steps and checkpoints. "
    "Of the runs that share a program, the first compiles it. A run that was trained at once with "
    "others has its share of their time."
)


def parameters(c: Config, V: int) -> int:
    """Returns the number of parameters of a model with V subwords, without allocating them."""
    import jax
    import jax.numpy as jnp

    from t2t_jax.models import build

    token = jnp.ones((1, 1), jnp.int32)
    shapes = jax.eval_shape(build(c, V).init, jax.random.key(0), token, token)
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["params"]))


def table(entries: Sequence[Entry]) -> Table:
    """Returns the costs of every row that has runs, as means over its seeds."""
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for entry in entries:
        if entry.runs:
            groups.setdefault(entry.row.group, []).append(_cells(entry))
    return without_empty("Cost of a run", _HEADER, groups, (_NOTE,))


def _cells(entry: Entry) -> tuple[Cell, ...]:
    costs_of_runs = [costs(run.result) for run in entry.runs]
    mean = {name: _mean([x[name] for x in costs_of_runs]) for name in costs_of_runs[0]}
    at_peak = [flops for run in entry.runs if (flops := _flops_at_peak(run)) is not None]
    steps = [seconds for run in entry.runs if (seconds := _step_seconds(run)) is not None]
    devices = sorted({run.result["environment"]["device"] for run in entry.runs})
    texts = (
        entry.row.name,
        f"{mean['parameters'] / 1e6:.2f}",
        f"{paper:.1e}" if (paper := entry.row.paper.get("FLOPs")) else "",
        f"{mean['flops']:.2e}",
        f"{mean['compiled_flops']:.2e}",
        f"{_mean(at_peak):.2e}" if at_peak else "",
        f"{mean['training_seconds'] / 60:.1f}",
        f"{1e3 * _mean(steps):.0f}" if steps else "",
        f"{mean['scoring_seconds']:.0f}",
        f"{mean['overhead_seconds']:.0f}",
        f"{mean['memory'] / 1e6:.0f}",
        ", ".join(devices),
    )
    return tuple(map(Cell, texts))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _flops_at_peak(run: Run) -> float | None:
    """Returns training time times the device's peak FLOP/s; None if the peak is unknown."""
    peak = run.result.get("peak_flops")
    return costs(run.result)["training_seconds"] * peak if peak else None


def _step_seconds(run: Run) -> float | None:
    """Returns the median time of a training step, or a run's share of it; None if unknown."""
    records = store.read_curves(run.directory)
    seconds = [r["seconds_per_step"] for r in records if "seconds_per_step" in r]
    return float(np.median(seconds)) / run.result["trained_together"] if seconds else None
