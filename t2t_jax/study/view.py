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
from t2t_jax.study import store
from t2t_jax.study.grid import Cell, alike
from t2t_jax.training.flops import run_flops
from t2t_jax.training.progress import Progress, duration, read_metrics

_COLUMNS = "step", "perplexity", "tokens/s", "time left"


class View:
    """On a terminal a table, drawn anew at every look; in a pipe a plain line now and then."""

    def __init__(self, cells: Sequence[Cell], workers: int, progress: Progress) -> None:
        self.cells, self.workers, self.progress = cells, workers, progress
        self.cost = {cell: run_flops(cell.c, cell.c.data.vocabulary) for cell in cells}
        self.began, self.shown = time.monotonic(), {c for c in cells if ended(c)}
        self.first: tuple[float, float, int] | None = None  # when steps were first seen; as `_look`
        self.before, _ = self._look()
        self.live = None
        if progress.live:
            console = Console(file=progress.out, highlight=False)
            self.live = Live(console=console, auto_refresh=False, transient=True)
        if self.shown:
            progress.say(f"{len(self.shown)} of {len(cells)} runs are done already")

    def __enter__(self) -> "View":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def refresh(self) -> None:
        """Says which runs ended since the last look, and shows where the others are."""
        for cell in self.cells:
            if cell in self.shown or not ended(cell):
                continue
            self.shown.add(cell)
            self._say(f"{outcome(cell)}  ({len(self.shown)} of {len(self.cells)})")
        if self.live:
            self.live.update(self._table(), refresh=True)
            return
        parts = [f"{len(self.shown)}/{len(self.cells)} runs", *self._running(), self._left()]
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
        for cell in self.cells:
            if cell in self.shown:
                continue
            last = _last(cell)
            if "nll" not in last:
                waiting.append(cell.name)
                continue
            step, of = last["step"], cell.c.training.steps
            left = duration((of - step) * last["seconds_per_step"]) if step < of else "translating"
            ppl = f"{math.exp(min(last['nll'], 20)):,.2f}"
            speed = f"{last['tokens_per_second']:,.0f}"
            table.add_row(Text(cell.name), f"{step:,}/{of:,}", ppl, speed, left)
        failed = sum(store.read_failure(cell.directory) is not None for cell in self.shown)
        done = f"{len(self.shown)} of {len(self.cells)} runs are done"
        told = [done + (f", {failed} of them failed" if failed else ""), self._left()]
        below = "; ".join(part for part in told if part)
        if waiting:
            below += f"\nwaiting: {', '.join(waiting)}"
        return Group(table, Text(below)) if table.row_count else Text(below)

    def _running(self) -> list[str]:
        """The runs that are at the same step, by one of them, and the step."""
        at: dict[str, list[str]] = {}
        for cell in self.cells:
            step, of = self._step(cell), cell.c.training.steps
            if step and cell not in self.shown:
                place = f"{step:,}/{of:,}" if step < of else "translating"
                at.setdefault(place, []).append(cell.name)
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
        waiting = {alike(c.c) for c in self.cells if c not in self.shown and not self._step(c)}
        return f"{duration(left + compiling * len(waiting))} left"

    def _look(self) -> tuple[float, int]:
        """FLOPs of the steps that are done, and how many programs have begun."""
        steps = {cell: self._step(cell) for cell in self.cells}
        share = {c: 1.0 if c in self.shown else s / c.c.training.steps for c, s in steps.items()}
        begun = {alike(cell.c) for cell, step in steps.items() if step}
        return sum(self.cost[cell] * share[cell] for cell in self.cells), len(begun)

    def _step(self, cell: Cell) -> int:
        return _last(cell).get("step", 0)


def _last(cell: Cell) -> dict[str, Any]:
    """The last record of a run at work, with what training said last; empty before the first."""
    merged: dict[str, Any] = {}
    for record in read_metrics(cell.directory / "metrics.jsonl")[-2:]:
        merged |= record
    return merged


def ended(cell: Cell) -> bool:
    """Whether a run is finished and scored, or has failed."""
    if store.read_failure(cell.directory) is not None:
        return True
    result = store.read_result(cell.directory)
    if result is None or not cell.split:
        return result is not None
    return store.read_statistics(cell.directory, result, cell.split) is not None


def outcome(cell: Cell) -> str:
    """The scores of a run, or why it has none."""
    result, failure = store.read_result(cell.directory), store.read_failure(cell.directory)
    if result is None or failure is not None:
        return f"{cell.name}: failed: {failure}"
    line = f"{cell.name}: PPL {result['dev_perplexity']:.3f}"
    if not cell.split:
        return line
    metric = metric_of(cell.c.data.corpus)
    return f"{line}  {metric.name} {result['scores'][cell.split][metric.key]['score']:.2f}"
