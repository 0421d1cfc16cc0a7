"""The runs of a store at a glance: the status of each, and the time until all have ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax.config import Config
from t2t_jax.errors import UsageError, warn
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import names, published, results, store
from t2t_jax.training.progress import Progress, duration

REFRESH = 15.0  # seconds between two readings of a store
RECENT = 600.0  # seconds for which a run counts as running after a new record
_COLUMNS = "run", "status", "step", "age", "dev PPL", "scores", "location"
_RIGHT = "step", "age", "dev PPL"


def lines(home: Path) -> list[str]:
    """Returns a line for each name of each run of a store, below a heading.

    The age is the time since the run ended, or since its last record if it has not ended.
    """
    rows = []
    for directory, c in results.stored(home, warn):
        try:
            cells = _cells(directory, c)
        except UsageError as error:
            warn(str(error))
            continue
        rows += [(name, *cells) for name in names.names(directory)]
    if not rows:
        return [f"{home} has no runs."]
    table = [_COLUMNS, *sorted(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if name in _RIGHT else cell.ljust(width)
            for cell, width, name in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in table
    ]


def _cells(directory: Path, c: Config) -> tuple[str, ...]:
    """Returns the columns of a run after its name."""
    status, step = results.status(directory)
    metric, result = metric_of(c.data.corpus), store.read_result(directory, warn) or {}
    ppl = result.get("dev_perplexity")
    if ppl is None:
        evaluations = (r.get("dev_perplexity") for r in reversed(store.read_curves(directory)))
        ppl = next((x for x in evaluations if x is not None), None)
    scores: dict[str, Any] = result.get("scores", {})
    texts = [f"{split} {s[metric.key]['score']:.2f}" for split, s in scores.items()]
    begun = published.read(directory, "environment.json") or {}
    about = str(published.location(directory)), begun.get("continued")
    failure = store.read_failure(directory)
    location = ", continued ".join(filter(None, about))
    return (
        status,
        f"{step:,}/{c.training.steps:,}",
        _age(directory),
        "" if ppl is None else f"{ppl:.3f}",
        f"{metric.name} {', '.join(texts)}" if texts else "",
        location if failure is None else f"{location}: {failure}",
    )


def _age(directory: Path) -> str:
    """Returns the time since a run ended or wrote its last record; empty if it is published."""
    files = ("failed.json", "result.json", "metrics.jsonl", "config.json")
    path = next((directory / name for name in files if (directory / name).exists()), None)
    if path is None:
        return ""
    seconds = max(0.0, time.time() - path.stat().st_mtime)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


@dataclass(frozen=True)
class Standing:
    """The progress of a run in a store.

    Attributes:
      flops: FLOPs of a step.
      seconds: seconds of a step, as last measured; None before the first record.
    """

    name: str
    status: str
    step: int
    steps: int
    flops: float
    seconds: float | None

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "failed")

    @property
    def running(self) -> bool:
        """Whether it makes steps; other runs that a process holds are waiting for their turn."""
        return self.status == "running" and self.seconds is not None


class Watch:
    """Reads the progress of a store's runs repeatedly.

    Attributes:
      grown: the step of each run, and when it was first seen at that step. A run whose step grows
        is running, even if its lock is held on a machine whose locks are not visible from here.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.grown: dict[Path, tuple[int, float]] = {}

    def look(self) -> tuple[list[Standing], int]:
        """Returns the progress of the runs, and the number of runs that no process has begun."""
        standings = [self._standing(*run) for run in results.stored(self.home, warn)]
        named = {path.parent for path in self.home.glob(f"*/{names.FILE}")}
        return standings, len(named - {*published.directories(self.home)})

    def _standing(self, directory: Path, c: Config) -> Standing:
        status, step = results.status(directory)
        before, since = self.grown.get(directory, (step, -RECENT))
        since = time.monotonic() if step > before else since
        self.grown[directory] = step, since
        if status == "stopped" and time.monotonic() - since < RECENT:
            status = "running"
        measured = (r.get("seconds_per_step") for r in reversed(store.read_curves(directory)))
        seconds = next((x for x in measured if x is not None), None)
        flops = run_flops(c, c.data.vocabulary) / c.training.steps
        name, steps = names.names(directory)[0], c.training.steps
        return Standing(name, status, step, steps, flops, seconds)


def seconds_left(standings: Sequence[Standing], unbegun: int) -> float | None:
    """Returns the estimated time until all runs have ended; None while no run makes steps.

    The estimate assumes that a run's remaining steps take as long as its last ones, or as their
    FLOPs take in other runs, and that as many runs are trained at once as at present.

    Args:
      unbegun: number of runs whose config is not known; each is assumed to take the others' mean.
    """
    running = [x for x in standings if x.running]
    if not running:
        return None
    measured = [(x.seconds, x.flops) for x in standings if x.seconds is not None]
    rate = sum(s for s, _ in measured) / sum(flops for _, flops in measured)

    def seconds(x: Standing, steps: int) -> float:
        return steps * (x.flops * rate if x.seconds is None else x.seconds)

    left = sum(seconds(x, x.steps - x.step) for x in standings if not x.ended)
    left += unbegun * sum(seconds(x, x.steps) for x in standings) / len(standings)
    return max(left / len(running), *(seconds(x, x.steps - x.step) for x in running))


def progress(standings: Sequence[Standing], unbegun: int) -> list[str]:
    """Returns a line about all runs, and one about each that makes steps."""
    failed = sum(x.status == "failed" for x in standings)
    ended, running = sum(x.ended for x in standings), [x for x in standings if x.running]
    total = len(standings) + unbegun
    left = seconds_left(standings, unbegun)
    parts = [
        f"{ended} of {total} runs have ended" + f", {failed} of them failed" * bool(failed),
        f"{len(running)} running",
        f"{total - ended - len(running)} waiting",
        *([] if left is None or ended == total else [f"about {duration(left)} left"]),
    ]
    return ["; ".join(parts), *(_progress(x) for x in running)]


def _progress(x: Standing) -> str:
    left = duration((x.steps - x.step) * (x.seconds or 0)) if x.step < x.steps else "scoring"
    return f"  {x.name}  step {x.step:,}/{x.steps:,}  {left}"


def watch(home: Path, out: Progress) -> None:
    """Prints the progress of a store until all of its runs have ended or Ctrl-C is pressed."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    store_, shown = Watch(home), list[str]()
    console = Console(file=out.out, highlight=False)
    live = Live(console=console, auto_refresh=False) if out.live else None
    if live:
        live.start()
    try:
        while True:
            standings, unbegun = store_.look()
            text = progress(standings, unbegun)
            stamped = [f"{time.strftime('%H:%M:%S')}  {text[0]}", *text[1:]]
            if live:
                live.update(Text("\n".join(stamped), overflow="ellipsis"), refresh=True)
            elif text != shown:
                print(*stamped, sep="\n", file=out.out, flush=True)
            shown = text
            if not unbegun and all(x.ended for x in standings):
                return
            time.sleep(REFRESH)
    except KeyboardInterrupt:
        pass
    finally:
        if live:
            live.stop()
