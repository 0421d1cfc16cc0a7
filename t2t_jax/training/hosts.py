"""Several processes that train one run: they join and agree, and the first of them writes files."""

import itertools
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from t2t_jax.errors import RunError, UsageError

T = TypeVar("T")

# The preemption service expects consecutive numbers, but a resumed run does not begin with step 1.
_calls = itertools.count(1)


def join(hosts: str) -> None:
    """Connects this process to the others; call it before anything uses a device.

    Args:
      hosts: `auto` under srun, Open MPI, Kubernetes or on a TPU slice; or `I/N@ADDRESS:PORT` for
        process I of N, where process 0 listens at the address.

    Raises:
      UsageError: `hosts` is malformed, or `auto` finds no launcher.
      RunError: the other processes did not connect in time.
    """
    options: dict[str, Any] = {}
    if hosts != "auto":
        number, _, address = hosts.partition("@")
        i, _, n = number.partition("/")
        if not (i.isdecimal() and n.isdecimal() and ":" in address and int(i) < int(n)):
            raise UsageError(
                f"--hosts {hosts}: give auto, or I/N@ADDRESS:PORT with I from 0 to N-1."
            )
        options = dict(coordinator_address=address, process_id=int(i), num_processes=int(n))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(**options)
    except ValueError:
        raise UsageError(
            "--hosts auto finds no launcher here: start it with srun, mpirun or on a TPU slice, or "
            "give I/N@ADDRESS:PORT."
        ) from None
    except RuntimeError as error:
        raise RunError(f"--hosts {hosts}: {str(error).splitlines()[0]}") from None
    # Orbax would give the preemption service its steps, between the numbers of `interruption`.
    ocp.CheckpointManager.reached_preemption = lambda self, step: False


def first() -> bool:
    """Whether this process is the first one, which alone writes files."""
    return jax.process_index() == 0


def agree(facts: Mapping[str, Any]) -> None:
    """Checks that facts, which must be picklable, are equal on all processes.

    Raises:
      UsageError: they differ. It is raised on every process and names the facts and processes.
    """
    if jax.process_count() == 1:
        return
    expected = decide(lambda: dict(facts))  # of the first process
    mine = np.array([facts.get(name) != fact for name, fact in expected.items()])
    differs = multihost_utils.process_allgather(mine)  # [processes, facts]
    if differs.any():
        names = ", ".join(n for n, d in zip(expected, differs.any(axis=0), strict=True) if d)
        who = ", ".join(str(i) for i in np.flatnonzero(differs.any(axis=1)))
        raise UsageError(
            f"the processes do not agree on {names} (process {who} differs from process 0): start "
            "them all with the same command, code and corpus."
        )


def decide(function: Callable[[], T]) -> T:
    """Calls `function` on the first process; every process returns its value or raises its error.

    The value must be picklable.
    """
    if jax.process_count() == 1:
        return function()
    outcome: Any = None
    if first():
        try:
            outcome = True, function()
        except (UsageError, RunError) as error:
            outcome = False, error
    content = np.frombuffer(pickle.dumps(outcome), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    padded = content if first() else np.zeros(size, np.uint8)
    succeeded, value = pickle.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())
    if not succeeded:
        raise value
    return value


@contextmanager
def interruption() -> Iterator[Callable[[int], bool]]:
    """Context in which the first SIGINT or SIGTERM sets a flag; the same again ends the process.

    The context yields a function of the step that returns the flag. With several processes, every
    process must call it in every step; it returns True on all of them in the same step, whichever
    received the signal. A SIGTERM outside the context is not lost then: the next context stops.
    """
    if jax.process_count() > 1:  # jax.distributed listens for SIGTERM
        before = signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            yield lambda step: multihost_utils.reached_preemption_sync_point(next(_calls))
        finally:
            signal.signal(signal.SIGINT, before)
        return
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, handlers[signal.Signals(number)])

    handlers = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda step: bool(received)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
