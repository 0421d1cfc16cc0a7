"""Several processes on one run: how they find each other, agree, and which of them writes."""

import hashlib
import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from t2t_jax.errors import RunError, UsageError

T = TypeVar("T")


def join(hosts: str) -> None:
    """Joins the other processes, before anything else asks for a device.

    Args:
      hosts: `auto` under srun, Open MPI, Kubernetes or on a TPU pod; or `I/N@ADDRESS:PORT`: process
        I of N, the first of which listens there.

    Raises:
      UsageError: it cannot be read, or no launcher is found.
      RunError: the others did not come.
    """
    how: dict[str, Any] = {}
    if hosts != "auto":
        number, _, address = hosts.partition("@")
        i, _, n = number.partition("/")
        if not (i.isdecimal() and n.isdecimal() and ":" in address and int(i) < int(n)):
            raise UsageError(f"--hosts {hosts}: give auto, or I/N@ADDRESS:PORT with I from 0 on.")
        how = dict(coordinator_address=address, process_id=int(i), num_processes=int(n))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(**how)
    except ValueError:
        raise UsageError(
            "--hosts auto finds no launcher here: start it with srun, mpirun or on a TPU pod, or "
            "give I/N@ADDRESS:PORT."
        ) from None
    except RuntimeError as error:
        raise RunError(f"--hosts {hosts}: {str(error).splitlines()[0]}") from None


def first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def agree(facts: Mapping[str, Any]) -> None:
    """Makes sure that every process is to do the same.

    Raises:
      UsageError: they differ, on every process; the facts and the processes are named.
    """
    if jax.process_count() == 1:
        return
    digests = [
        hashlib.sha256(json.dumps(x, sort_keys=True).encode()).digest() for x in facts.values()
    ]
    mine = np.array([list(d) for d in digests], np.uint8)
    every = multihost_utils.process_allgather(mine)  # [processes, facts, 32]
    differs = (every != every[0]).any(axis=-1)
    if differs.any():
        names = ", ".join(n for n, d in zip(facts, differs.any(axis=0), strict=True) if d)
        who = ", ".join(str(i) for i in np.flatnonzero(differs.any(axis=1)))
        raise UsageError(
            f"the processes do not agree on {names} (process {who} differs from process 0): start "
            "them all with the same command, code and corpus."
        )


def decide(function: Callable[[], T]) -> T:
    """What the call returns, or raises, on the first process: the same on every one.

    What it returns must be picklable.
    """
    if jax.process_count() == 1:
        return function()
    said: Any = None
    if first():
        try:
            said = True, function()
        except (UsageError, RunError) as error:
            said = False, error
    content = np.frombuffer(pickle.dumps(said), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(content))))
    padded = content if first() else np.zeros(size, np.uint8)
    good, value = pickle.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())
    if not good:
        raise value
    return value


@contextmanager
def interruption() -> Iterator[Callable[[int], bool]]:
    """Turns the first SIGINT or SIGTERM into a flag; a second one ends the process as usual.

    The flag is a function of the step. With several processes it is raised on all of them at the
    same step, whichever got the signal.
    """
    if jax.process_count() > 1:  # jax.distributed listens for SIGTERM
        before = signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        try:
            yield multihost_utils.reached_preemption_sync_point
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
