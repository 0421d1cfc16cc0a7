"""Pruning of a store: it deletes the checkpoints of finished runs, and on request parameters."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from t2t_jax.errors import Busy, writing
from t2t_jax.runs import claim, published, results
from t2t_jax.runs.names import title

LEFT = ".pruned"  # suffix of a directory that is being deleted


class Pruned(NamedTuple):
    """What `prune` did: the bytes freed, and the numbers of runs pruned and of unfinished runs."""

    size: int
    runs: int
    unfinished: int


def prune(home: Path, parameters: bool, dry_run: bool, report: Callable[[str], object]) -> Pruned:
    """Deletes the checkpoints of the finished runs of a store. Other runs are not touched.

    Args:
      parameters: also deletes the final parameters, without which a run cannot be used.
      dry_run: deletes nothing.
      report: receives a line about each run that is pruned, or in use by another process.

    Raises:
      UsageError: there is no such store.
      RunError: a file cannot be deleted.
    """
    size = runs = unfinished = 0
    for directory, _ in results.stored(home, report):
        if published.is_published(directory):
            continue
        if results.status(directory)[0] != "finished":
            unfinished += 1
            continue
        try:
            with claim.lock(directory):  # no process scores, continues or replaces the run
                freed = _prune(directory, parameters, dry_run)
        except Busy:
            report(f"{title(directory)} is in use by another process, and is kept as it is")
            continue
        if freed:
            report(f"{title(directory)}: {freed / 1e6:,.1f} MB")
            size, runs = size + freed, runs + 1
    return Pruned(size, runs, unfinished)


def _prune(directory: Path, parameters: bool, dry_run: bool) -> int:
    """Deletes what a finished run does not need; returns the number of bytes."""
    paths = [*directory.glob(f"*{LEFT}")]
    if parameters or (directory / "final").exists():  # checkpoints may be the only parameters
        paths += [directory / "checkpoints", *directory.glob("damaged-*")]
    if parameters:
        paths += [directory / "final"]
    paths = [path for path in paths if path.exists()]
    size = sum(file.stat().st_size for path in paths for file in path.rglob("*") if file.is_file())
    if not dry_run:
        _delete(paths)
    return size


def _delete(paths: Sequence[Path]) -> None:
    """Deletes directories; if the process is killed, none that is left looks whole."""
    for path in paths:
        with writing(path):
            aside = path if path.suffix == LEFT else path.with_name(f"{path.name}{LEFT}")
            path.rename(aside)
            shutil.rmtree(aside)
