"""The progress of a running grid, read from its store, whichever processes work on it."""

import math
import time
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import store
from t2t_jax.runs.job import Job, compile_key
from t2t_jax.training.progress import Progress, duration, read_metrics

_COLUMNS = "step", "perplexity", "tokens/s", "time left"


class View:
    """Shows a table on a terminal, redrawn at every refresh; in a pipe a plain line now and then.

    Attributes:
      costs: FLOPs of each job.
      shown: the jobs whose end has been reported.
      began: the time of day; a run without a later record is not at work.
      first: the time, FLOPs done and number of programs begun when progress was first seen.
    """

    def __init__(self, jobs: Sequence[Job], workers: int, progress: Progress) -> None:
        self.jobs, self.workers, self.progress = jobs, workers, progress
        self.costs = {job: run_flops(job.c, job.c.data.vocabulary) for job in jobs}
        self.start, self.began = time.monotonic(), time.time()
        self.shown = {job for job in jobs if ended(job)}
        self.first: tuple[float, float, int] | None = None
        self.flops_at_start, _ = self._measure()
        self.live = None
        if progress.live:
            console = Console(file=progress.out, highlight=False)
            self.live = Live(console=console, auto_refresh=False, transient=True)
        if self.shown:
            progress.say(f"{len(self.shown)} of {len(jobs)} runs are done already")

    def __enter__(self) -> "View":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def refresh(self) -> None:
        """Reports the runs that ended since the last refresh, and the progress of the others."""
        for job in self.jobs:
            if job in self.shown or not ended(job):
                continue
            self.shown.add(job)
            self._say(f"{outcome(job)}  ({len(self.shown)} of {len(self.jobs)})")
        if self.live:
            self.live.update(self._table(), refresh=True)
            return
        parts = [f"{len(self.shown)}/{len(self.jobs)} runs", *self._running(), self._time_left()]
        self.progress.show("  ".join(part for part in parts if part))

    def _say(self, line: str) -> None:
        if self.live:
            self.live.console.print(Text(line))
        else:
            self.progress.say(line)

    def _table(self) -> Group | Text:
        """Returns the running jobs, and below them how many are done, failed and waiting."""
        table = Table("run", *(Column(name, justify="right") for name in _COLUMNS), box=SIMPLE)
        waiting = []
        for job in self.jobs:
            if job in self.shown:
                continue
            record = _last_record(job)
            if "nll" not in record or not self._at_work(job):
                waiting.append(job.name)
                continue
            table.add_row(Text(job.name), *_cells(job, record))
        failed = sum(store.read_failure(job.directory) is not None for job in self.shown)
        done = f"{len(self.shown)} of {len(self.jobs)} runs are done"
        parts = [done + (f", {failed} of them failed" if failed else ""), self._time_left()]
        summary = "; ".join(part for part in parts if part)
        if waiting:
            summary += f"\nwaiting: {', '.join(waiting)}"
        return Group(table, Text(summary)) if table.row_count else Text(summary)

    def _running(self) -> list[str]:
        """Returns a text for each step that jobs have reached: a job, how many others, the step."""
        names_at: dict[str, list[str]] = {}
        for job in self.jobs:
            step, steps = _step(job), job.c.training.steps
            if step and job not in self.shown and self._at_work(job):
                place = f"{step:,}/{steps:,}" if step < steps else "translating"
                names_at.setdefault(place, []).append(job.name)
        return [
            names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") + f" {place}"
            for place, names in names_at.items()
        ]

    def _at_work(self, job: Job) -> bool:
        return (job.directory / "metrics.jsonl").stat().st_mtime >= self.began

    def _time_left(self) -> str:
        """Returns the estimated time of the remaining steps and of the remaining compilations.

        Steps are estimated at their speed so far; each compilation takes as long as the first.
        """
        (flops, begun), now = self._measure(), time.monotonic()
        if self.first is None:
            if flops > self.flops_at_start:
                self.first = now, flops, begun
            return "compiling"
        first_seen, first_flops, first_begun = self.first
        compile_seconds = (first_seen - self.start) / self.workers
        step_seconds = now - first_seen - compile_seconds * (begun - first_begun)
        if flops == first_flops or step_seconds <= 0:
            return ""
        seconds = (sum(self.costs.values()) - flops) / (flops - first_flops) * step_seconds
        waiting = {compile_key(j.c) for j in self.jobs if j not in self.shown and not _step(j)}
        return f"{duration(seconds + compile_seconds * len(waiting))} left"

    def _measure(self) -> tuple[float, int]:
        """Returns the FLOPs of the steps done, and the number of programs begun."""
        steps = {job: _step(job) for job in self.jobs}
        flops = sum(
            self.costs[job] * (1.0 if job in self.shown else step / job.c.training.steps)
            for job, step in steps.items()
        )
        return flops, len({compile_key(job.c) for job, step in steps.items() if step})


def _cells(job: Job, record: dict[str, Any]) -> tuple[str, ...]:
    """Returns the step, perplexity, speed and time left of a running job."""
    step, steps = record["step"], job.c.training.steps
    seconds = (steps - step) * record["seconds_per_step"]
    return (
        f"{step:,}/{steps:,}",
        f"{math.exp(min(record['nll'], 20)):,.2f}",
        f"{record['tokens_per_second']:,.0f}",
        duration(seconds) if step < steps else "translating",
    )


def _step(job: Job) -> int:
    return _last_record(job).get("step", 0)


def _last_record(job: Job) -> dict[str, Any]:
    """Returns the last two records of a running job merged; an empty dict before the first.

    Records of training and of evaluation alternate, and have different fields.
    """
    merged: dict[str, Any] = {}
    for record in read_metrics(job.directory / "metrics.jsonl")[-2:]:
        merged |= record
    return merged


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
