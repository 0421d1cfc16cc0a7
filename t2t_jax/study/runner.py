"""Runs, from their configs to their results, and what can be asked of them afterwards."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset, Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import Busy, RunError, UsageError, near
from t2t_jax.study import store
from t2t_jax.study.code import code_of, digest, several
from t2t_jax.training.progress import Progress

if TYPE_CHECKING:
    from t2t_jax.training.loop import Trained

Result = dict[str, Any]


def execute(
    runs: Sequence[tuple[Config, Path]],
    dataset: Dataset,
    wanted: Callable[[str], bool],
    progress: Progress,
    mesh: str = "",
) -> list[Result | UsageError | RunError]:
    """Trains, scores and keeps runs that can share a program, or goes on with them.

    Args:
      runs: configs that are `grid.alike`, each with the directory of its run.
      wanted: whether a split is to be translated and scored.
      mesh: the devices, as `sharding.make_mesh` reads it.

    Returns:
      For each run its result, as in result.json; or why it has none: `Busy` where another process
      is at work on it, another `UsageError` where its directory cannot be used or holds another
      run, `RunError` where training failed.

    Raises:
      UsageError: a config does not fit the data or the devices; nothing is written then.
      Interrupted: the same call goes on from there.
    """
    from t2t_jax.data.batches import Batches, in_order
    from t2t_jax.evaluation.perplexity import perplexity
    from t2t_jax.models import build
    from t2t_jax.training import hosts, sharding
    from t2t_jax.training.checkpoints import write_params
    from t2t_jax.training.loop import Member, Trained, train
    from t2t_jax.training.step import abstract

    c = runs[0][0]
    model = build(c, dataset.vocabulary.size)
    training, dev = dataset.splits["train"], dataset.splits["dev"]
    _check_lengths(dev, model.limit)
    devices = sharding.make_mesh(mesh)
    like = abstract(model, c, devices).params  # refuses what the mesh does not divide
    size = c.data.batch_tokens, c.data.shapes, c.training.accumulate
    batches = Batches(training.source, training.target, *size)
    dev_batches = [
        sharding.put_batch(batch, devices)
        for batch in in_order(dev.source, dev.target, c.data.batch_tokens, min(4, c.data.shapes))
    ]
    facts = store.about(dataset) | {"dtype": model.dtype.name}

    def evaluate(params: Any) -> float:
        with sharding.on(devices):  # compiled once, in training and after it
            return perplexity(model, params, dev_batches)

    def take() -> dict[Path, Result | UsageError | RunError]:
        """Locks the runs; what there is to say already of some of them."""
        known: dict[Path, Result | UsageError | RunError] = {}
        for one, directory in runs:
            try:
                held.enter_context(store.lock(directory))
                store.claim(directory, one, facts, dataset.vocabulary)
            except UsageError as error:
                if isinstance(error, Busy) and directory == runs[0][1]:
                    return {d: error for _, d in runs}  # two together do not divide a population
                known[directory] = error
                continue
            if (result := store.read_result(directory, progress.say)) is not None:
                known[directory] = result
                if not unscored(directory, result):
                    names = store.outdated(directory, one)
                    code = f", by code that has changed since ({several(names)})" if names else ""
                    progress.say(f"{directory} is finished{code}; remove it to train it again.")
        return known

    def keep(member: Member, trained: Trained) -> Result:
        one, directory = member.c, member.directory
        write_params(directory / "final", trained.params)
        began = time.monotonic()
        perplexity = evaluate(trained.params)
        begun = hosts.decide(partial(store.read_environment, directory))
        result = _costs(trained, time.monotonic() - began) | {
            "dev_perplexity": perplexity,
            "mesh": described,
            "environment": hosts.decide(partial(store.environment_now, directory, one, begun)),
            "scores": {},
            "scoring": {},
        }
        return score(one, directory, trained.params, result)

    def score(one: Config, directory: Path, params: Any, result: Result) -> Result:
        """Adds the scores of the splits that lack them, and keeps the result."""
        for name in hosts.decide(lambda: unscored(directory, result)):
            scores, scoring = _score(model, params, one, directory, name, dataset, progress)
            before = result["environment"]
            now = hosts.decide(partial(store.environment_now, directory, one, before))
            scoring["environment"] = {n: x for n, x in now.items() if before.get(n) != x}
            result["scores"][name], result["scoring"][name] = scores, scoring
        if hosts.first():
            store.write_result(directory, result)
        return result

    def unscored(directory: Path, result: Result) -> list[str]:
        return [
            name
            for name in dataset.splits
            if wanted(name)
            and model.translates
            and store.read_statistics(directory, result, name) is None
        ]

    def complete(one: Config, directory: Path, result: Result) -> Result | UsageError | RunError:
        """A finished run, with the scores that it lacks."""
        if not hosts.decide(lambda: unscored(directory, result)):
            return result
        try:
            return score(one, directory, _final(directory, like), result)
        except (UsageError, RunError) as error:
            return error

    identities = [store.identity(one) for one, _ in runs]
    described = sharding.describe(devices)
    hosts.agree({"config": identities, "code": digest(code_of(c)), "mesh": described, **facts})
    with ExitStack() as held:
        results = hosts.decide(take)
        for one, directory in runs:
            if isinstance(result := results.get(directory), dict):
                results[directory] = complete(one, directory, result)
        members = [  # of the population
            Member(one, batches.with_seed(one.training.seed).stream, directory)
            for one, directory in runs
            if directory not in results
        ]
        trained = train(model, members, evaluate, progress, devices) if members else ()
        for member, outcome in trained:
            try:
                kept = outcome if isinstance(outcome, RunError) else keep(member, outcome)
            except RunError as error:  # the others go on
                kept = error
            results[member.directory] = kept
    return [results[directory] for _, directory in runs]


def _costs(trained: "Trained", evaluating: float) -> Result:
    """What a run has cost, in FLOPs, seconds and bytes.

    Args:
      evaluating: seconds of the last evaluation on dev.
    """
    import jax

    from t2t_jax.training.throughput import peak_flops

    standing = trained.standing
    return {
        "parameters": sum(x.size for x in jax.tree.leaves(trained.params)),
        "averaged_steps": trained.averaged,
        "steps": standing.evaluations[-1][0],
        "trained_together": trained.together,
        "training_seconds": standing.seconds,
        "overhead_seconds": standing.overhead + evaluating,
        "flops": standing.flops,
        "compiled_flops": standing.compiled_flops,
        "peak_flops": peak_flops(),
        "memory": standing.memory,
    }


def _score(
    model: Any,
    params: Any,
    c: Config,
    directory: Path,
    split: str,
    dataset: Dataset,
    progress: Progress,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translates a split and keeps the translations; its scores, and how they were computed."""
    from t2t_jax.evaluation.metric import metric_of
    from t2t_jax.inference.translate import translate
    from t2t_jax.training import hosts

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
    scores, checksum = _scores(*compared, c.data), ""
    if hosts.first():
        text = "".join(f"{h}\n" for h in hypotheses)
        store.write(directory / f"{split}.{c.data.target}", text)
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
            f"{directory} is finished but has no parameters (final/), so no other split can be "
            "scored: bring them back, or remove the directory to train it again."
        )
    return read_params(directory / "final", like)


def load(
    directory: Path, report: Callable[[str], Any] | None = None
) -> tuple[Config, Any, Any, Vocabulary]:
    """A trained run: its config, model, parameters (averaged if it is finished) and vocabulary.

    Args:
      report: receives a line about the checkpoint that is used where training is not finished;
        without it such a run is refused.

    Raises:
      UsageError: there is no run, no parameters yet, they belong to another model or vocabulary,
        training is not finished, or the model is none that translates.
    """
    c = store.read_config(directory)
    vocabulary = store.read_vocabulary(directory)

    from t2t_jax.models import build
    from t2t_jax.training import checkpoints, sharding
    from t2t_jax.training.step import abstract

    model = build(c, vocabulary.size)
    if not model.translates:
        raise UsageError(
            f"{directory} holds a language model (architecture={c.model.architecture}), which "
            "translates nothing: name a run of another architecture."
        )
    like = abstract(model, c, sharding.make_mesh()).params
    final = directory / "final"
    newest = final if final.exists() else checkpoints.newest(directory / "checkpoints")
    if newest is None:
        raise UsageError(f"{directory} has no checkpoint yet: train it first.")
    if newest != final:
        step, last = int(newest.name), c.training.steps
        unfinished = f"{directory} is not finished (step {step:,} of {last:,})"
        if report is None:
            raise UsageError(f"{unfinished}: finish it with the command that began it.")
        report(f"{unfinished}: its newest checkpoint is used.")
    return c, model, checkpoints.read_params(newest, like), vocabulary


def evaluate(
    directory: Path,
    cache: Path,
    split: str,
    pair: tuple[Sequence[str], Sequence[str]] | None,
    changes: dict[str, Any],
    report: Callable[[str], Any],
) -> dict[str, Any]:
    """Scores a run on a split of its corpus, or on a pair of sources and references.

    Args:
      changes: decoding fields that differ from the run's.

    Raises:
      UsageError: there is no such split, or the corpus is no longer the one trained on.
    """
    from t2t_jax.inference.translate import translate

    c, model, params, vocabulary = load(directory, report)
    c = config.replace(c, **changes)
    extras: Sequence[Mapping[str, Any]] = ()
    if pair is None:
        from t2t_jax.data.cache import open_dataset
        from t2t_jax.data.corpora import prepare

        dataset = open_dataset(prepare(c.data, cache, report=report))
        store.check(directory, store.about(dataset))
        tests = [name for name in dataset.splits if name != "train"]
        if split not in tests:
            raise UsageError(f"the corpus has no split {split!r} to score: {near(split, tests)}")
        chosen = dataset.splits[split]
        pair, extras = (chosen.sources, chosen.references), chosen.extras
    limits: Any = dict(longest=model.limit, max_length=c.data.max_length, warn=report)
    hypotheses = translate(model, params, pair[0], vocabulary, c.decoding, **limits)
    return _scores(hypotheses, pair[1], extras, c.data)


def _scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    extras: Sequence[Mapping[str, Any]],
    data: config.Data,
) -> dict[str, Any]:
    """Every score that there is for a corpus, as JSON."""
    from t2t_jax.evaluation.metric import metric_of

    scores = metric_of(data.corpus).scores(hypotheses, references, extras, data.target)
    return {key: asdict(score) for key, score in scores.items()}


def _check_lengths(dev: Split, limit: int | None) -> None:
    longest = max(int(dev.source.lengths.max()), int(dev.target.lengths.max()))
    if limit is not None and longest > limit:
        raise UsageError(
            f"dev has a sentence of {longest} subwords and the model {limit} learned positions "
            "(max_length + max_extra): raise max_length, or set positions=sinusoid."
        )
