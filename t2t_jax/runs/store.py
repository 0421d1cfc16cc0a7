"""The directory of a run: what determines it, how far it is, what came out.

    config.json data.json vocabulary.model       what determines it
    environment.json code.json                   where it was begun, and by which code
    metrics.jsonl checkpoints/                   how far it is
    final/                                       averaged parameters
    SPLIT.LANGUAGE SPLIT.statistics.json         translations, and what BLEU adds up of each
    result.json                                  written last, with its own checksum, and again when
                                                 another split is scored
    failed.json                                  instead of a result: why there is none
    names.txt                                    what the run is called, a name a line
    lock                                         held by the process at work

Files are written aside and renamed: each is whole or absent, but for the lines added to names.txt.
What others read of a run is read here, so that a run may be published as well (`published`).
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.environment import environment
from t2t_jax.errors import Busy, RunError, UsageError
from t2t_jax.files import make_directory, read_json, write, write_json
from t2t_jax.runs import published
from t2t_jax.runs.code import changed, code_of, digest
from t2t_jax.runs.identity import sha256
from t2t_jax.runs.names import title


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Keeps a run to one process; the kernel gives it back when that leaves or dies.

    Raises:
      Busy: another process is at work there.
      UsageError: the directory cannot be written to.
    """
    make_directory(directory)
    try:
        file = (directory / "lock").open("a")
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}.") from None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(
                f"another process is at work on {title(directory)}: wait for it, or give this run "
                "another directory with --run."
            ) from None
        yield


def busy(directory: Path) -> bool:
    """Whether another process holds the lock of a run."""
    if not (directory / "lock").exists():
        return False
    try:
        with lock(directory):
            return False
    except Busy:
        return True


def claim(directory: Path, c: Config, facts: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    """Writes down what determines a run, or checks that the directory holds this very run.

    Args:
      facts: what determines it beside the config: `about` the data, and the device's part.

    Raises:
      UsageError: it holds another run; the difference is named.
    """
    if (directory / "config.json").exists():
        changes = config.difference(read_config(directory), c)
        for name in config.PATHS:  # the data itself is compared below
            changes.pop(name, None)
        if changes:
            listed = ", ".join(f"{n} {a!r} there and {b!r} here" for n, (a, b) in changes.items())
            raise UsageError(
                f"{title(directory)} holds a run of another config ({listed}): give this one "
                "another directory with --run, or remove that one."
            )
        check(directory, facts)
        return
    write(directory / "vocabulary.model", vocabulary.model)
    write_json(directory / "data.json", facts)
    write_json(
        directory / "environment.json", environment() | {"code": _keep_code(directory, code_of(c))}
    )
    write_json(directory / "config.json", config.flatten(c))


def check(directory: Path, facts: Mapping[str, Any]) -> None:
    """Refuses a run that was begun under other facts, by the name of the first that differs."""
    theirs = read_data(directory)
    for name, value in facts.items():
        if theirs.get(name) != value:
            raise UsageError(
                f"{title(directory)} was begun with {name} {theirs.get(name)}, but here it is "
                f"{value}: give this run another directory with --run, or bring the old one back."
            )


def read_config(directory: Path) -> Config:
    """The config of a run.

    Raises:
      UsageError: there is no run, or its config.json names a field that does not exist.
    """
    fields = published.read(directory, "config.json")
    if fields is None:
        raise UsageError(f"{directory} is no run: it has no config.json; train one first.")
    try:
        return config.replace(Config(), **fields)
    except UsageError as error:
        raise UsageError(f"config.json of {title(directory)}: {error}") from None


def read_data(directory: Path) -> dict[str, Any]:
    """What determines a run beside its config, as `claim` has it."""
    return _read(directory, "data.json")


def read_environment(directory: Path) -> dict[str, Any]:
    """The environment in which a run was begun."""
    return _read(directory, "environment.json")


def read_curves(directory: Path) -> list[dict[str, Any]]:
    """The records of a run's metrics.jsonl; none before the first."""
    return published.read(directory, "metrics.jsonl") or []


def read_translations(directory: Path, split: str, language: str) -> list[str] | None:
    """The translations of a split; None where they were not kept."""
    text = published.read(directory, f"{split}.{language}")
    return None if text is None else text.removesuffix("\n").split("\n")


def _read(directory: Path, name: str) -> Any:
    content = published.read(directory, name)
    if content is None:
        raise UsageError(f"{title(directory)} has no {name}: restore it.")
    return content


def read_vocabulary(directory: Path) -> Vocabulary:
    """The vocabulary of a run, checked against what it was trained with."""
    path = directory / "vocabulary.model"
    if not path.exists():
        raise UsageError(
            f"{title(directory)} has no vocabulary.model: restore it from where it was trained."
        )
    vocabulary, trained = Vocabulary(path.read_bytes()), read_data(directory)["vocabulary"]
    if vocabulary.fingerprint != trained:
        raise UsageError(
            f"vocabulary.model of {title(directory)} is not the one that the checkpoint was "
            f"trained with (sha256 {vocabulary.fingerprint[:12]}, {trained[:12]} then): restore "
            "that one."
        )
    return vocabulary


def read_code(directory: Path, environment: Mapping[str, Any]) -> dict[str, str]:
    """The code that an environment of a run names: its definitions and their hashes.

    Where it was not kept, each definition counts as one of that unknown code.
    """
    known = published.read(directory, "code.json") or {}
    name = environment["code"]
    return known.get(name) or dict.fromkeys(code_of(read_config(directory)), name)


def _keep_code(directory: Path, code: dict[str, str]) -> str:
    """Adds to code.json, which has all the code that worked on a run; the digest it goes by."""
    path, name = directory / "code.json", digest(code)
    known = read_json(path) if path.exists() else {}
    if name not in known:
        write(path, json.dumps(known | {name: code}) + "\n")
    return name


def write_result(directory: Path, result: Mapping[str, Any]) -> None:
    """result.json: with it the run is finished."""
    write_json(directory / "result.json", {**result, "sha256": sha256(result)})
    (directory / "failed.json").unlink(missing_ok=True)


def read_result(
    directory: Path, report: Callable[[str], object] = lambda _: None
) -> dict[str, Any] | None:
    """The result of a run; None while there is none, or what there is was edited or cut short."""
    try:
        result = published.read(directory, "result.json")
        if result is None:
            return None
        checksum, result = result["sha256"], {n: x for n, x in result.items() if n != "sha256"}
        if checksum == sha256(result) and "scoring" in result:
            return result
    except (UsageError, KeyError, TypeError, AttributeError):
        pass
    report(
        f"result.json of {title(directory)} was edited, cut short or written in an older format, "
        "and counts as missing: the command that made it makes it again."
    )
    return None


def finished_at(directory: Path) -> float:
    """When a run's result was written; a published one is older than any other."""
    path = directory / "result.json"
    return path.stat().st_mtime if path.exists() else 0.0


def write_statistics(directory: Path, split: str, statistics: Sequence[Sequence[int]]) -> str:
    """What the metric adds up of every sentence of a split; the checksum for the result."""
    write(directory / f"{split}.statistics.json", json.dumps(statistics))
    return sha256(statistics)


def read_statistics(
    directory: Path, result: Mapping[str, Any], split: str
) -> list[list[int]] | None:
    """The statistics of a scored split; None if it is not scored, or they were edited."""
    try:
        statistics = published.read(directory, f"{split}.statistics.json")
        if sha256(statistics) == result["scoring"][split]["statistics"]:
            return statistics
    except (UsageError, KeyError):
        pass
    return None


def write_failure(directory: Path, error: Exception) -> None:
    """failed.json: why a run has no result."""
    directory.mkdir(parents=True, exist_ok=True)
    message = str(error) if isinstance(error, (RunError, UsageError)) else repr(error)
    write_json(directory / "failed.json", {"error": message.strip().split("\n")[0]})


def read_failure(directory: Path) -> str | None:
    """Why a run has no result, if that is known."""
    failure = published.read(directory, "failed.json")
    return failure and failure["error"]


def forget_failure(directory: Path) -> None:
    """Lets a run that failed be tried again."""
    (directory / "failed.json").unlink(missing_ok=True)


def environment_now(directory: Path, c: Config, before: Mapping[str, Any]) -> dict[str, Any]:
    """`environment` with the run's code; what differs from `before` has both values.

    Args:
      before: the environment in which the run was begun, or trained.
    """
    code, begun = code_of(c), read_code(directory, before)
    both = {
        name: begun[name] if begun[name] == code.get(name) else f"{begun[name]}+{code.get(name)}"
        for name in begun
    }
    now = environment() | {"code": _keep_code(directory, code | both)}
    known = dict(before) | {"code": now["code"]}
    return {n: x if known.get(n, x) == x else f"{known[n]}, then {x}" for n, x in now.items()}


def outdated(directory: Path, c: Config) -> list[str]:
    """The definitions that have changed since a run was made, or begun; none if there is no run."""
    if published.read(directory, "environment.json") is None:
        return []
    result = read_result(directory)
    environment = result["environment"] if result else read_environment(directory)
    return changed(read_code(directory, environment), code_of(c))


def set_aside(directory: Path) -> Path:
    """Moves a run out of the way of its repetition; where it is then.

    Raises:
      Busy: another process is at work there.
    """
    with lock(directory):
        home = directory.parent / "replaced"
        make_directory(home)
        taken = sum(1 for _ in home.glob(f"{directory.name}-*"))
        return directory.rename(home / f"{directory.name}-{taken}")
