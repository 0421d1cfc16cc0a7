"""What a store holds of a study: matched by config, and never mixed without a mark."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.corpora import PREPARED
from t2t_jax.runs import identity, results
from t2t_jax.runs.results import Run
from t2t_jax.study.grid import Grid
from t2t_jax.study.registry import Row


@dataclass(frozen=True)
class Entry:
    """A row at the scale of a preset, its finished runs by seed, and how the others stand."""

    row: Row
    c: Config
    runs: tuple[Run, ...]
    standing: str


def collect(
    grid: Grid,
    *,
    only: str = "",
    mix: bool = False,
    report: Callable[[str], object] = lambda _: None,
) -> list[Entry]:
    """What its store holds of a grid, under any seed.

    Args:
      only: takes only runs one of whose origins begins so.
      mix: takes runs of different origins, and marks them.

    Raises:
      UsageError: there is no store, or runs differ in their origins and `mix` is not set.
    """
    configs = [grid.config(row) for row in grid.rows]
    keys = [_key(c) for c in configs]
    finished: list[list[Run]] = [[] for _ in configs]
    standing: list[list[str]] = [[] for _ in configs]
    others = []
    for directory, c in results.stored(grid.home, report):
        matching = [i for i, key in enumerate(keys) if key == _key(c)]
        if not matching:
            others.append(c)
            continue
        run = results.read_run(directory, c, grid.split(c), _cut(c, configs[0]), report)
        for i in matching:
            if isinstance(run, Run):
                finished[i].append(run)
            else:
                standing[i].append(f"seed {c.training.seed} {run}")
    if others and not any(finished) and not any(standing):
        report(_nearest(configs, others))
    finished = [
        [r for r in runs if results.is_of(r, only)] for runs in results.with_versions(finished)
    ]
    results.report_outdated([run for runs in finished for run in runs], report)
    usual = results.usual([run.origins for runs in finished for run in runs], grid.home, mix)
    return [
        Entry(row, c, results.by_seed(runs, usual), "; ".join(states))
        for row, c, runs, states in zip(grid.rows, configs, finished, standing, strict=True)
    ]


def _key(c: Config) -> str:
    return json.dumps(identity.identity(config.replace(c, seed=0)), sort_keys=True)


def _nearest(configs: Sequence[Config], others: Sequence[Config]) -> str:
    """Which flags would show runs that the store holds of other settings."""

    def differences(c: Config, other: Config) -> dict[str, Any]:
        theirs, ours = identity.identity(other), identity.identity(c)
        names = (theirs.keys() | ours.keys()) - {"seed"}
        flat = config.flatten(other)
        return {n: flat[n] for n in sorted(names) if theirs.get(n) != ours.get(n)}

    nearest = min((differences(c, other) for c in configs for other in others), key=len)
    flags = " ".join(f"--{name} {value}" for name, value in nearest.items())
    return (
        f"the store holds {len(others)} runs, none of these settings; to show the nearest, give "
        f"{flags}, or the --preset, --rows and fields that `run` was given."
    )


def _cut(c: Config, base: Config) -> str:
    """How a row's sentences become tokens, where that is not as in base: other data is right."""
    fields = {n: x for n, x in config.difference(c, base).items() if n in PREPARED}
    return "".join(f" of {n} {x}" for n, (x, _) in fields.items() if n not in config.PATHS)
