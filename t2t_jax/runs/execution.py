"""Execution of runs, from their configs to their results."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.errors import Busy, RunError, UsageError
from t2t_jax.evaluation.metrics import metrics_of, outputs_of, perplexity, score
from t2t_jax.evaluation.predictions import predict
from t2t_jax.inference.translate import Translations, translate
from t2t_jax.runs import claim, identity, provenance, store
from t2t_jax.runs.context import Context, as_read, make_context
from t2t_jax.runs.loading import final_parameters
from t2t_jax.runs.names import title
from t2t_jax.terminal import Progress
from t2t_jax.training import hosts, sharding
from t2t_jax.training.checkpoints import read_params, write_params
from t2t_jax.training.loop import Member, Trained, train
from t2t_jax.training.throughput import peak_flops

Runs = Sequence[tuple[Config, Path]]
Result = dict[str, Any]
Outcome = Result | UsageError | RunError


def execute(
    runs: Runs,
    dataset: Dataset,
    to_score: Callable[[str], bool],
    progress: Progress,
    mesh: str = "",
) -> list[Outcome]:
    """Trains and scores runs that share their `identity.compile_key`, or continues them.

    Returns:
      For each run its result, as in result.json, or an error: `Busy` if another process works on
      it, another `UsageError` if its directory cannot be used, `RunError` if training failed.

    Raises:
      UsageError: a config does not fit the data or the devices; nothing is written then.
      Interrupted: the same call continues from there.
    """
    c = runs[0][0]
    context = make_context(c, as_read(c, dataset), to_score, progress, mesh)
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
            now = context.origin(c)
            claim.claim(directory, c, facts, context.dataset.vocabulary, now)
        except UsageError as error:
            if isinstance(error, Busy) and directory == runs[0][1]:
                return {d: error for _, d in runs}  # two processes must not divide a population
            outcomes[directory] = error
            continue
        changes = provenance.differing(provenance.made_in(directory), now) or []
        other = f", but today's code computes another {' and '.join(changes)}" * bool(changes)
        if (result := store.read_result(directory, context.progress.say)) is not None:
            outcomes[directory] = result
            if not _missing_splits(context, directory, result):
                line = f"{title(directory)} is finished{other}; remove it to train it again."
                context.progress.say(line)
        elif changes:
            context.progress.say(f"{title(directory)} is continued{other}.")
    return outcomes


def _complete(context: Context, c: Config, directory: Path, result: Result) -> Outcome:
    """Returns the result of a finished run, with its missing scores added."""
    if not hosts.decide(partial(_missing_splits, context, directory, result)):
        return result
    try:
        params = read_params(final_parameters(directory), context.params)
        return _add_scores(context, c, directory, params, result)
    except (UsageError, RunError) as error:
        return error


def _train(context: Context, runs: Runs) -> dict[Path, Outcome]:
    """Trains runs in one program; returns the outcome of each."""
    if not runs:
        return {}
    members = [
        Member(c, context.batches.with_seed(c.training.seed_of("order")).stream, directory)
        for c, directory in runs
    ]
    outcomes: dict[Path, Outcome] = {}
    population = context.model, members, context.evaluate, context.progress, context.mesh
    for member, trained in train(*population):
        try:
            if isinstance(trained, RunError):
                raise trained
            outcomes[member.directory] = _save(context, member, trained)
        except RunError as error:  # the other runs continue
            outcomes[member.directory] = error
    return outcomes


def _save(context: Context, member: Member, trained: Trained) -> Result:
    """Writes the parameters, costs and scores of a trained run; returns its result."""
    c, directory, history = member.c, member.directory, trained.history
    write_params(directory / "final", trained.params)
    start = time.monotonic()
    likelihoods = context.likelihoods(trained.params)
    seconds = time.monotonic() - start
    rounded = likelihoods.round(4).tolist()  # 1e-4 nats of a sentence, as float32 resolves
    checksum = hosts.decide(lambda: store.write_statistics(directory, store.LIKELIHOOD, rounded))
    begun_in = hosts.decide(partial(provenance.made_in, directory))
    result = {
        "parameters": sum(x.size for x in jax.tree.leaves(trained.params)),
        "averaged_steps": trained.averaged,
        "steps": history.evaluations[-1][0],
        "trained_together": trained.population_size,
        "training_seconds": history.seconds * trained.population_size,  # of all together
        "overhead_seconds": (history.overhead + seconds) * trained.population_size,
        "flops": history.flops,
        "compiled_flops": history.compiled_flops,
        "peak_flops": peak_flops(),
        "memory": history.memory,
        "dev_perplexity": float(perplexity(likelihoods.sum(axis=0))),
        "likelihood": {"statistics": checksum},
        "mesh": sharding.describe(context.mesh),
        "kernels": context.model.c.kernels,
        "environment": hosts.decide(lambda: provenance.merged(begun_in, context.origin(c))),
        "scores": {},
        "scoring": {},
    }
    return _add_scores(context, c, directory, trained.params, result)


def _missing_splits(context: Context, directory: Path, result: Result) -> list[str]:
    """Returns the splits that are to be scored and have no scores yet."""
    read = partial(store.read_statistics, directory, result)
    return [name for name in context.scored if read(name) is None]


def _add_scores(
    context: Context, c: Config, directory: Path, params: Any, result: Result
) -> Result:
    """Adds the missing scores to a result, writes it, and returns it.

    How they were computed stands beside them: the seconds, the checksum of the statistics, and the
    number of translations that are cut at the limit of their length.
    """
    before = result["environment"]
    for name in hosts.decide(partial(_missing_splits, context, directory, result)):
        start, checksum = time.monotonic(), ""
        hypotheses = _outputs(context, params, c, name)
        cut = {"cut": len(hypotheses.cut)} if isinstance(hypotheses, Translations) else {}
        outputs = outputs_of(context.dataset.splits[name], hypotheses, c.data)
        scores, statistics = score(outputs, metrics_of(c.data.corpus))
        if hosts.first():
            text = "".join(f"{h}\n" for h in hypotheses)
            files.write(directory / f"{name}.{c.data.target}", text)
            checksum = store.write_statistics(directory, name, statistics)
        scoring = {"seconds": time.monotonic() - start, "statistics": checksum, **cut}
        now = hosts.decide(lambda: provenance.merged(before, context.origin(c)))
        scoring["environment"] = {n: x for n, x in now.items() if before.get(n) != x}
        result["scores"][name], result["scoring"][name] = scores, scoring
    if hosts.first():
        store.write_result(directory, result)
    return result


def _outputs(context: Context, params: Any, c: Config, split: str) -> list[str]:
    """Returns the translations of a split, or what else the metric scores."""
    model, vocabulary, progress = context.model, context.dataset.vocabulary, context.progress
    sentences = context.dataset.splits[split]
    if metrics_of(c.data.corpus)[0].teacher_forced:
        return predict(model, params, sentences, vocabulary, c.data)
    progress.say(f"translating {split}: {len(sentences.sources):,} sentences")
    decoding = replace(c.decoding, max_extra=context.max_extra)
    return translate(model, params, sentences.sources, vocabulary, decoding, warn=progress.say)
