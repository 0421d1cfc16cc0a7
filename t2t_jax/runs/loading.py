"""Loading of a trained run, for translating, scoring and exporting."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_jax import checks, config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset, Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError, near
from t2t_jax.evaluation.metrics import METRICS, Outputs, check, metrics_of, outputs_of, parse, score
from t2t_jax.evaluation.predictions import predict
from t2t_jax.inference.export import WEIGHTS, read_weights
from t2t_jax.inference.translate import translate
from t2t_jax.models import build
from t2t_jax.runs import published, store, study_file
from t2t_jax.runs.context import as_read
from t2t_jax.runs.names import resolve, title
from t2t_jax.runs.store import Report
from t2t_jax.training import checkpoints, sharding
from t2t_jax.training.step import abstract


def load(
    run: Path | str,
    report: Report | None = None,
    *,
    home: Path | str = "runs",
    translating: bool = True,
) -> tuple[Config, Any, Any, Vocabulary]:
    """Returns the config, model, parameters and vocabulary of a trained run.

    The parameters of a finished run are averaged over its last checkpoints.

    Args:
      run: its directory, or its name in the store `home`, such as table3/base/0; or what
        `export --format safetensors` made of it.
      report: receives a line about the checkpoint that is used if training is not finished;
        without `report`, an unfinished run is refused.
      translating: whether to refuse a model that does not translate.
    """
    directory = resolve(str(run), Path(home))
    if published.is_published(directory):
        raise UsageError(
            f"{title(directory)} was published without its parameters: name a run of the store "
            "where it was trained, with --store, or train it again."
        )
    c = store.read_config(directory)
    study_file.check_copy(directory, c)
    vocabulary = store.read_vocabulary(directory)
    model = build(c, vocabulary.size)
    if translating and not model.translates:
        raise UsageError(
            f"{title(directory)} holds a language model (architecture={c.model.architecture}), "
            "which does not translate: name a run of another architecture, or `generate` text."
        )
    c = config.replace(
        c, **{n: x for n, x in store.read_data(directory).items() if n == "max_extra"}
    )
    like = abstract(model, c, sharding.make_mesh()).params
    if (directory / WEIGHTS).exists():
        return c, model, read_weights(directory / WEIGHTS, like), vocabulary
    newest = _newest_checkpoint(directory, c, report)
    return c, model, checkpoints.read_params(newest, like), vocabulary


def final_parameters(directory: Path) -> Path:
    """Returns the directory of the parameters with which a finished run was scored."""
    if not (directory / "final").exists():
        raise UsageError(
            f"{title(directory)} is finished but has no parameters (final/): restore them, or "
            "remove result.json and repeat the command that made it, which goes on from the last "
            "checkpoint if there is one."
        )
    return directory / "final"


def _newest_checkpoint(directory: Path, c: Config, report: Report | None) -> Path:
    """Returns the final parameters of a run, or else its newest checkpoint, and reports that."""
    if (directory / "final").exists() or store.read_result(directory) is not None:
        return final_parameters(directory)
    newest = checkpoints.newest(directory / "checkpoints")
    if newest is None:
        raise UsageError(f"{title(directory)} has no checkpoint yet: train it first.")
    step, steps = int(newest.name), c.training.steps
    unfinished = f"{title(directory)} is not finished (step {step:,} of {steps:,})"
    if report is None:
        raise UsageError(f"{unfinished}: finish it with the command that began it.")
    report(f"{unfinished}: its newest checkpoint is used.")
    return newest


def evaluate(
    directory: Path,
    cache: Path,
    split: str,
    texts: Sequence[Sequence[str]] | None,
    changes: dict[str, Any],
    metrics: str,
    report: Report,
) -> dict[str, Any]:
    """Returns the scores of a run on a split of its corpus, or on texts: sources and references.

    `changes` are decoding fields. The names of further metrics are separated by commas.
    """
    c, model, params, vocabulary = load(directory, report)
    c, own = config.replace(c, **changes), metrics_of(c.data.corpus)
    more = [METRICS[name] for name in parse(metrics, c.data.corpus)]
    more = [metric for metric in more if metric.function and metric not in own]
    if texts is None:
        sentences = _split(store.open_dataset(directory, c, cache, report), split)
        outputs = outputs_of(sentences, (), c.data)
    else:
        sources, references = texts
        outputs = Outputs((), references, sources, data=c.data)
    check([*own, *more], outputs, report)
    of_model = model, params, outputs.sources, vocabulary, c.decoding
    hypotheses = translate(*of_model, max_length=c.data.max_length, warn=report)
    return score(outputs._replace(hypotheses=hypotheses), [*own, *more])[0]


def predictions(
    directory: Path, cache: Path, splits: Sequence[str], report: Report
) -> dict[str, tuple[list[str], Split]]:
    """Returns a run's predictions for splits, and the splits as it reads them."""
    c, model, params, vocabulary = load(directory, report, translating=False)
    dataset, out = as_read(c, store.open_dataset(directory, c, cache, report)), {}
    for name in splits:
        split = _split(dataset, name)
        checks.check_split(c, name, split, model.limit, translated=False)
        out[name] = predict(model, params, split, vocabulary, c.data), split
    return out


def _split(dataset: Dataset, name: str) -> Split:
    tests = [split for split in dataset.splits if split != "train"]
    if name not in tests:
        raise UsageError(f"the corpus has no split {name!r} to score: {near(name, tests)}")
    return dataset.splits[name]
