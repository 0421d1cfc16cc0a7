"""The finished runs of a store, each with where it comes from."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.runs import published, store
from t2t_jax.runs.code import changed, code_of, conflict, several

CURRENT = "current"  # the version of the code that makes the table
_LIBRARIES = "jax", "flax", "optax"


@dataclass(frozen=True)
class Run:
    """One finished run of a row.

    Attributes:
      score: the grid's metric: BLEU, 13a, cased, or F1 of trees; None where perplexity is all.
      statistics: what the metric adds up of every sentence.
      scoring_seconds: time of translating and scoring.
      version: the commit of its code, or the digest of it where there is none or it was edited.
      code: every definition that it ran, with a hash.
      outdated: the definitions that differ in the code that makes the table.
      origins: what it must share with the other runs of a table, by name.
      odd: in which origins it differs from most others, where a mixture was asked for.
    """

    directory: Path
    seed: int
    result: Mapping[str, Any]
    score: float | None = None
    statistics: Sequence[Sequence[int]] = ()
    scoring_seconds: float = 0.0
    version: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    outdated: Sequence[str] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    odd: str = ""


def stored(home: Path, report: Callable[[str], object]) -> Iterator[tuple[Path, Config]]:
    """The runs of a store, as (directory, config)."""
    if not home.is_dir():
        raise UsageError(f"there is no store {home}: run the study first, or correct --store.")
    for directory in published.directories(home):
        try:
            yield directory, store.read_config(directory)
        except UsageError as error:
            report(str(error))


def read_run(
    directory: Path, c: Config, split: str, cut: str, report: Callable[[str], object]
) -> Run | str:
    """A finished run, or how it stands.

    Args:
      split: the split that it is to be scored on, if any.
      cut: how its sentences become tokens: only runs that share it must share their data.
    """
    result = store.read_result(directory, report)
    if result is None:
        return _standing(directory, c)
    environment = result["environment"]
    run = Run(directory, c.training.seed, result)
    signature = "perplexity"
    if split:
        statistics = store.read_statistics(directory, result, split)
        if statistics is None:
            failure = store.read_failure(directory)
            state = f"failed: {failure}" if failure else "`run` scores it"
            return f"is trained, but not scored on {split}: {state}"
        metric, scoring = metric_of(c.data.corpus), result["scoring"][split]
        environment = environment | scoring["environment"]
        scored = result["scores"][split][metric.key]
        signature, seconds = scored["signature"], scoring["seconds"]
        run = replace(run, score=scored["score"], statistics=statistics, scoring_seconds=seconds)
    code = store.read_code(directory, environment)
    outdated = changed(code, code_of(c))
    about = store.read_data(directory)
    git = environment.get("git", "")
    return replace(
        run,
        version=environment["code"] if not git or "dirty" in git else git,
        code=code,
        outdated=outdated,
        origins={
            f"data{cut}": about["data"][:12],
            f"vocabulary{cut}": about["vocabulary"][:12],
            "metric": signature,
            "dtype": about["dtype"],
            "device": re.sub(r"\d+ x ", "", environment["device"]),
            "libraries": ", ".join(f"{name} {environment[name]}" for name in _LIBRARIES),
        },
    )


def with_versions(finished: Sequence[Sequence[Run]]) -> list[list[Run]]:
    """Runs that agree in every definition that they share are of one version of the code.

    An older one has the name of its first run.
    """
    versions: list[tuple[str, dict[str, str]]] = []

    def version(run: Run) -> str:
        if not run.outdated:
            return CURRENT
        for name, code in versions:
            if not conflict(run.code, code):
                code |= run.code
                return name
        versions.append((run.version, dict(run.code)))
        return run.version

    return [
        [replace(run, origins={**run.origins, "code": version(run)}) for run in runs]
        for runs in finished
    ]


def report_outdated(runs: Sequence[Run], report: Callable[[str], object]) -> None:
    """Says how many runs were made by code that has changed, and where."""
    outdated = [run for run in runs if run.outdated]
    names = sorted({name for run in outdated for name in run.outdated})
    if outdated:
        which = f"{len(outdated)} of {_runs(len(runs))} were made by code that has changed"
        report(f"{which}: {several(names)}")


def is_of(run: Run, only: str) -> bool:
    return any(value.startswith(only) for value in run.origins.values())


def usual(origins: Sequence[Mapping[str, str]], home: Path, mix: bool) -> dict[str, str]:
    """The most frequent value of each origin.

    Raises:
      UsageError: there are several, and `mix` is not set.
    """
    usual = {}
    for name in dict.fromkeys(name for origin in origins for name in origin):
        counts = Counter(origin[name] for origin in origins if name in origin).most_common()
        if len(counts) > 1 and not mix:
            listed = ", ".join(f"{value}: {_runs(n)}" for value, n in counts)
            raise UsageError(
                f"the results in {home} differ in {name} ({listed}): take those of one with "
                f"--only '{counts[0][0]}', or all of them, marked, with --mix."
            )
        usual[name] = counts[0][0]
    return usual


def _runs(n: int) -> str:
    return f"{n} run" if n == 1 else f"{n} runs"


def by_seed(runs: Sequence[Run], usual: Mapping[str, str]) -> tuple[Run, ...]:
    """One run a seed, the newest, marked where its origins are not the usual ones."""
    chosen: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: store.finished_at(run.directory)):
        differing = (f"{n} {value}" for n, value in run.origins.items() if value != usual[n])
        chosen[run.seed] = replace(run, odd=", ".join(differing))
    return tuple(chosen[seed] for seed in sorted(chosen))


def standing(directory: Path) -> tuple[str, int]:
    """Whether a run is finished, failed, running or stopped, and at which step."""
    records = store.read_curves(directory)
    step = records[-1]["step"] if records else 0
    if store.read_failure(directory) is not None:
        return "failed", step
    if (result := store.read_result(directory)) is not None:
        return "finished", result["steps"]
    return "running" if store.busy(directory) else "stopped", step


def _standing(directory: Path, c: Config) -> str:
    """How a run without a result stands, in words."""
    state, step = standing(directory)
    if state == "failed":
        return f"failed: {store.read_failure(directory)}"
    comma = "," * (state == "running")
    return f"{state}{comma} at step {step:,} of {c.training.steps:,}"
