"""One run, from its config to its result, and what can be asked of it afterwards."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError, near
from t2t_jax.study import store
from t2t_jax.training.progress import Progress, duration, read_metrics


def execute(c: Config, directory: Path, cache: Path, progress: Progress) -> dict[str, Any]:
    """Trains, scores and keeps one run, or goes on with it; the result, as in result.json.

    Raises:
      UsageError: the config does not fit the data or the devices, or the directory holds another
        run; nothing is written then.
      RunError: training stopped.
    """
    import jax

    from t2t_jax.data.batches import Batches, in_order
    from t2t_jax.data.cache import open_dataset
    from t2t_jax.data.corpora import prepare
    from t2t_jax.evaluation.perplexity import perplexity
    from t2t_jax.inference.translate import translate
    from t2t_jax.models import build
    from t2t_jax.training.checkpoints import write_params
    from t2t_jax.training.loop import train

    dataset = open_dataset(prepare(c.data, cache, report=progress.say))
    model = build(c, dataset.vocabulary.size)
    training, dev = dataset.splits["train"], dataset.splits["dev"]
    _check_lengths(dev, model.limit)
    rows_of = jax.device_count() * c.training.accumulate
    batches = Batches(
        training.source,
        training.target,
        c.data.batch_tokens,
        c.data.shapes,
        rows_of,
        c.training.seed,
    )
    dev_batches = list(in_order(dev.source, dev.target, c.data.batch_tokens))
    facts = store.about(dataset) | {"dtype": model.dtype.name, "rows in multiples of": rows_of}

    with store.lock(directory):
        store.claim(directory, c, facts, dataset.vocabulary)
        if (result := store.read_result(directory)) is not None:
            progress.say(f"{directory} is finished; remove it to run again.")
            return result

        params, averaged = train(
            model,
            c,
            batches.stream,
            lambda params: perplexity(model, params, dev_batches),
            directory,
            progress,
        )
        trained = time.monotonic()
        write_params(directory / "final", params)
        result = {
            "dev_perplexity": perplexity(model, params, dev_batches),
            "parameters": sum(x.size for x in jax.tree.leaves(params)),
            "averaged_steps": averaged,
            "test": {},
        }
        for name, split in dataset.splits.items():
            if not name.startswith("test"):
                continue
            progress.say(f"translating {name}: {len(split.sources):,} sentences")
            hypotheses = translate(
                model,
                params,
                split.sources,
                dataset.vocabulary,
                c.decoding,
                longest=model.limit,
                warn=progress.say,
            )
            path = directory / f"{name}.{c.data.target}"
            store.write(path, "".join(f"{h}\n" for h in hypotheses))
            result["test"][name] = _score(hypotheses, split.references, c.data.target)
        last = read_metrics(directory / "metrics.jsonl")[-1]
        result |= {
            "steps": last["step"],
            "training_seconds": last["seconds"],
            "scoring_seconds": time.monotonic() - trained,
            "environment": store.environment(),
        }
        store.write_json(directory / "result.json", result)
    took = duration(result["training_seconds"] + result["scoring_seconds"])
    progress.say(f"done in {took}: {directory / 'result.json'}")
    return result


def load(directory: Path) -> tuple[Config, Any, Any, Vocabulary]:
    """A trained run: its config, model, parameters (averaged if it is finished) and vocabulary.

    Raises:
      UsageError: there is no run, no parameters yet, or they belong to another model or vocabulary.
    """
    c = store.read_config(directory)
    vocabulary = store.read_vocabulary(directory)

    from t2t_jax.models import build
    from t2t_jax.training import checkpoints, sharding
    from t2t_jax.training.step import abstract

    model = build(c, vocabulary.size)
    like = abstract(model, c, sharding.make_mesh()).params
    final = directory / "final"
    newest = final if final.exists() else checkpoints.newest(directory / "checkpoints")
    if newest is None:
        raise UsageError(f"{directory} has no checkpoint yet: train it first.")
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

    c, model, params, vocabulary = load(directory)
    c = config.replace(c, **changes)
    if pair is None:
        from t2t_jax.data.cache import open_dataset
        from t2t_jax.data.corpora import prepare

        dataset = open_dataset(prepare(c.data, cache, report=report))
        store.check(directory, store.about(dataset))
        tests = [name for name in dataset.splits if name != "train"]
        if split not in tests:
            raise UsageError(f"the corpus has no split {split!r} to score: {near(split, tests)}")
        pair = (dataset.splits[split].sources, dataset.splits[split].references)
    hypotheses = translate(
        model, params, pair[0], vocabulary, c.decoding, longest=model.limit, warn=report
    )
    return _score(hypotheses, pair[1], c.data.target)


def _score(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> dict[str, Any]:
    """The scores of `t2t_jax.evaluation.bleu` as JSON."""
    from t2t_jax.evaluation.bleu import scores

    return {key: asdict(s) for key, s in scores(hypotheses, references, lang).items()}


def _check_lengths(dev: Split, limit: int | None) -> None:
    longest = max(int(dev.source.lengths.max()), int(dev.target.lengths.max()))
    if limit is not None and longest > limit:
        raise UsageError(
            f"dev has a sentence of {longest} subwords and the model {limit} learned positions "
            "(max_length + max_extra): raise max_length, or set positions=sinusoid."
        )
