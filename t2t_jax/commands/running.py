"""`run`: the rows of a study under every seed; `plan`: what that would cost and find."""

import dataclasses
import itertools
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_jax import checks
from t2t_jax.commands.shared import cache_programs, grid_shown, lines_of, request
from t2t_jax.data.prepare import opener
from t2t_jax.errors import RunError, UsageError
from t2t_jax.evaluation.metrics import PPL
from t2t_jax.report import charts
from t2t_jax.runs import claim, names, provenance, published, store, study_file, workers
from t2t_jax.runs.identity import Job, OpenData
from t2t_jax.study import requests, sweep
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.declaration import EXPERIMENTS, Row, find
from t2t_jax.study.formats import render
from t2t_jax.study.grid import Grid
from t2t_jax.study.measuring import check
from t2t_jax.study.plan import noise
from t2t_jax.study.plan import plan as planned
from t2t_jax.study.typeset import as_text
from t2t_jax.terminal import Progress, say
from t2t_jax.training import trackers

WITH_SEEDS = EXPERIMENTS / "results" / "table3-hour"  # of which `plan` plans a first table


def run(arguments: Namespace) -> None:
    """Runs a study, and prints its table and the paths of its plots.

    With --worker or --task it runs a part of the study, and prints no table.
    """
    study, asked = request(arguments)
    grid = asked.grid(study, arguments.store)
    seeds = sweep.seeds_of(grid, arguments.seeds, arguments.base_seeds)
    tasks = sweep.tasks(grid, seeds)
    if arguments.tasks:
        print(*map(len, tasks))
        return
    _check(grid, arguments, sum(map(len, tasks)))
    if arguments.track:
        trackers.choose(arguments.track)
    progress = Progress()
    try:
        open_data = opener(arguments.cache, progress.say)
        stages = sweep.stages(grid, seeds, open_data)
        if arguments.worker:
            return _work(stages, arguments, open_data, progress)
        check(grid, open_data(grid.data).splits, progress.say)
        if arguments.published:
            n = published.unpack(arguments.published, arguments.store)
            progress.say(f"{n} runs taken from {arguments.published}")
        if arguments.task is not None:
            return _run_task(grid, tasks, arguments, open_data, progress)
        for stage, jobs in enumerate(stages):
            requests.remember(grid.home, grid)
            _prepare_directories(jobs, arguments, progress)
            command, logs = [*arguments.words, "--stage", str(stage)], arguments.store / "workers"
            failed = workers.supervise(jobs, command, arguments.workers, logs, progress)
            # What fails in the last stage is reported; a trial that fails is a result.
    finally:
        progress.close()
    lines = lines_of(grid, arguments.cache, judge=True)
    print(render([(grid, lines)], "text", details=False), end="")
    sentences = open_data(grid.data).splits.get(grid.study.split)
    for path in charts.draw(grid, lines, sentences):
        print(f"plot: {path}")
    if failed:
        raise RunError(f"{failed} of {len(jobs)} runs failed: the same command tries them again.")


def plan(arguments: Namespace) -> None:
    """Prints what a study would cost and find, from the stored table that is most like its own."""
    if arguments.detect is not None and not arguments.detect > 0:
        raise UsageError(f"--detect {arguments.detect}: give a number of nats above 0.")
    if arguments.origin and not arguments.origin.is_dir():
        raise UsageError(f"there is no folder {arguments.origin}: name another one with --from.")
    grid, lines, origin = grid_shown(arguments), list[RowResult](), ""
    for home in [arguments.origin] if arguments.origin else [arguments.store, WITH_SEEDS]:
        lines, origin = _most_alike(grid, home, arguments.cache)
        if noise(lines, PPL):
            break
    table = planned(grid, lines, origin, arguments.base_seeds, arguments.detect)
    print(as_text(table), end="")


def _most_alike(grid: Grid, home: Path, cache: Path) -> tuple[list[RowResult], str]:
    """Returns the lines of the stored table that is most like a grid, if any, and its name."""
    study, preset = grid.study, grid.preset.name
    known = [(x.study == study.name, x.preset == preset, x) for x in requests.known(home)]
    if not known:
        return [], str(home)
    best = max(known, key=lambda x: x[:2])[-1].declared_alone(say)
    of_best = study if best.study == study.name else find(best.study)
    lines = lines_of(best.grid(of_best, home), cache)
    return lines, f"{best.study}-{best.preset} of {home}"


def _check(grid: Grid, arguments: Namespace, tasks: int) -> None:
    """Raises an error if the arguments, the rows or the store do not allow training."""
    if arguments.task is not None and arguments.task >= tasks:
        raise UsageError(f"--task {arguments.task}: choose one of 0 to {tasks - 1}.")
    if (grid.home / published.NAME).exists():
        raise UsageError(
            f"{grid.home} holds published runs, which are read-only: choose another --store."
        )
    for part in (grid, *grid.trials):
        for row in part.rows:
            checks.check_positions(part.config(row))


def _work(
    stages: Iterable[Sequence[Job]],
    arguments: Namespace,
    open_data: OpenData,
    progress: Progress,
) -> None:
    """Runs the jobs of a stage, as a worker that `run` started for it."""
    workers.set_up_worker(arguments.worker)
    cache_programs(arguments.cache)
    jobs = next(itertools.islice(stages, arguments.stage, None))
    number, _, count = arguments.worker.partition("/")
    log = arguments.store / "workers" / f"worker-{number}.txt"
    workers.run_jobs(jobs, open_data, progress, arguments.mesh, int(count), log)


def _run_task(
    grid: Grid,
    tasks: Sequence[Sequence[tuple[Row, int]]],
    arguments: Namespace,
    open_data: OpenData,
    progress: Progress,
) -> None:
    """Runs a trial or a seed of one row in this process."""
    requests.remember(grid.home, grid)
    numbered = [(stage, *task) for stage, part in enumerate(tasks) for task in part]
    stage, row, index = numbered[arguments.task]
    stages = sweep.stages(dataclasses.replace(grid, rows=(row,)), lambda _: [index], open_data)
    jobs = list(itertools.islice(stages, stage + 1))[-1]
    if stage < len(tasks) - 1:
        jobs = jobs[index : index + 1]  # a trial
    _prepare_directories(jobs, arguments, progress)
    cache_programs(arguments.cache)
    if failed := workers.run_row(jobs, open_data, progress, arguments.mesh):
        raise RunError(f"{failed} run of the task failed: the same command tries it again.")


def _prepare_directories(jobs: Sequence[Job], arguments: Namespace, progress: Progress) -> None:
    """Reports the runs that compute something else than this code; prepares all to be tried again.

    With --rerun they are moved aside, also if they kept no programs and so cannot be compared.
    """
    provenance.compare([(job.directory, job.c) for job in jobs])
    differing: dict[str, list[Job]] = {}
    for job in jobs:
        if not (environment := provenance.made_in(job.directory)):
            continue
        changes = provenance.changes(job.directory, job.c, environment)
        if changes is None:
            differing.setdefault("cannot be compared with", []).append(job)
        elif changes:
            ours = study_file.file_of(job.c)
            begun = published.read(job.directory, "environment.json") or {}
            other = begun.get("study_file")
            if ours and other and ours != other and Path(other).exists():
                raise UsageError(
                    f"{other} has made {job.name}, with different code under the names of {ours}: "
                    "rename them in one of the files, or give each its own --store."
                )
            differing.setdefault(f"computes another {' and '.join(changes)}", []).append(job)
    for difference, group in differing.items():
        listed = ", ".join(job.name for job in group)
        progress.say(f"this code {difference} in {len(group)} of {len(jobs)} runs: {listed}")
    if differing and not arguments.rerun:
        progress.say("they are kept; --rerun makes them again")
    elif differing:
        again = itertools.chain(*differing.values())
        old = sorted({str(claim.move_aside(job.directory).parent) for job in again})
        progress.say(f"they are made again; the old ones are in {', '.join(old)}")
    for job in jobs:
        names.add(job.directory, job.name)
        store.delete_failure(job.directory)
