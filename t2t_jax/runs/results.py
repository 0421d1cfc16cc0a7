"""The finished runs of a store, each with its origins: data, metric, device, libraries and code."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from t2t_jax.config import Config
from t2t_jax.environment import without_count
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.runs import claim, provenance, published, store
from t2t_jax.runs.store import Report

CURRENT = "current"  # the version of the code that makes the table
COSTS = (
    *"parameters flops compiled_flops training_seconds wall_seconds".split(),
    *"overhead_seconds scoring_seconds memory".split(),
)


@dataclass(frozen=True)
class Run:
    """One finished run of a row."""

    directory: Path
    seed: int
    result: Mapping[str, Any]
    score: float | None = None  # by the main metric; None if only perplexity is measured
    statistics: Sequence[Sequence[float]] = ()  # of each sentence, which are summed over the corpus
    likelihood: Sequence[Sequence[float]] = ()  # `sentence_likelihoods` of dev; older code has none
    version: str = ""  # the commit; without one, or if it was edited, a digest of the source
    programs: Mapping[str, str] = field(default_factory=dict)  # hashes; empty if they were not kept
    changes: Sequence[str] | None = None  # programs that differ today; None: not compared
    origins: Mapping[str, str] = field(default_factory=dict)  # what runs of a table must share
    unusual: str = ""  # origins that differ from the usual ones, as text

    @property
    def device(self) -> str:
        return str(self.result["environment"]["device"])

    @property
    def costs(self) -> dict[str, Any]:
        return costs(self.result, store.read_curves(self.directory))


class State(NamedTuple):
    """The progress of a run: its status, its records, its result (perhaps empty), why it failed."""

    status: str  # finished, failed, running or stopped
    step: int
    records: Sequence[Mapping[str, Any]]
    result: dict[str, Any]
    failure: str | None = None


def stored(home: Path, report: Report) -> Iterator[tuple[Path, Config]]:
    """Yields the runs of a store, as (directory, config)."""
    if not home.is_dir():
        raise UsageError(f"there is no store {home}: run the study first, or correct --store.")
    for directory in published.directories(home):
        try:
            yield directory, store.read_config(directory)
        except UsageError as error:
            report(str(error))


def read_run(directory: Path, c: Config, split: str, preparation: str, report: Report) -> Run | str:
    """Returns a run of a store; its seed and status as text if it is not finished.

    `split` is empty if only perplexity is measured. `preparation` says how the row prepares its
    data, if not as base does: only runs with the same preparation must share their data.
    """
    result = store.read_result(directory, report)
    seed = c.training.seed
    if result is None:
        status, step, *_, failure = state(directory)
        verb = "is running," if status == "running" else "stopped"
        what = f"{verb} at step {step:,} of {c.training.steps:,}"
        reason = what if failure is None else f"failed: {failure}"
        return f"seed {seed} {reason}"
    likelihood = store.read_statistics(directory, result, store.LIKELIHOOD) or ()
    run = Run(directory, seed, result, likelihood=likelihood)
    environment, signature = result["environment"], "perplexity"
    if split:
        statistics = store.read_statistics(directory, result, split)
        if statistics is None:
            failure = store.read_failure(directory)
            reason = f"failed: {failure}" if failure else "`run` scores it"
            return f"seed {seed} is trained, but not scored on {split}: {reason}"
        metric, scoring = metric_of(c.data.corpus), result["scoring"][split]
        environment = environment | scoring["environment"]
        score = result["scores"][split][metric.key]
        signature = score["signature"]
        run = replace(run, score=score["score"], statistics=statistics)
    git = environment.get("git", "")
    edited = environment.get("source", environment.get("code", ""))  # the latter of older results
    return replace(
        run,
        version=edited if not git or "dirty" in git else git,
        programs=environment.get("programs", {}),
        changes=provenance.changes(directory, c, environment),
        origins=_origins(c, store.read_data(directory), environment, preparation, signature),
    )


def _origins(
    c: Config,
    facts: Mapping[str, Any],
    environment: Mapping[str, Any],
    preparation: str,
    signature: str,
) -> dict[str, str]:
    own = environment.get("jaxlib", environment["jax"]) != environment["jax"]  # they go together
    libraries = "jax", "flax", "optax", *(("jaxlib",) if own else ())
    return {
        f"data{preparation}": facts["data"][:12],
        f"vocabulary{preparation}": facts["vocabulary"][:12],
        "metric": signature,
        # A row may ask for another dtype.
        "dtype" if c.model.dtype == "auto" else f"dtype {c.model.dtype}": facts["dtype"],
        "device": without_count(environment["device"]),
        "libraries": ", ".join(f"{name} {environment[name]}" for name in libraries),
    }


def marked(runs_of_rows: Sequence[Sequence[Run]], report: Report) -> list[list[Run]]:
    """Returns the runs of rows with those of their origins that are not the most frequent ones.

    Reports how many compute something else than today's code.
    """
    rows = [_with_versions(runs) for runs in runs_of_rows]
    every = list({run.directory: run for runs in rows for run in runs}.values())
    _report_changes(every, report)
    names = dict.fromkeys(name for run in every for name in run.origins)
    counts = {n: Counter(x.origins[n] for x in every if n in x.origins) for n in names}
    usual = {name: values.most_common(1)[0][0] for name, values in counts.items()}

    def unusual(run: Run) -> str:
        return ", ".join(f"{n} {x}" for n, x in run.origins.items() if x != usual.get(n, x))

    return [[replace(run, unusual=unusual(run)) for run in runs] for runs in rows]


def _with_versions(runs: Sequence[Run]) -> list[Run]:
    """Adds the origin `code` to the runs of a row: the version, if they compute something else.

    So do runs that today's code does not reproduce, and those whose programs differ from the most
    frequent ones.
    """
    ordered = sorted(runs, key=lambda run: bool(run.changes))  # today's code wins a tie
    kept = Counter(tuple(sorted(run.programs.items())) for run in ordered if run.programs)
    usual = dict(kept.most_common(1)[0][0]) if kept else {}

    def version(run: Run) -> str:
        differs = run.programs and run.programs != usual
        return run.version if run.changes or differs else CURRENT

    return [replace(run, origins={**run.origins, "code": version(run)}) for run in runs]


def costs(result: Mapping[str, Any], curves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the costs of a finished run, by the names in `COSTS`.

    Training time is the median time of a step times the number of steps, which no pause of the
    machine changes; wall time is what the clock showed. Of the time of runs that were trained at
    once, it has an equal share. Scoring is the time of all splits.
    """
    step, together = step_seconds(result, curves), result["trained_together"]
    known = {
        **result,
        "training_seconds": None if step is None else step * result["steps"],
        "wall_seconds": result["training_seconds"] / together,
        "overhead_seconds": result["overhead_seconds"] / together,
        "scoring_seconds": sum(s["seconds"] for s in result["scoring"].values()),
    }
    return {name: known[name] for name in COSTS}


def step_seconds(result: Mapping[str, Any], curves: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns the median time of a training step, or a run's share of it.

    It is None if no step was timed, or if the run went on with another device.
    """
    seconds = [r["seconds_per_step"] for r in curves if "seconds_per_step" in r]
    if not seconds or ", then " in result["environment"]["device"]:
        return None
    return median(seconds) / float(result["trained_together"])


def _report_changes(runs: Sequence[Run], report: Report) -> None:
    """Reports how many runs compute something else than today's code, and how many are unknown."""
    changed = [run for run in runs if run.changes]
    names = sorted({name for run in changed for name in run.changes or ()})
    known = [run for run in runs if run.programs]
    for n, what in (
        (len(changed), f"compute something else than this code ({', '.join(names)})"),
        (sum(x.changes is None for x in known), "are not compared with this code: --compare does"),
        (len(runs) - len(known), "kept no programs, so that it is not known whether this code "
         "computes the same"),
    ):  # fmt: skip
        if n:
            report(f"{n} of {len(runs)} run{'s' * (len(runs) > 1)} {what}")


def state(directory: Path, report: Report = lambda _: None) -> State:
    """Returns the progress of a run; reports a result that is damaged."""
    records, result = store.read_curves(directory), store.read_result(directory, report)
    step, failure = records[-1]["step"] if records else 0, store.read_failure(directory)
    if failure is not None:
        return State("failed", step, records, result or {}, failure)
    if result is not None:
        return State("finished", result["steps"], records, result)
    return State("running" if claim.is_locked(directory) else "stopped", step, records, {})
