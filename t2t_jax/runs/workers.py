"""Worker processes that run the jobs of a grid, and the process that supervises them.

Any number of workers, on any machines that share a store, take the jobs that remain. A worker holds
the lock of every run that it works on; the operating system releases it when the worker dies.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.errors import Busy, Interrupted, RunError
from t2t_jax.models.flops import run_flops
from t2t_jax.runs import claim, store
from t2t_jax.runs.identity import Job, OpenData, compile_key
from t2t_jax.runs.view import View, ended, outcome
from t2t_jax.terminal import Progress

POLL_SECONDS = 1.0  # between two readings of the store
LEAST_FLOPS = 1e12  # of a part of a group: a CPU core runs them in about the time of a compilation


def run_jobs(
    jobs: Sequence[Job],
    open_data: OpenData,
    progress: Progress,
    mesh: str,
    workers: int = 1,
    log: Path | None = None,
) -> None:
    """Runs the jobs that have neither a result nor an error, until none is left.

    Jobs that share a program run together. The most expensive ones start first. `workers` is
    the number of workers that share the jobs; `log` is the file of this worker's output.
    """
    populations = _populations(jobs, open_data, 1 if mesh else workers)
    while populations:
        remaining = (_run_population(x, open_data, progress, mesh, log) for x in populations)
        populations = [group for group in remaining if group]
        if populations:  # other workers hold these
            time.sleep(POLL_SECONDS)


def run_row(jobs: Sequence[Job], open_data: OpenData, progress: Progress, mesh: str) -> int:
    """Runs the jobs of one row, and reports their outcomes; returns how many failed."""
    run_jobs(jobs, open_data, progress, mesh)
    for job in jobs:
        progress.say(outcome(job))
    return sum(store.read_failure(job.directory) is not None for job in jobs)


def _populations(jobs: Sequence[Job], open_data: OpenData, workers: int = 1) -> list[list[Job]]:
    """Returns the jobs in groups that can share a program, the most expensive group first.

    A group that is more than one worker's share of the FLOPs is divided, so that no worker idles,
    unless its parts would take less time to run than to compile.
    """
    groups: dict[Config, list[Job]] = {}
    for job in jobs:
        groups.setdefault(compile_key(job.c), []).append(job)

    def flops(group: Sequence[Job]) -> float:
        V = open_data(group[0].c.data).vocabulary.size
        return sum(run_flops(job.c, V) for job in group)

    share = sum(map(flops, groups.values())) / workers
    divided = []
    for group in groups.values():
        parts = min(math.ceil(flops(group) / share - 1e-9), len(group))
        parts = max(1, min(parts, int(flops(group) / LEAST_FLOPS)))
        divided += [group[i::parts] for i in range(parts)]
    return sorted(divided, key=flops, reverse=True)


def _run_population(
    jobs: Sequence[Job], open_data: OpenData, progress: Progress, mesh: str, log: Path | None
) -> list[Job]:
    """Runs jobs that share a program; returns those that another worker holds."""
    from t2t_jax.runs.execution import execute

    jobs = [job for job in jobs if not ended(job)]
    if not jobs or claim.is_locked(jobs[0].directory):
        return jobs
    try:
        runs = [(job.c, job.directory) for job in jobs]
        dataset = open_data(jobs[0].c.data)
        splits = jobs[0].splits  # the same for all, as they share their architecture
        to_score: Callable[[str], bool] = splits.__contains__
        outcomes: Sequence[Any] = execute(runs, dataset, to_score, progress, mesh)
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever the error, other populations continue
        traceback.print_exc()
        outcomes = [error] * len(jobs)
    for job, result in zip(jobs, outcomes, strict=True):
        if isinstance(result, Exception) and not isinstance(result, Busy) and not ended(job):
            store.write_failure(job.directory, result, log)
    return [job for job, result in zip(jobs, outcomes, strict=True) if isinstance(result, Busy)]


def supervise(
    jobs: Sequence[Job], command: Sequence[str], workers: int | None, logs: Path, progress: Progress
) -> int:
    """Starts workers on jobs and shows their progress until they end; returns how many failed.

    `command` is the command line of a worker without its number. `workers` is None for one per GPU,
    or per CPU core without GPUs.
    """
    files.make_directory(logs)
    if all(ended(job) for job in jobs):
        return 0
    workers = workers or _default_workers(len({compile_key(job.c) for job in jobs}))
    with _workers(command, workers, logs) as processes:
        try:
            view = View(jobs, progress)
            while any(p.poll() is None for p in processes):
                view.refresh()
                time.sleep(POLL_SECONDS)
            view.refresh()
        except KeyboardInterrupt:
            progress.say("stopping: every run saves its state")
            raise Interrupted("stopped; the same command continues from there.") from None
    if not all(ended(job) for job in jobs):
        codes = ", ".join(str(p.returncode) for p in processes)
        raise RunError(
            f"the workers ended before the grid (exit codes {codes}): see {logs}; the same command "
            "continues from there."
        )
    return sum(store.read_failure(job.directory) is not None for job in jobs)


@contextmanager
def _workers(
    command: Sequence[str], workers: int, logs: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts workers, and terminates them at the end; until then, SIGTERM acts like Ctrl-C.

    A worker also ends when this process does, because its standard input closes then.
    """
    processes, python = [], (sys.executable, "-m", "t2t_jax.cli")
    for i in range(workers):
        words = [*python, *command, "--worker", f"{i}/{workers}"]
        with (logs / f"worker-{i}.txt").open("ab") as out:
            p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=out)
        processes.append(p)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield processes
    finally:
        signal.signal(signal.SIGTERM, handler)
        for p in processes:
            p.send_signal(signal.SIGTERM)
        for p in processes:
            p.wait()
            if p.stdin:
                p.stdin.close()


def _default_workers(programs: int) -> int:
    """Returns one worker per GPU, or per core: a small model hardly gains from a second core."""
    devices = any(Path(p).exists() for p in ("/dev/nvidia0", "/dev/accel0", "/dev/vfio/0"))
    if devices and os.environ.get("JAX_PLATFORMS", "") != "cpu":
        return min(max(len(gpus()), 1), programs)
    affinity = getattr(os, "sched_getaffinity", None)
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, programs)


def gpus(devices: Path = Path("/dev")) -> list[str]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [x for x in visible.split(",") if x]
    found = (p.name.removeprefix("nvidia") for p in devices.glob("nvidia[0-9]*"))
    return sorted(found, key=int)


def set_up_worker(number: str) -> None:
    """Restricts this worker to its share of cores and GPUs, and ends it when its supervisor ends.

    JAX must not be imported before the call. Workers that share a GPU share its memory equally.
    """
    i, n = map(int, number.split("/"))
    if n > 1 and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[i % len(cores) :: n])
    if n > 1 and (mine := gpus()):
        sharing = -(-n // len(mine))
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(mine[i % len(mine) :: n])
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / sharing:.2f}")

    def follow_supervisor() -> None:
        while os.read(0, 1):  # until standard input closes
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow_supervisor, daemon=True).start()
