"""What a person sees of a grid that runs, read from its store, whoever works on it."""

import math
import time
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from t2t_jax.evaluation.metric import metric_of
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import store
from t2t_jax.runs.job import Job, compile_key
from t2t_jax.training.progress import Progress, duration, read_metrics

_COLUMNS = "step", "perplexity", "tokens/s", "time left"


class View:
    """On a terminal a table, drawn anew at every look; in a pipe a plain line now and then."""

    def __init__(self, jobs: Sequence[Job], workers: int, progress: Progress) -> None:
        self.jobs, self.workers, self.progress = jobs, workers, progress
        self.cost = {job: run_flops(job.c, job.c.data.vocabulary) for job in jobs}
        self.began, self.shown = time.monotonic(), {c for c in jobs if ended(c)}
        self.first: tuple[float, float, int] | None = None  # when steps were first seen; as `_look`
        self.before, _ = self._look()
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
        """Says which runs ended since the last look, and shows where the others are."""
        for job in self.jobs:
            if job in self.shown or not ended(job):
                continue
            self.shown.add(job)
            self._say(f"{outcome(job)}  ({len(self.shown)} of {len(self.jobs)})")
        if self.live:
            self.live.update(self._table(), refresh=True)
            return
        parts = [f"{len(self.shown)}/{len(self.jobs)} runs", *self._running(), self._left()]
        self.progress.show("  ".join(part for part in parts if part))

    def _say(self, line: str) -> None:
        if self.live:
            self.live.console.print(Text(line))
        else:
            self.progress.say(line)

    def _table(self) -> Group | Text:
        """The runs at work, and below them how many are done, failed and waiting."""
        table = Table("run", *(Column(name, justify="right") for name in _COLUMNS), box=SIMPLE)
        waiting = []
        for job in self.jobs:
            if job in self.shown:
                continue
            last = _last(job)
            if "nll" not in last:
                waiting.append(job.name)
                continue
            step, of = last["step"], job.c.training.steps
            left = duration((of - step) * last["seconds_per_step"]) if step < of else "translating"
            ppl = f"{math.exp(min(last['nll'], 20)):,.2f}"
            speed = f"{last['tokens_per_second']:,.0f}"
            table.add_row(Text(job.name), f"{step:,}/{of:,}", ppl, speed, left)
        failed = sum(store.read_failure(job.directory) is not None for job in self.shown)
        done = f"{len(self.shown)} of {len(self.jobs)} runs are done"
        told = [done + (f", {failed} of them failed" if failed else ""), self._left()]
        below = "; ".join(part for part in told if part)
        if waiting:
            below += f"\nwaiting: {', '.join(waiting)}"
        return Group(table, Text(below)) if table.row_count else Text(below)

    def _running(self) -> list[str]:
        """The runs that are at the same step, by one of them, and the step."""
        at: dict[str, list[str]] = {}
        for job in self.jobs:
            step, of = self._step(job), job.c.training.steps
            if step and job not in self.shown:
                place = f"{step:,}/{of:,}" if step < of else "translating"
                at.setdefault(place, []).append(job.name)
        return [
            names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") + f" {place}"
            for place, names in at.items()
        ]

    def _left(self) -> str:
        """Time left: of the steps at the speed so far, and of compiling as long as at first."""
        (done, started), now = self._look(), time.monotonic()
        if self.first is None:
            if done > self.before:
                self.first = now, done, started
            return "compiling"
        since, begun_with, started_then = self.first
        compiling = (since - self.began) / self.workers
        steps = now - since - compiling * (started - started_then)
        if done == begun_with or steps <= 0:
            return ""
        left = (sum(self.cost.values()) - done) / (done - begun_with) * steps
        waiting = {compile_key(c.c) for c in self.jobs if c not in self.shown and not self._step(c)}
        return f"{duration(left + compiling * len(waiting))} left"

    def _look(self) -> tuple[float, int]:
        """FLOPs of the steps that are done, and how many programs have begun."""
        steps = {job: self._step(job) for job in self.jobs}
        share = {c: 1.0 if c in self.shown else s / c.c.training.steps for c, s in steps.items()}
        begun = {compile_key(job.c) for job, step in steps.items() if step}
        return sum(self.cost[job] * share[job] for job in self.jobs), len(begun)

    def _step(self, job: Job) -> int:
        return _last(job).get("step", 0)


def _last(job: Job) -> dict[str, Any]:
    """The last record of a run at work, with what training said last; empty before the first."""
    merged: dict[str, Any] = {}
    for record in read_metrics(job.directory / "metrics.jsonl")[-2:]:
        merged |= record
    return merged


def ended(job: Job) -> bool:
    """Whether a run is finished and scored, or has failed."""
    if store.read_failure(job.directory) is not None:
        return True
    result = store.read_result(job.directory)
    if result is None or not job.split:
        return result is not None
    return store.read_statistics(job.directory, result, job.split) is not None


def outcome(job: Job) -> str:
    """The scores of a run, or why it has none."""
    result, failure = store.read_result(job.directory), store.read_failure(job.directory)
    if result is None or failure is not None:
        return f"{job.name}: failed: {failure}"
    line = f"{job.name}: PPL {result['dev_perplexity']:.3f}"
    if not job.split:
        return line
    metric = metric_of(job.c.data.corpus)
    return f"{line}  {metric.name} {result['scores'][job.split][metric.key]['score']:.2f}"
