"""One run: its directory, its training, its scores.

A run directory holds config.json and data.json (what determines it), vocabulary.model,
metrics.jsonl, checkpoints/, the final parameters in params/, translations of every test set, and
result.json, which is written last.
"""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError, near
from t2t_jax.training.progress import Progress, duration, read_metrics


def execute(c: Config, directory: Path, cache: Path, progress: Progress) -> dict[str, Any]:
    """Trains, scores and keeps one run, or goes on with it; the result, as in result.json.

    Raises:
      UsageError: the directory holds a run of another config or other data.
    """
    from t2t_jax.data.cache import open_dataset
    from t2t_jax.data.corpora import prepare

    dataset = open_dataset(prepare(c.data, cache, report=progress.say))
    claim(directory, c, dataset)
    if (directory / "result.json").exists():
        progress.say(f"{directory} is finished; remove it to run again.")
        return json.loads((directory / "result.json").read_text())

    import jax

    from t2t_jax.data.batches import Batches, in_order
    from t2t_jax.evaluation.perplexity import perplexity
    from t2t_jax.inference.translate import translate
    from t2t_jax.models import build
    from t2t_jax.training.checkpoints import write_params
    from t2t_jax.training.loop import train

    began = time.monotonic()
    model = build(c, dataset.vocabulary.size)
    training, dev = dataset.splits["train"], dataset.splits["dev"]
    batches = Batches(
        training.source,
        training.target,
        c.data.batch_tokens,
        c.data.shapes,
        jax.device_count() * c.training.accumulate,
        c.training.seed,
    )

    def measure(params: Any) -> float:
        pairs = in_order(dev.source, dev.target, batch_tokens=c.data.batch_tokens)
        return perplexity(model, params, (batch for _, batch in pairs))

    params, averaged = train(model, c, batches.stream, measure, directory, progress)
    write_params(directory / "params", params)
    result: dict[str, Any] = {
        "dev_perplexity": measure(params),
        "parameters": sum(x.size for x in jax.tree.leaves(params)),
        "averaged_steps": averaged,
        "test": {},
    }
    for name, split in dataset.splits.items():
        if not name.startswith("test"):
            continue
        progress.say(f"translating {name}: {len(split.sources):,} sentences")
        hypotheses = translate(
            model, params, split.sources, dataset.vocabulary, c.decoding, longest=limit(c)
        )
        write(directory / f"{name}.{c.data.target}", "".join(f"{h}\n" for h in hypotheses))
        result["test"][name] = score(hypotheses, split.references, c.data.target)
    last = read_metrics(directory / "metrics.jsonl")[-1]
    result |= {
        "steps": last["step"],
        "training_seconds": last["seconds"],
        "seconds": time.monotonic() - began,
        "environment": environment(),
    }
    write(directory / "result.json", json.dumps(result, indent=1) + "\n")
    progress.say(f"done in {duration(result['seconds'])}: {directory / 'result.json'}")
    return result


def claim(directory: Path, c: Config, dataset: Dataset) -> None:
    """Makes the run directory, or checks that what it holds is the same run.

    Raises:
      UsageError: it holds another config or other data; the difference is named.
    """
    about = {
        "data": dataset.fingerprint,
        "vocabulary": dataset.vocabulary.fingerprint,
        "subwords": dataset.vocabulary.size,
    }
    if (directory / "config.json").exists():
        changes = config.difference(read_config(directory), c)
        for name in config.PATHS:  # the data itself is compared below
            changes.pop(name, None)
        if changes:
            listed = ", ".join(f"{n} {a!r} there and {b!r} here" for n, (a, b) in changes.items())
            raise UsageError(
                f"{directory} holds a run of another config ({listed}): give this one another "
                "directory with --run, or remove that one."
            )
        theirs = json.loads((directory / "data.json").read_text())
        if theirs != about:
            what = next(n for n in about if theirs.get(n) != about[n])
            raise UsageError(
                f"{directory} was trained on other data (its {what} differs): give this run "
                "another directory with --run, or bring the old data back."
            )
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the run directory {directory}: {error.strerror}.") from None
    write(directory / "vocabulary.model", dataset.vocabulary.model)
    write(directory / "data.json", json.dumps(about, indent=1) + "\n")
    write(directory / "config.json", json.dumps(config.flatten(c), indent=1) + "\n")


def read_config(directory: Path) -> Config:
    """The config of a run.

    Raises:
      UsageError: there is no run, or its config.json names a field that does not exist.
    """
    path = directory / "config.json"
    try:
        return config.replace(Config(), **json.loads(path.read_text()))
    except FileNotFoundError:
        raise UsageError(
            f"{directory} is no run: it has no config.json; train one first."
        ) from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON (line {error.lineno}): restore it.") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def load(directory: Path) -> tuple[Config, Any, Any, Vocabulary]:
    """A trained run: its config, model, parameters (averaged if it is finished) and vocabulary.

    Raises:
      UsageError: there is no run, no parameters yet, or they belong to another model or vocabulary.
    """
    c = read_config(directory)
    vocabulary = read_vocabulary(directory)

    from t2t_jax.models import build
    from t2t_jax.training import checkpoints, sharding
    from t2t_jax.training.step import initialise

    model = build(c, vocabulary.size)
    mesh = sharding.make_mesh()
    like = initialise(model, c, mesh)
    if (directory / "params").exists():
        return c, model, checkpoints.read_params(directory / "params", like.params), vocabulary
    with checkpoints.manager(directory / "checkpoints") as manager:
        restored = checkpoints.restore(manager, like)
    if restored is None:
        raise UsageError(f"{directory} has no checkpoint yet: train it first.")
    return c, model, restored[0].params, vocabulary


def read_vocabulary(directory: Path) -> Vocabulary:
    """The vocabulary of a run, checked against what it was trained with."""
    path = directory / "vocabulary.model"
    try:
        vocabulary = Vocabulary(path.read_bytes())
        about = json.loads((directory / "data.json").read_text())
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} is missing: restore it from where it was trained."
        ) from None
    if vocabulary.fingerprint != about["vocabulary"]:
        raise UsageError(
            f"{path} is not the vocabulary that the checkpoint was trained with "
            f"(sha256 {vocabulary.fingerprint[:12]}, {about['vocabulary'][:12]} then): restore it."
        )
    return vocabulary


def score(hypotheses: Sequence[str], references: Sequence[str], lang: str) -> dict[str, Any]:
    """The scores of `t2t_jax.evaluation.bleu` as JSON."""
    from t2t_jax.evaluation.bleu import scores

    return {key: asdict(s) for key, s in scores(hypotheses, references, lang).items()}


def limit(c: Config) -> int | None:
    """The positions a model has, if it has a limit."""
    return c.data.max_length + c.decoding.max_extra if c.model.positions == "learned" else None


def environment() -> dict[str, Any]:
    """Where and with what something was measured."""
    import jax

    packages = ("t2t-jax", "jax", "flax", "optax", "orbax-checkpoint", "sacrebleu", "sentencepiece")
    return {
        "device": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "cores": os.cpu_count(),
        "host": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def write(path: Path, content: str | bytes) -> None:
    """Writes aside, then renames: a file is whole or absent."""
    aside = path.with_name(f"{path.name}.part")
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    aside.rename(path)


def evaluate(
    directory: Path,
    cache: Path,
    split: str,
    pair: tuple[Sequence[str], Sequence[str]] | None,
    changes: dict[str, Any],
    report: Any,
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
        claim(directory, read_config(directory), dataset)
        tests = [name for name in dataset.splits if name != "train"]
        if split not in tests:
            raise UsageError(f"the corpus has no split {split!r} to score: {near(split, tests)}")
        pair = (dataset.splits[split].sources, dataset.splits[split].references)
    hypotheses = translate(
        model, params, pair[0], vocabulary, c.decoding, longest=limit(c), warn=report
    )
    return score(hypotheses, pair[1], c.data.target)
