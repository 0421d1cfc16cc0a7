"""Workers on a grid, and who watches them.

Any number of workers, on this machine or on others that see the same store, take what is left of a
grid. A worker holds the lock of every run that it works on; when it dies, the kernel gives it back.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.config import Config, Data
from t2t_jax.data.cache import Dataset
from t2t_jax.errors import Busy, Interrupted, RunError
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import store
from t2t_jax.runs.job import Job, compile_key
from t2t_jax.runs.view import View, ended, outcome
from t2t_jax.training.progress import Progress

EVERY = 1.0  # seconds between two looks at the store
Open = Callable[[Data], Dataset]


def work(jobs: Sequence[Job], open_data: Open, progress: Progress, mesh: str) -> None:
    """Runs what is left, the most expensive first, until no job is without a result or an error.

    Args:
      open_data: opens the corpus of a job, which jobs that share a program share too.
      mesh: as `sharding.make_mesh` reads it.

    Raises:
      Interrupted: the same call goes on from there.
    """
    left = _populations(jobs, open_data)
    while left:
        how = open_data, progress, mesh
        left = [rest for group in left if (rest := _attempt(group, *how))]
        if left:  # other workers hold these
            time.sleep(EVERY)


def one_row(jobs: Sequence[Job], open_data: Open, progress: Progress, mesh: str) -> None:
    """`work` on the jobs of one row alone, those that failed before among them.

    Raises:
      RunError: one of them failed.
    """
    for job in jobs:
        store.forget_failure(job.directory)
    work(jobs, open_data, progress, mesh)
    for job in jobs:
        progress.say(outcome(job))
    if failed := sum(store.read_failure(job.directory) is not None for job in jobs):
        raise RunError(f"{failed} of {len(jobs)} runs failed: the same command tries them again.")


def _populations(jobs: Sequence[Job], open_data: Open) -> list[list[Job]]:
    """Cells that can share a program, together; the most expensive first."""
    groups: dict[Config, list[Job]] = {}
    for job in jobs:
        groups.setdefault(compile_key(job.c), []).append(job)

    def flops(group: Sequence[Job]) -> float:
        V = open_data(group[0].c.data).vocabulary.size
        return sum(run_flops(job.c, V) for job in group)

    return sorted(groups.values(), key=flops, reverse=True)


def _attempt(jobs: Sequence[Job], open_data: Open, progress: Progress, mesh: str) -> list[Job]:
    """Runs the jobs of a population that have neither result nor error; those that are held."""
    from t2t_jax.runs.execution import execute

    jobs = [job for job in jobs if not ended(job)]
    if not jobs or store.busy(jobs[0].directory):
        return jobs
    try:
        runs = [(job.c, job.directory) for job in jobs]
        dataset = open_data(jobs[0].c.data)
        split = jobs[0].split  # of all, as they share their architecture
        outcomes: Sequence[Any] = execute(runs, dataset, lambda name: name == split, progress, mesh)
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever it is, the other rows go on
        traceback.print_exc()
        outcomes = [error] * len(jobs)
    for job, came in zip(jobs, outcomes, strict=True):
        if isinstance(came, Exception) and not isinstance(came, Busy) and not ended(job):
            store.write_failure(job.directory, came)
    return [job for job, came in zip(jobs, outcomes, strict=True) if isinstance(came, Busy)]


def watch(
    jobs: Sequence[Job], words: Sequence[str], workers: int, logs: Path, progress: Progress
) -> int:
    """Starts workers on a grid and shows how far it is, until they are done.

    Args:
      words: the command line of a worker but for its number.
      workers: how many; 0 for one a core of a CPU, or one on accelerators.
      logs: takes what the workers print.

    Returns:
      How many runs failed.

    Raises:
      Interrupted: they were stopped; the same call goes on from there.
      RunError: a worker died, and jobs are left.
    """
    files.make_directory(logs)
    for job in jobs:  # what failed is tried again
        store.forget_failure(job.directory)
    if all(ended(job) for job in jobs):
        return 0
    workers = workers or _fitting(len({compile_key(job.c) for job in jobs}))
    processes = [
        _start([*words, "--worker", f"{i}/{workers}"], logs / f"worker-{i}.txt")
        for i in range(workers)
    ]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with View(jobs, workers, progress) as view:
            while any(p.poll() is None for p in processes):
                view.refresh()
                time.sleep(EVERY)
            view.refresh()
    except KeyboardInterrupt:
        progress.say("stopping: every run saves where it stands")
        raise Interrupted("stopped; the same command goes on from there.") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        for p in processes:
            p.send_signal(signal.SIGTERM)
        for p in processes:
            p.wait()
            if p.stdin:
                p.stdin.close()
    if not all(ended(job) for job in jobs):
        codes = ", ".join(str(p.returncode) for p in processes)
        raise RunError(
            f"the workers ended before the grid (exit codes {codes}): see {logs}; the same command "
            "goes on from there."
        )
    return sum(store.read_failure(job.directory) is not None for job in jobs)


def _fitting(programs: int) -> int:
    """Workers that keep this machine busy: a small model uses one core well and two hardly."""
    devices = any(Path(p).exists() for p in ("/dev/nvidia0", "/dev/accel0", "/dev/vfio/0"))
    if devices and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        return 1
    return min(_cores(), programs)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A worker, which ends when this process does: its standard input closes then."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "t2t_jax.cli", *words],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
        )


def become(number: str) -> None:
    """Takes this worker's share of the cores, and follows whoever started it into the grave.

    Args:
      number: `i/n`, of n workers on this machine.
    """
    i, n = map(int, number.split("/"))
    if n > 1 and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[i % len(cores) :: n])

    def follow() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
