"""The progress of runs, read from their store, whichever processes work on them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_jax.config import Config
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import store
from t2t_jax.runs.identity import Job
from t2t_jax.terminal import Progress, duration


@dataclass(frozen=True)
class Standing:
    """The progress of a run."""

    status: str
    step: int
    steps: int
    flops: float  # of a step
    record: Mapping[str, Any]  # the last value of each quantity measured in training

    @property
    def seconds(self) -> float | None:
        """Seconds of a step, as last measured."""
        return self.record.get("seconds_per_step")

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "failed")

    @property
    def running(self) -> bool:
        """Whether it makes steps; other runs that a process holds are waiting for their turn."""
        return self.status == "running" and self.seconds is not None


def standing(status: str, c: Config, records: Iterable[Mapping[str, Any]]) -> Standing:
    """Returns the progress of a run, of which these records are kept."""
    record: dict[str, Any] = {}
    for x in records:  # records of training and of evaluation have different fields
        record |= x
    steps = c.training.steps
    flops = run_flops(c, c.data.vocabulary) / steps
    return Standing(status, record.get("step", 0), steps, flops, record)


def seconds_left(standings: Sequence[Standing], unbegun: int = 0) -> float | None:
    """Returns the estimated time until all runs have ended; None while no run makes steps.

    The estimate assumes that a run's remaining steps take as long as its last ones, or as their
    FLOPs take in other runs, and that as many runs are trained at once as at present. The configs
    of `unbegun` runs are not known; each is assumed to take the others' mean.
    """
    running = [x for x in standings if x.running]
    if not running:
        return None
    # Also of ended runs: the speed of the few that run now varies with their shapes.
    measured = [(x.seconds, x.flops) for x in standings if x.seconds is not None]
    rate = sum(s for s, _ in measured) / sum(flops for _, flops in measured)

    def seconds(x: Standing, steps: int) -> float:
        return steps * (x.flops * rate if x.seconds is None else x.seconds)

    left = sum(seconds(x, x.steps - x.step) for x in standings if not x.ended)
    left += unbegun * sum(seconds(x, x.steps) for x in standings) / len(standings)
    return max(left / len(running), *(seconds(x, x.steps - x.step) for x in running))


def summary(standings: Sequence[Standing], unbegun: int = 0) -> str:
    """Returns a line about all runs."""
    failed = sum(x.status == "failed" for x in standings)
    ended, running = sum(x.ended for x in standings), sum(x.running for x in standings)
    total = len(standings) + unbegun
    left = seconds_left(standings, unbegun)
    parts = [
        f"{ended} of {total} runs have ended" + f", {failed} of them failed" * bool(failed),
        f"{running} running",
        f"{total - ended - running} waiting",
        *([] if left is None or ended == total else [f"about {duration(left)} left"]),
    ]
    return "; ".join(parts)


class View:
    """Shows the progress of jobs: a line for each that ends, and one on all of them."""

    def __init__(self, jobs: Sequence[Job], progress: Progress) -> None:
        self.jobs, self.progress = jobs, progress
        self.began = time.time()  # a run without a later record is not at work
        self.shown = {job for job in jobs if ended(job)}  # whose end has been reported
        self.left: float | None = None  # the last estimate, while no run makes steps
        if self.shown:
            progress.say(f"{len(self.shown)} of {len(jobs)} runs are done already")

    def refresh(self) -> None:
        """Reports the runs that ended since the last refresh, and the progress of the others."""
        new = [job for job in self.jobs if job not in self.shown and ended(job)]
        before = len(self.shown)
        self.shown |= {*new}
        standings = [self._of_job(job) for job in self.jobs]
        self.left = seconds_left(standings) or self.left
        left = 0 if len(self.shown) == len(self.jobs) else self.left
        estimate = f", about {duration(left)} left" if left else ""
        for n, job in enumerate(new, before + 1):
            self.progress.say(f"{outcome(job)}  ({n} of {len(self.jobs)}{estimate})")
        if self.progress.live or seconds_left(standings):
            self.progress.show(summary(standings))

    def _of_job(self, job: Job) -> Standing:
        """Returns the progress of a job. No lock is tried, as a worker may want it just then."""
        path, status = job.directory / "metrics.jsonl", "waiting"
        if job in self.shown:
            status = "finished" if store.read_failure(job.directory) is None else "failed"
        elif path.exists() and path.stat().st_mtime >= self.began:
            status = "running"
        return standing(status, job.c, store.read_curves(job.directory))


def ended(job: Job) -> bool:
    """Returns whether a run is finished and scored, or has failed."""
    if store.read_failure(job.directory) is not None:
        return True
    result = store.read_result(job.directory)
    if result is None:
        return False
    return all(store.read_statistics(job.directory, result, x) is not None for x in job.splits)


def outcome(job: Job) -> str:
    """Returns the scores of a run, or why it has none, as a line."""
    result, failure = store.read_result(job.directory), store.read_failure(job.directory)
    if result is None or failure is not None:
        return f"{job.name}: failed: {failure}"
    line = f"{job.name}: PPL {result['dev_perplexity']:.3f}"
    if not job.splits:
        return line
    metric = metric_of(job.c.data.corpus)
    return f"{line}  {metric.name} {result['scores'][job.splits[0]][metric.key]['score']:.2f}"
