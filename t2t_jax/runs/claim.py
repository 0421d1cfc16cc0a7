"""Ownership of a run's directory: which process works on it, and which run it holds."""

import fcntl
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import Busy, UsageError
from t2t_jax.files import make_directory, write, write_json
from t2t_jax.runs import store, study_file
from t2t_jax.runs.names import title


@contextmanager
def lock(directory: Path, wait: bool = False) -> Iterator[None]:
    """Holds the lock of a run; the kernel releases it when the process ends or dies.

    Raises:
      Busy: another process holds it; with `wait`, this one waits instead.
      UsageError: the directory cannot be written to.
    """
    make_directory(directory)
    try:
        file = (directory / "lock").open("a")
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}.") from None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(
                f"another process is at work on {title(directory)}: wait for it, or give this run "
                "another directory (`train --run`) or store (`run --store`)."
            ) from None
        yield


def claim(
    directory: Path,
    c: Config,
    facts: Mapping[str, Any],
    vocabulary: Vocabulary,
    origin: Mapping[str, Any],
) -> None:
    """Writes what determines a run; raises a UsageError if the directory holds another run."""
    steps, metrics = (directory / "checkpoints").glob("*"), directory / "metrics.jsonl"
    trained = any(steps) or (metrics.exists() and metrics.stat().st_size > 0)
    if trained and (directory / "config.json").exists():  # if not, another may take its place
        changes = config.difference(store.read_config(directory), c).items()
        others = [(n, *x) for n, x in changes if n not in config.PATHS]  # data is compared below
        if others:
            listed = ", ".join(f"{n} {a!r} there and {b!r} here" for n, a, b in others)
            raise UsageError(
                f"{title(directory)} holds a run of another config ({listed}): give this one "
                "another directory (`train --run`) or store (`run --store`), or remove the old one."
            )
        store.check_facts(directory, facts)
        return
    write(directory / "vocabulary.model", vocabulary.model)
    write_json(directory / "data.json", facts)
    if path := study_file.file_of(c):
        study_file.keep_copy(directory, path)
        origin = {**origin, "study_file": path}
    write_json(directory / "environment.json", origin)
    write_json(directory / "config.json", config.flatten(c))


def is_locked(directory: Path) -> bool:
    """Returns whether another process holds the lock of a run."""
    if not (directory / "lock").exists():
        return False
    try:
        with lock(directory):
            return False
    except UsageError as error:  # who may not write to the store sees no lock as held
        return isinstance(error, Busy)


def move_aside(directory: Path) -> Path:
    """Returns the new directory of a run, moved to `replaced/`; raises Busy if it is in use."""
    with lock(directory):
        replaced = directory.parent / "replaced"
        make_directory(replaced)
        paths = (replaced / f"{directory.name}-{i}" for i in itertools.count())
        return directory.rename(next(path for path in paths if not path.exists()))
