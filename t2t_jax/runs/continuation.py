"""Continuation: a run goes on from a finished run that differs only in having fewer steps.

Every random draw is a function of (seed, step, row), and the paper's learning rate does not depend
on the number of steps. So the continued run equals the uninterrupted one bit for bit if it goes on
from a checkpoint that the uninterrupted one also has: the last at a multiple of `evaluate_every`.
The environment in its result names the run that it continues, as `continued`.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.environment import environment, without_count
from t2t_jax.errors import Busy, writing
from t2t_jax.files import write, write_json
from t2t_jax.parts import SCHEDULES
from t2t_jax.runs import claim, identity, names, provenance, results, store, study_file

Runs = Sequence[tuple[Config, Path]]
Report = Callable[[str], object]


def shorter_runs(runs: Runs) -> dict[Path, tuple[Path, Config]]:
    """Returns the longest shorter run in the same store for the directory of each run not begun."""
    new = [(c, x) for c, x in runs if not (x / "config.json").exists() and x.parent.is_dir()]
    stored = {home: [*results.stored(home, lambda _: None)] for home in {x.parent for _, x in new}}
    shorter = {}
    for c, directory in new:
        if candidates := [x for x in stored[directory.parent] if is_shorter(*x, c)]:
            shorter[directory] = max(candidates, key=lambda x: x[1].training.steps)
    provenance.compare(shorter.values())
    return shorter


def is_shorter(directory: Path, c: Config, longer: Config) -> bool:
    """Returns whether a run is finished and differs from another only in having fewer steps."""
    fields = config.difference(c, longer).keys() - {*config.PATHS}
    fewer = c.training.steps < longer.training.steps and fields == {"steps"}
    return fewer and results.state(directory).status == "finished"


def announce(runs: Runs, report: Report) -> None:
    """Reports how many of several runs will go on from shorter ones, and why others will not."""
    obstacles = [_obstacle(*x) for x in shorter_runs(runs).values()]
    for obstacle in dict.fromkeys(obstacles):
        why = f"are finished with fewer steps, but {obstacle}: they are trained from scratch"
        line = why if obstacle else "go on from finished runs of fewer steps"
        report(f"{obstacles.count(obstacle)} of {len(runs)} runs {line}")


def begin(runs: Runs, dataset: Dataset, report: Report) -> None:
    """Makes the directories of those runs that are not begun and can go on from a shorter run.

    Afterwards, each is like a run that was interrupted at the shorter run's last checkpoint.
    """
    configs = {directory: c for c, directory in runs}
    for directory, (shorter, c) in shorter_runs(runs).items():
        name = names.names(shorter)[0]
        if obstacle := _obstacle(shorter, c, dataset):
            done = f"{name} has {c.training.steps:,} of these steps"
            report(f"{done}, but {obstacle}: {directory} is trained from scratch")
            continue
        origin = f"{name} at step {_checkpoints(shorter, c)[-1]:,}"
        try:
            # Another process may hold the shorter run for a while, to judge or to prune it.
            with claim.lock(directory), claim.lock(shorter, wait=True):
                if not (directory / "config.json").exists():
                    _copy(shorter, c, directory, f"from {origin}")
                    write_json(directory / "config.json", config.flatten(configs[directory]))
        except Busy:
            continue
        report(f"{directory} goes on from {origin}")


def _checkpoints(directory: Path, c: Config) -> list[int]:
    """Returns the steps of a run's checkpoints that a longer run would have, too."""
    saved = [int(x.name) for x in (directory / "checkpoints").glob("*") if x.name.isdigit()]
    return sorted(step for step in saved if step % c.training.evaluate_every == 0)


def _obstacle(directory: Path, c: Config, dataset: Dataset | None = None) -> str:
    """Returns why longer runs cannot go on from a finished one; empty if they can.

    With the dataset of the longer runs, their data, device and software are compared, too.
    """
    t, steps, made = c.training, _checkpoints(directory, c), provenance.made_in(directory)
    changes = provenance.changes(directory, c, made)
    if not SCHEDULES[t.schedule].endless:
        return f"the learning rate of schedule={t.schedule} depends on the number of steps"
    if changes is None:
        return "it was made by other code, which was not compared"
    if changes:
        return f"this code computes another {' and '.join(changes)}"
    # Some of the checkpoints that are averaged at the end may belong to the shorter run.
    if not steps or not {*range(steps[-1], 0, -t.evaluate_every)[: t.average]} <= {*steps}:
        return f"no checkpoints are at the last multiples of evaluate_every={t.evaluate_every}"
    if dataset is None:
        return ""
    from t2t_jax.models import build

    before = {**made, **store.read_data(directory)}
    dtype = build(c, dataset.vocabulary.size).dtype.name
    now = environment() | identity.data_facts(dataset) | {"dtype": dtype}
    compared = "data", "vocabulary", "dtype", "jax", "flax", "optax", "device"
    different = [x for x in compared if without_count(before[x]) != without_count(now[x])]
    return f"the {' and '.join(different)} differ" if different else ""


def _copy(shorter: Path, c: Config, directory: Path, origin: str) -> None:
    """Copies what an interrupted run has from a shorter run, but for its config."""
    from t2t_jax.training.trainer import RECORD_EVERY

    checkpoints, kept = directory / "checkpoints", _checkpoints(shorter, c)
    with writing(directory):
        shutil.rmtree(checkpoints, ignore_errors=True)  # left by a process that was killed here
        for step in map(str, kept):
            shutil.copytree(shorter / "checkpoints" / step, checkpoints / step)
        for name in ("vocabulary.model", "data.json", *study_file.COPIES):
            if (shorter / name).exists():
                shutil.copy(shorter / name, directory / name)
    # A longer run has no record of training at the shorter run's last step, unless one is due.
    records = [
        f"{json.dumps(x)}\n"
        for x in store.read_curves(shorter)
        if x["step"] <= kept[-1] and not ("nll" in x and x["step"] % RECORD_EVERY)
    ]
    write(directory / "metrics.jsonl", "".join(records))
    begun = {**provenance.made_in(shorter), "continued": origin}
    write_json(directory / "environment.json", begun)
