"""Runs, from their configs to their results, and what can be asked of them afterwards."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset, Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import Busy, RunError, UsageError, near
from t2t_jax.study import store
from t2t_jax.training.progress import Progress

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
    from t2t_jax.training.loop import Member, Trained, train
    from t2t_jax.training.step import abstract

    c = runs[0][0]
    model = build(c, dataset.vocabulary.size)
    training, dev = dataset.splits["train"], dataset.splits["dev"]
    _check_lengths(dev, model.limit)
    devices = sharding.make_mesh(mesh)
    abstract(model, c, devices)  # refuses what the mesh does not divide
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
                progress.say(f"{directory} is finished; remove it to run again.")
                known[directory] = result
        return known

    def keep(member: Member, trained: Trained) -> Result:
        began = time.monotonic()
        result = _finish(model, member.c, member.directory, trained, dataset, wanted, progress)
        result |= {
            "dev_perplexity": evaluate(trained.params),
            "trained_together": trained.together,
            "scoring_seconds": time.monotonic() - began,
            "environment": store.both_environments(member.directory),
            "mesh": described,
        }
        if hosts.first():
            store.write_result(member.directory, result)
        return result

    identities = [store.identity(one) for one, _ in runs]
    code, described = store.code_version(), sharding.describe(devices)
    hosts.agree({"config": identities, "code": code, "mesh": described, **facts})
    with ExitStack() as held:
        results = hosts.decide(take)
        members = [  # of the population
            Member(one, batches.with_seed(one.training.seed).stream, directory)
            for one, directory in runs
            if directory not in results
        ]
        for one, outcome in train(model, members, evaluate, progress, devices) if members else ():
            try:
                kept = outcome if isinstance(outcome, RunError) else keep(one, outcome)
            except RunError as error:  # the others go on
                kept = error
            results[one.directory] = kept
    return [results[directory] for _, directory in runs]


def _finish(
    model: Any,
    c: Config,
    directory: Path,
    trained: Any,
    dataset: Dataset,
    wanted: Callable[[str], bool],
    progress: Progress,
) -> dict[str, Any]:
    """Keeps the parameters and the translations of a trained run; its costs and scores."""
    import jax

    from t2t_jax.evaluation.metric import metric_of
    from t2t_jax.inference.translate import translate
    from t2t_jax.training import hosts
    from t2t_jax.training.checkpoints import write_params
    from t2t_jax.training.throughput import peak_flops

    write_params(directory / "final", trained.params)
    scores = {}
    for name, split in dataset.splits.items():
        if not wanted(name) or not model.translates:
            continue
        progress.say(f"translating {name}: {len(split.sources):,} sentences")
        hypotheses = translate(
            model,
            trained.params,
            split.sources,
            dataset.vocabulary,
            c.decoding,
            longest=model.limit,
            warn=progress.say,
        )
        against = hypotheses, split.references, split.extras
        scores[name] = _scores(*against, c.data)
        if hosts.first():
            text = "".join(f"{h}\n" for h in hypotheses)
            store.write(directory / f"{name}.{c.data.target}", text)
            statistics = metric_of(c.data.corpus).sentences(*against)
            store.write(directory / f"{name}.statistics.json", json.dumps(statistics))
    standing = trained.standing
    return {
        "parameters": sum(x.size for x in jax.tree.leaves(trained.params)),
        "averaged_steps": trained.averaged,
        "steps": standing.evaluations[-1][0],
        "scores": scores,
        "training_seconds": standing.seconds,
        "flops": standing.flops,
        "compiled_flops": standing.compiled_flops,
        "peak_flops": peak_flops(),
        "memory": standing.memory,
    }


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
