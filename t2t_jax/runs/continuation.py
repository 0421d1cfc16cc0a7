"""Continuation: a run goes on from a finished run that differs only in having fewer steps.

Every random draw is a function of (seed, step, row), and the paper's learning rate does not depend
on the number of steps. So the continued run equals the uninterrupted one bit for bit if it goes on
from a checkpoint that the uninterrupted one also has: the last at a multiple of `evaluate_every`.
The environment in its result names the run that it continues, as `continued`.
"""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.environment import environment
from t2t_jax.errors import Busy, writing
from t2t_jax.files import write, write_json
from t2t_jax.parts import SCHEDULES
from t2t_jax.runs import claim, identity, names, provenance, published, results, store, study_file
from t2t_jax.runs.names import title
from t2t_jax.training import manifest

Runs = Sequence[tuple[Config, Path]]
Report = Callable[[str], object]


@dataclass(frozen=True)
class Shorter:
    """A finished run that differs from another run only in having fewer steps.

    Attributes:
      checkpoints: the steps of the checkpoints that the other run needs, to go on from the last.
      obstacle: why the other run cannot go on from this one; empty if it can.
    """

    directory: Path
    c: Config
    checkpoints: Sequence[int]
    obstacle: str = ""


def shorter_runs(runs: Runs) -> dict[Path, Shorter]:
    """Returns the best shorter run in the same store for the directory of each run not begun.

    The best is the one with the latest checkpoint, or the longest if none can be continued.
    """

    def preference(shorter: Shorter) -> tuple[bool, int, int]:
        last = max(shorter.checkpoints, default=0)
        return not shorter.obstacle, last, shorter.c.training.steps

    new = [(c, directory) for c, directory in runs if not _is_begun(directory)]
    homes = {directory.parent for _, directory in new if directory.parent.is_dir()}
    alike: dict[tuple[Path, str], list[tuple[Path, Config]]] = defaultdict(list)
    for home in homes:
        for directory, c in results.stored(home, lambda _: None):
            alike[home, _key(c)].append((directory, c))
    best = {}
    for c, directory in new:
        finished = [run for run in alike[directory.parent, _key(c)] if is_longer(c, run[0])]
        provenance.compare(finished)
        if finished:
            best[directory] = max((_examined(*run) for run in finished), key=preference)
    return best


def is_longer(c: Config, directory: Path) -> bool:
    """Returns whether a directory holds a finished run that differs only in having fewer steps."""
    if published.read(directory, "config.json") is None:
        return False
    other = store.read_config(directory)
    fewer = other.training.steps < c.training.steps and _key(other) == _key(c)
    return fewer and results.status(directory)[0] == "finished"


def announce(runs: Sequence[tuple[str, Config, Path]], report: Report) -> None:
    """Reports which of several runs will go on from shorter ones, and why others will not."""
    shorter = shorter_runs([(c, directory) for _, c, directory in runs])
    groups: dict[str, list[str]] = defaultdict(list)
    for name, _, directory in runs:
        if directory in shorter:
            run = shorter[directory]
            start = f" from step {run.checkpoints[-1]:,}" if not run.obstacle else ""
            groups[run.obstacle].append(f"{name}{start}")
    for obstacle, group in groups.items():
        count, more = f"{len(group)} of {len(runs)} runs", len(group) - 3
        which = ", ".join(group[:3]) + (f" and {more} more runs" if more > 0 else "")
        if obstacle:
            why = f"are finished with fewer steps, but {obstacle}"
            report(f"{count} {why}: they are trained from scratch ({which})")
        else:
            report(f"{count} go on from finished runs of fewer steps: {which}")


def begin(runs: Runs, dataset: Dataset, report: Report) -> None:
    """Makes the directories of those runs that are not begun and can go on from a shorter run.

    Afterwards, each is like a run that was interrupted at the shorter run's last needed checkpoint.
    """
    configs = {directory: c for c, directory in runs}
    for directory, shorter in shorter_runs(runs).items():
        obstacle = shorter.obstacle or _difference(shorter, dataset)
        if obstacle:
            done = f"{title(shorter.directory)} has {shorter.c.training.steps:,} of these steps"
            report(f"{done}, but {obstacle}: {directory} is trained from scratch.")
            continue
        try:
            # Another process may hold the shorter run for a while, to judge or to prune it.
            with claim.lock(directory), claim.lock(shorter.directory, wait=True):
                if not _is_begun(directory):
                    _copy(shorter, configs[directory], directory)
        except Busy:
            continue
        report(f"{directory} goes on from {_origin(shorter)}")


def _is_begun(directory: Path) -> bool:
    return (directory / "config.json").exists()


def _key(c: Config) -> str:
    """Returns a text that configs share if they differ in their steps alone."""
    return json.dumps(identity.identity(config.replace(c, steps=1)), sort_keys=True)


def _examined(directory: Path, c: Config) -> Shorter:
    """Returns a finished run, with the first reason why longer runs cannot go on from it."""
    t, obstacle = c.training, ""
    changes = provenance.changes(directory, c, provenance.made_in(directory))
    if not SCHEDULES[t.schedule].endless:
        obstacle = f"the learning rate of schedule={t.schedule} depends on the number of steps"
    elif changes is None:
        obstacle = "it was made by other code, which was not compared"
    elif changes:
        obstacle = f"this code computes another {' and '.join(changes)}"
    present = [p for p in (directory / "checkpoints").glob("*") if p.name.isdigit()]
    steps = sorted(s for s in (int(p.name) for p in present) if s % t.evaluate_every == 0)
    last = max(steps, default=0)
    # Some of the checkpoints that are averaged at the end may belong to the shorter run.
    needed = [*range(last, 0, -t.evaluate_every)][: t.average][::-1]
    if not needed or steps[-len(needed) :] != needed:
        every = f"evaluate_every={t.evaluate_every}"
        obstacle = obstacle or f"there are no checkpoints at the last multiples of {every}"
    kept = steps if t.patience else needed  # the best may be earlier
    return Shorter(directory, c, () if obstacle else kept, obstacle)


def _difference(shorter: Shorter, dataset: Dataset) -> str:
    """Returns how a run here would differ from a shorter one; empty if it would not."""
    from t2t_jax.models import build

    stored, facts = store.read_data(shorter.directory), identity.data_facts(dataset)
    facts["dtype"] = build(shorter.c, dataset.vocabulary.size).dtype.name
    if changes := [name for name, value in facts.items() if stored.get(name) != value]:
        return f"the {' and '.join(changes)} differ"
    before, now = provenance.made_in(shorter.directory), environment()
    changes = [name for name in ("jax", "flax", "optax") if before.get(name) != now[name]]
    if re.sub(r"\d+ x ", "", before["device"]) != re.sub(r"\d+ x ", "", now["device"]):
        changes.append("device")
    if changes:
        listed = ", ".join(f"{name} {before.get(name)} there, {now[name]} here" for name in changes)
        return f"the software or the device differs ({listed})"
    for step in shorter.checkpoints:
        path = shorter.directory / "checkpoints" / str(step)
        if (damage := manifest.damage(path)) is not None:
            return f"the checkpoint of step {step:,} is damaged ({damage})"
    return ""


def _origin(shorter: Shorter) -> str:
    """Returns the run and the step that a run goes on from: `table3-demo/base/0 at step 1,280`."""
    return f"{names.names(shorter.directory)[0]} at step {shorter.checkpoints[-1]:,}"


def _copy(shorter: Shorter, c: Config, directory: Path) -> None:
    """Makes the directory of a run that goes on from a shorter one; config.json comes last."""
    from t2t_jax.training.trainer import RECORD_EVERY

    donor, checkpoints = shorter.directory, directory / "checkpoints"
    with writing(directory, OSError):
        shutil.rmtree(checkpoints, ignore_errors=True)  # left by a process that was killed here
        for step in map(str, shorter.checkpoints):
            shutil.copytree(donor / "checkpoints" / step, checkpoints / step)
        for name in ("vocabulary.model", "data.json", study_file.COPY, study_file.MODULES):
            if (donor / name).exists():
                shutil.copy(donor / name, directory / name)
        if (donor / "tensorboard").exists():
            shutil.copytree(donor / "tensorboard", directory / "tensorboard", dirs_exist_ok=True)
    last, records = shorter.checkpoints[-1], []
    for record in store.read_curves(donor):
        only_at_the_end = "nll" in record and record["step"] % RECORD_EVERY
        if record["step"] <= last and not only_at_the_end:
            records.append(f"{json.dumps(record)}\n")
    write(directory / "metrics.jsonl", "".join(records))
    origin = {"continued": f"from {_origin(shorter)}"}
    write_json(directory / "environment.json", {**provenance.made_in(donor), **origin})
    write_json(directory / "config.json", config.flatten(c))
