"""Runs, from their configs to their results."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset, Split
from t2t_jax.errors import Busy, RunError, UsageError
from t2t_jax.runs import identity, store
from t2t_jax.runs.code import code_of, digest, several
from t2t_jax.runs.names import title
from t2t_jax.training.progress import Progress

if TYPE_CHECKING:
    from t2t_jax.training.loop import Member, Trained

Result = dict[str, Any]
Outcome = Result | UsageError | RunError


@dataclass(frozen=True)
class _Population:
    """What runs that share a program have in common.

    Attributes:
      like: shapes and layout of the parameters.
      evaluate: parameters -> dev perplexity.
      wanted: whether a split is to be translated and scored.
    """

    model: Any
    like: Any
    mesh: Any
    dataset: Dataset
    evaluate: Callable[[Any], float]
    wanted: Callable[[str], bool]
    progress: Progress


def execute(
    runs: Sequence[tuple[Config, Path]],
    dataset: Dataset,
    wanted: Callable[[str], bool],
    progress: Progress,
    mesh: str = "",
) -> list[Outcome]:
    """Trains, scores and keeps runs that can share a program, or continues them.

    Args:
      runs: configs that share their `job.compile_key`, each with the directory of its run.
      wanted: whether a split is to be translated and scored.
      mesh: the devices, as `sharding.make_mesh` reads it.

    Returns:
      For each run its result, as in result.json; or why it has none: `Busy` where another process
      works on it, another `UsageError` where its directory cannot be used or holds another run,
      `RunError` where training failed.

    Raises:
      UsageError: a config does not fit the data or the devices; nothing is written then.
      Interrupted: the same call continues from there.
    """
    from t2t_jax.data.batches import Batches
    from t2t_jax.training import hosts, sharding
    from t2t_jax.training.loop import Member, train

    c, training = runs[0][0], dataset.splits["train"]
    population = _population(c, dataset, wanted, progress, mesh)
    facts = identity.about(dataset) | {"dtype": population.model.dtype.name}
    identities = [identity.identity(one) for one, _ in runs]
    described = sharding.describe(population.mesh)
    hosts.agree({"config": identities, "code": digest(code_of(c)), "mesh": described, **facts})
    size = c.data.batch_tokens, c.data.num_buckets, c.training.accumulate
    batches = Batches(training.source, training.target, *size)
    with ExitStack() as held:
        outcomes = hosts.decide(partial(_take, population, runs, facts, held))
        for one, directory in runs:
            if isinstance(result := outcomes.get(directory), dict):
                outcomes[directory] = _complete(population, one, directory, result)
        members = [
            Member(one, batches.with_seed(one.training.seed).stream, directory)
            for one, directory in runs
            if directory not in outcomes
        ]
        shared = population.model, members, population.evaluate, progress, population.mesh
        for member, trained in train(*shared) if members else ():
            try:
                kept = (
                    trained if isinstance(trained, RunError) else _keep(population, member, trained)
                )
            except RunError as error:  # the others go on
                kept = error
            outcomes[member.directory] = kept
    return [outcomes[directory] for _, directory in runs]


def _population(
    c: Config, dataset: Dataset, wanted: Callable[[str], bool], progress: Progress, mesh: str
) -> _Population:
    from t2t_jax.data.batches import in_order
    from t2t_jax.evaluation.perplexity import perplexity
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import abstract

    model, dev = build(c, dataset.vocabulary.size), dataset.splits["dev"]
    _check_lengths(dev, model.limit)
    devices = sharding.make_mesh(mesh)
    like = abstract(model, c, devices).params  # refuses what the mesh does not divide
    batches = [
        sharding.put_batch(batch, devices)
        for batch in in_order(
            dev.source, dev.target, c.data.batch_tokens, min(4, c.data.num_buckets)
        )
    ]

    def evaluate(params: Any) -> float:
        with sharding.use_mesh(devices):  # compiled once, in training and after it
            return perplexity(model, params, batches)

    return _Population(model, like, devices, dataset, evaluate, wanted, progress)


def _take(
    population: _Population,
    runs: Sequence[tuple[Config, Path]],
    facts: Mapping[str, Any],
    held: ExitStack,
) -> dict[Path, Outcome]:
    """Locks the runs; the outcomes of those that are finished or cannot be worked on."""
    outcomes: dict[Path, Outcome] = {}
    for c, directory in runs:
        try:
            held.enter_context(store.lock(directory))
            store.claim(directory, c, facts, population.dataset.vocabulary)
        except UsageError as error:
            if isinstance(error, Busy) and directory == runs[0][1]:
                return {d: error for _, d in runs}  # two processes do not divide a population
            outcomes[directory] = error
            continue
        if (result := store.read_result(directory, population.progress.say)) is not None:
            outcomes[directory] = result
            if not _unscored(population, directory, result):
                names = store.outdated(directory, c)
                code = f", by code that has changed since ({several(names)})" if names else ""
                line = f"{title(directory)} is finished{code}; remove it to train it again."
                population.progress.say(line)
    return outcomes


def _keep(population: _Population, member: "Member", trained: "Trained") -> Result:
    """Keeps the parameters, costs and scores of a trained run."""
    from t2t_jax.training import hosts, sharding
    from t2t_jax.training.checkpoints import write_params

    c, directory = member.c, member.directory
    write_params(directory / "final", trained.params)
    began = time.monotonic()
    perplexity = population.evaluate(trained.params)
    begun = hosts.decide(partial(store.read_environment, directory))
    result = _costs(trained, time.monotonic() - began) | {
        "dev_perplexity": perplexity,
        "mesh": sharding.describe(population.mesh),
        "environment": hosts.decide(partial(store.environment_now, directory, c, begun)),
        "scores": {},
        "scoring": {},
    }
    return _add_scores(population, c, directory, trained.params, result)


def _complete(population: _Population, c: Config, directory: Path, result: Result) -> Outcome:
    """A finished run, with the scores that it lacks."""
    from t2t_jax.training import hosts

    if not hosts.decide(partial(_unscored, population, directory, result)):
        return result
    try:
        params = _final(directory, population.like)
        return _add_scores(population, c, directory, params, result)
    except (UsageError, RunError) as error:
        return error


def _unscored(population: _Population, directory: Path, result: Result) -> list[str]:
    """The splits that are wanted and lack their scores."""
    if not population.model.translates:
        return []
    wanted = filter(population.wanted, population.dataset.splits)
    return [name for name in wanted if store.read_statistics(directory, result, name) is None]


def _add_scores(
    population: _Population, c: Config, directory: Path, params: Any, result: Result
) -> Result:
    """Adds the scores of the splits that lack them, and keeps the result."""
    from t2t_jax.training import hosts

    before = result["environment"]
    for name in hosts.decide(partial(_unscored, population, directory, result)):
        scores, scoring = _score(population, params, c, directory, name)
        now = hosts.decide(partial(store.environment_now, directory, c, before))
        scoring["environment"] = {n: x for n, x in now.items() if before.get(n) != x}
        result["scores"][name], result["scoring"][name] = scores, scoring
    if hosts.first():
        store.write_result(directory, result)
    return result


def _costs(trained: "Trained", evaluating: float) -> Result:
    """What a run has cost, in FLOPs, seconds and bytes.

    Args:
      evaluating: seconds of the last evaluation on dev.
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
        "overhead_seconds": history.overhead + evaluating,
        "flops": history.flops,
        "compiled_flops": history.compiled_flops,
        "peak_flops": peak_flops(),
        "memory": history.memory,
    }


def _score(
    population: _Population, params: Any, c: Config, directory: Path, split: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translates a split and keeps the translations; its scores, and how they were computed."""
    from t2t_jax.evaluation.metric import metric_of, score
    from t2t_jax.inference.translate import translate
    from t2t_jax.training import hosts

    model, dataset, progress = population.model, population.dataset, population.progress
    began, sentences = time.monotonic(), dataset.splits[split]
    progress.say(f"translating {split}: {len(sentences.sources):,} sentences")
    hypotheses = translate(
        model,
        params,
        sentences.sources,
        dataset.vocabulary,
        c.decoding,
        longest=model.limit,
        warn=progress.say,
    )
    compared = hypotheses, sentences.references, sentences.extras
    scores, checksum = score(*compared, c.data), ""
    if hosts.first():
        text = "".join(f"{h}\n" for h in hypotheses)
        files.write(directory / f"{split}.{c.data.target}", text)
        statistics = metric_of(c.data.corpus).sentences(*compared)
        checksum = store.write_statistics(directory, split, statistics)
    return scores, {"seconds": time.monotonic() - began, "statistics": checksum}


def _final(directory: Path, like: Any) -> Any:
    """The parameters of a finished run.

    Raises:
      UsageError: they were not kept.
    """
    from t2t_jax.training.checkpoints import read_params

    if not (directory / "final").exists():
        raise UsageError(
            f"{title(directory)} is finished but has no parameters (final/), so no other split can "
            "be scored: bring them back, or remove the directory to train it again."
        )
    return read_params(directory / "final", like)


def _check_lengths(dev: Split, limit: int | None) -> None:
    longest = max(int(dev.source.lengths.max()), int(dev.target.lengths.max()))
    if limit is not None and longest > limit:
        raise UsageError(
            f"dev has a sentence of {longest} subwords and the model {limit} learned positions "
            "(max_length + max_extra): raise max_length, or set positions=sinusoid."
        )
