"""Runs that are trained at once, as one wider computation: state, batch and hyper get an axis P.

Members may differ in the traced hyperparameters (`step.Hyper`): dropout, label smoothing, z-loss,
learning rate and seed. A single run has no axis P: with one of length 1, XLA would copy the state
in every step instead of updating it in place.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from t2t_jax.config import Config
from t2t_jax.errors import RunError
from t2t_jax.training.checkpoints import History
from t2t_jax.training.records import Metrics

HostBatches = Iterator[tuple[tuple[int, int], dict[str, Any]]]
Stream = Callable[[int, int], HostBatches]


@dataclass(eq=False)
class Member:
    """A run to be trained, and its state while it is trained.

    `stream` is a function of a position (epoch, batch) that yields ((next epoch, next batch),
    batch) from there on without end.
    """

    c: Config
    stream: Stream
    directory: Path  # where checkpoints/ and metrics.jsonl are written
    index: int = 0  # on the population axis
    manager: Any = None  # of its checkpoints
    history: History = field(default_factory=History)  # at its last checkpoint or evaluation
    batches: HostBatches = field(default_factory=lambda: iter(()))  # from the restored position on
    metrics: Metrics | None = None  # None on processes other than the first, which alone writes
    error: RunError | None = None  # why it ended early

    def write(self, record: dict[str, Any]) -> None:
        """Writes this run's part of a record of the population, whose values are scalars or [P]."""
        if self.metrics is not None:
            own = {n: float(x[self.index] if np.ndim(x) else x) for n, x in record.items()}
            self.metrics.write(own | {"step": record["step"]})


class Trained(NamedTuple):
    """The outcome of a run."""

    params: Any  # averaged over some checkpoints
    averaged: list[int]  # the steps of these checkpoints
    history: History
    population_size: int  # number of runs trained at once


class Clock:
    """Measures the seconds of training; while it is stopped, they count as `overhead`."""

    def __init__(self, seconds: float, overhead: float) -> None:
        self.overhead, self._start = overhead, time.monotonic() - seconds - overhead

    def seconds(self) -> float:
        """Seconds of training since the run began, including those before it was resumed."""
        return time.monotonic() - self._start - self.overhead

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Context for compiling or evaluating, whose time does not count as training."""
        start = time.monotonic()
        yield
        self.overhead += time.monotonic() - start


def vmap_step(step: Callable[..., Any], P: int) -> Callable[..., Any]:
    """The step mapped over the axis P of state, batch and hyper; the step itself if P is 1."""
    return step if P == 1 else jax.vmap(step, spmd_axis_name="population")


def stack(trees: Sequence[Any]) -> Any:
    """Trees of arrays [...] as one tree of arrays [P, ...], laid out like the first of them."""
    if len(trees) == 1:
        return trees[0]
    layout = jax.tree.map(
        lambda x: x.sharding.update(spec=PartitionSpec("population", *x.sharding.spec)), trees[0]
    )
    together = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)  # noqa: E731
    return jax.jit(together, out_shardings=layout)(trees)


def stack_batches(batches: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Batches {side: int32 [B, L]} on the host as one batch {side: int32 [P, B, L]}."""
    if len(batches) == 1:
        return batches[0]
    return {side: np.stack([batch[side] for batch in batches]) for side in batches[0]}


def member(tree: Any, i: int, P: int) -> Any:
    """The leaves of member i of P in a stacked tree, with the same layout."""
    if P == 1:
        return tree
    layout = jax.tree.map(lambda x: x.sharding.update(spec=x.sharding.spec[1:]), tree)
    chosen = lambda tree, i: jax.tree.map(lambda x: x[i], tree)  # noqa: E731
    return jax.jit(chosen, out_shardings=layout)(tree, i)
