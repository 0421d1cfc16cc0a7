"""Runs as the training loop sees them: before, during and after training."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.config import Config
from t2t_jax.errors import RunError
from t2t_jax.training.checkpoints import History
from t2t_jax.training.progress import Metrics

Batches = Iterator[tuple[tuple[int, int], dict[str, Any]]]
Stream = Callable[[int, int], Batches]


class Member(NamedTuple):
    """A run to be trained.

    Attributes:
      stream: function of a position (epoch, batch) that yields ((next epoch, next batch), batch)
        from there on without end.
      directory: where checkpoints/ and metrics.jsonl are written.
    """

    c: Config
    stream: Stream
    directory: Path


class Trained(NamedTuple):
    """The outcome of a run.

    Attributes:
      params: the parameters, averaged over the last checkpoints.
      averaged: the steps of those checkpoints.
      population_size: number of runs trained at once; `history` has the seconds of all of them.
    """

    params: Any
    averaged: list[int]
    history: History
    population_size: int


@dataclass
class Run:
    """A member in training.

    Attributes:
      index: its place on the population axis.
      manager: its checkpoint manager.
      history: its history at its last checkpoint or evaluation.
      batches: its stream, from the restored position on.
      metrics: its metrics.jsonl; None on processes other than the first, which alone writes.
      error: why it ended early.
    """

    index: int
    member: Member
    manager: Any
    history: History
    batches: Batches
    metrics: Metrics | None = None
    error: RunError | None = None

    def write(self, record: dict[str, Any]) -> None:
        """Writes this run's part of a record of the population, whose values are scalars or [P]."""
        if self.metrics is not None:
            own = {n: float(x[self.index] if np.ndim(x) else x) for n, x in record.items()}
            self.metrics.write(own | {"step": record["step"]})


class Clock:
    """Measures the seconds of training; while it is stopped, they count as `overhead`."""

    def __init__(self, history: History) -> None:
        self.overhead = history.overhead
        self._start = time.monotonic() - history.seconds - history.overhead

    def seconds(self) -> float:
        """Seconds of training since the run began, including those before it was resumed."""
        return time.monotonic() - self._start - self.overhead

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Context for compiling or evaluating, whose time is not that of training."""
        start = time.monotonic()
        yield
        self.overhead += time.monotonic() - start
