"""Execution of runs, from their configs to their results."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.errors import Busy, RunError, UsageError
from t2t_jax.runs import claim, identity, provenance, store
from t2t_jax.runs.context import Context, as_read, make_context
from t2t_jax.runs.loading import final_parameters
from t2t_jax.runs.names import title
from t2t_jax.runs.scoring import Result, add_scores, missing_splits
from t2t_jax.training.progress import Progress

if TYPE_CHECKING:
    from t2t_jax.training.loop import Member, Trained

Runs = Sequence[tuple[Config, Path]]
Outcome = Result | UsageError | RunError


def execute(
    runs: Runs,
    dataset: Dataset,
    to_score: Callable[[str], bool],
    progress: Progress,
    mesh: str = "",
) -> list[Outcome]:
    """Trains and scores runs that can share a program, or continues them.

    Args:
      runs: configs that share their `job.compile_key`, each with the directory of its run.
      to_score: whether a split is to be scored, by its name.
      mesh: the devices, as `sharding.make_mesh` parses it.

    Returns:
      For each run its result, as in result.json, or an error: `Busy` if another process works on
      it, another `UsageError` if its directory cannot be used, `RunError` if training failed.

    Raises:
      UsageError: a config does not fit the data or the devices; nothing is written then.
      Interrupted: the same call continues from there.
    """
    from t2t_jax.training import hosts, sharding

    c = runs[0][0]
    dataset = as_read(c, dataset)
    context = make_context(c, dataset, to_score, progress, mesh)
    facts = context.facts(c)
    identities = [identity.identity(c) for c, _ in runs]
    axes = sharding.describe(context.mesh)
    hosts.agree({"config": identities, "source": provenance.source(c), "mesh": axes, **facts})
    with ExitStack() as locks:
        outcomes = hosts.decide(partial(_claim, context, runs, facts, locks))
        for c, directory in runs:
            if isinstance(result := outcomes.get(directory), dict):
                outcomes[directory] = _complete(context, c, directory, result)
        outcomes |= _train(context, [run for run in runs if run[1] not in outcomes])
    return [outcomes[directory] for _, directory in runs]


def _claim(
    context: Context, runs: Runs, facts: Mapping[str, Any], locks: ExitStack
) -> dict[Path, Outcome]:
    """Locks and claims the runs; returns the outcomes of those that need no training or failed."""
    outcomes: dict[Path, Outcome] = {}
    for c, directory in runs:
        try:
            locks.enter_context(claim.lock(directory))
            claim.claim(directory, c, facts, context.dataset.vocabulary, context.origin(c))
        except UsageError as error:
            if isinstance(error, Busy) and directory == runs[0][1]:
                return {d: error for _, d in runs}  # two processes must not divide a population
            outcomes[directory] = error
            continue
        if (result := store.read_result(directory, context.progress.say)) is not None:
            outcomes[directory] = result
            if not missing_splits(context, directory, result):
                changes = provenance.changes(directory, c, result["environment"]) or []
                other = f", but today's code computes another {' and '.join(changes)}"
                line = f"{title(directory)} is finished{other if changes else ''}; remove it to "
                line += "train it again."
                context.progress.say(line)
    return outcomes


def _complete(context: Context, c: Config, directory: Path, result: Result) -> Outcome:
    """Returns the result of a finished run, with its missing scores added."""
    from t2t_jax.training import hosts
    from t2t_jax.training.checkpoints import read_params

    if not hosts.decide(partial(missing_splits, context, directory, result)):
        return result
    try:
        params = read_params(final_parameters(directory), context.params)
        return add_scores(context, c, directory, params, result)
    except (UsageError, RunError) as error:
        return error


def _train(context: Context, runs: Runs) -> dict[Path, Outcome]:
    """Trains runs in one program; returns the outcome of each."""
    from t2t_jax.training.loop import Member, train

    if not runs:
        return {}
    members = [
        Member(c, context.batches.with_seed(c.training.seed).stream, directory)
        for c, directory in runs
    ]
    outcomes: dict[Path, Outcome] = {}
    population = context.model, members, context.evaluate, context.progress, context.mesh
    for member, trained in train(*population):
        if isinstance(trained, RunError):
            outcomes[member.directory] = trained
            continue
        try:
            outcomes[member.directory] = _save(context, member, trained)
        except RunError as error:  # the other runs continue
            outcomes[member.directory] = error
    return outcomes


def _save(context: Context, member: "Member", trained: "Trained") -> Result:
    """Writes the parameters, costs and scores of a trained run; returns its result."""
    from t2t_jax.evaluation.metrics import perplexity
    from t2t_jax.training import hosts, sharding
    from t2t_jax.training.checkpoints import write_params

    c, directory = member.c, member.directory
    write_params(directory / "final", trained.params)
    start = time.monotonic()
    likelihoods = context.likelihoods(trained.params)
    seconds = time.monotonic() - start
    rounded = likelihoods.round(4).tolist()  # 1e-4 nats of a sentence, as float32 resolves
    checksum = hosts.decide(lambda: store.write_statistics(directory, store.LIKELIHOOD, rounded))
    begun_in = hosts.decide(partial(store.read_environment, directory))
    now = hosts.decide(lambda: provenance.merged(begun_in, context.origin(c)))
    result = _costs(trained, seconds) | {
        "dev_perplexity": float(perplexity(likelihoods.sum(axis=0))),
        "likelihood": {"statistics": checksum},
        "mesh": sharding.describe(context.mesh),
        "kernels": context.model.c.kernels,
        "environment": now,
        "scores": {},
        "scoring": {},
    }
    return add_scores(context, c, directory, trained.params, result)


def _costs(trained: "Trained", evaluation_seconds: float) -> Result:
    """Returns the costs of a run, in FLOPs, seconds and bytes.

    Args:
      evaluation_seconds: the time of the last evaluation on dev.
    """
    import jax

    from t2t_jax.training.throughput import peak_flops

    history = trained.history
    return {
        "parameters": sum(x.size for x in jax.tree.leaves(trained.params)),
        "averaged_steps": trained.averaged,
        "steps": history.evaluations[-1][0],
        "trained_together": trained.population_size,
        "training_seconds": history.seconds,
        "overhead_seconds": history.overhead + evaluation_seconds,
        "flops": history.flops,
        "compiled_flops": history.compiled_flops,
        "peak_flops": peak_flops(),
        "memory": history.memory,
    }
