"""A trained run, for everything that can be asked of it: translating, scoring, exporting."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError, near
from t2t_jax.runs import identity, published, store
from t2t_jax.runs.names import title


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
    if published.is_published(directory):
        raise UsageError(
            f"{title(directory)} was published without its parameters: name a run of the store "
            "where it was trained, with --store, or train it again."
        )
    c = store.read_config(directory)
    vocabulary = store.read_vocabulary(directory)

    from t2t_jax.models import build
    from t2t_jax.training import checkpoints, sharding
    from t2t_jax.training.step import abstract

    model = build(c, vocabulary.size)
    if not model.translates:
        raise UsageError(
            f"{title(directory)} holds a language model (architecture={c.model.architecture}), "
            "which translates nothing: name a run of another architecture."
        )
    like = abstract(model, c, sharding.make_mesh()).params
    final = directory / "final"
    newest = final if final.exists() else checkpoints.newest(directory / "checkpoints")
    if newest is None:
        raise UsageError(f"{title(directory)} has no checkpoint yet: train it first.")
    if newest != final:
        step, last = int(newest.name), c.training.steps
        unfinished = f"{title(directory)} is not finished (step {step:,} of {last:,})"
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
    from t2t_jax.evaluation.metric import score
    from t2t_jax.inference.translate import translate

    c, model, params, vocabulary = load(directory, report)
    c = config.replace(c, **changes)
    extras: Sequence[Mapping[str, Any]] = ()
    if pair is None:
        from t2t_jax.data.cache import open_dataset
        from t2t_jax.data.corpora import prepare

        dataset = open_dataset(prepare(c.data, cache, report=report))
        store.check(directory, identity.about(dataset))
        tests = [name for name in dataset.splits if name != "train"]
        if split not in tests:
            raise UsageError(f"the corpus has no split {split!r} to score: {near(split, tests)}")
        chosen = dataset.splits[split]
        pair, extras = (chosen.sources, chosen.references), chosen.extras
    limits: Any = dict(longest=model.limit, max_length=c.data.max_length, warn=report)
    hypotheses = translate(model, params, pair[0], vocabulary, c.decoding, **limits)
    return score(hypotheses, pair[1], extras, c.data)
