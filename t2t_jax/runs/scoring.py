"""Scores of a trained run, from its outputs for the splits that are to be scored."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.runs import provenance, store
from t2t_jax.runs.context import Context

Result = dict[str, Any]


def missing_splits(context: Context, directory: Path, result: Result) -> list[str]:
    """Returns the splits that are to be scored and have no scores yet."""
    read = partial(store.read_statistics, directory, result)
    return [name for name in context.scored if read(name) is None]


def add_scores(context: Context, c: Config, directory: Path, params: Any, result: Result) -> Result:
    """Adds the missing scores to a result, writes it, and returns it."""
    from t2t_jax.training import hosts

    before = result["environment"]
    for name in hosts.decide(partial(missing_splits, context, directory, result)):
        scores, scoring = _score(context, params, c, directory, name)
        now = hosts.decide(lambda: provenance.merged(before, context.origin(c)))
        scoring["environment"] = {n: x for n, x in now.items() if before.get(n) != x}
        result["scores"][name], result["scoring"][name] = scores, scoring
    if hosts.first():
        store.write_result(directory, result)
    return result


def _score(
    context: Context, params: Any, c: Config, directory: Path, split: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translates a split, or predicts its words, and writes these outputs.

    Returns:
      Its scores, and how they were computed: the seconds, the checksum of the statistics, and the
      number of translations that are cut at the limit of their length.
    """
    from t2t_jax.evaluation.metrics import metrics_of, outputs_of, score
    from t2t_jax.inference.translate import Translations
    from t2t_jax.training import hosts

    start, sentences = time.monotonic(), context.dataset.splits[split]
    hypotheses, checksum = _outputs(context, params, c, split), ""
    cut = {"cut": len(hypotheses.cut)} if isinstance(hypotheses, Translations) else {}
    outputs = outputs_of(sentences, hypotheses, c.data)
    scores, statistics = score(outputs, metrics_of(c.data.corpus))
    if hosts.first():
        text = "".join(f"{h}\n" for h in hypotheses)
        files.write(directory / f"{split}.{c.data.target}", text)
        checksum = store.write_statistics(directory, split, statistics)
    return scores, {"seconds": time.monotonic() - start, "statistics": checksum, **cut}


def _outputs(context: Context, params: Any, c: Config, split: str) -> list[str]:
    """Returns the translations of a split, or the predicted words if the metric scores those."""
    from t2t_jax.evaluation.metrics import metric_of
    from t2t_jax.evaluation.predictions import predict
    from t2t_jax.inference.translate import translate

    model, vocabulary, progress = context.model, context.dataset.vocabulary, context.progress
    sentences = context.dataset.splits[split]
    if metric_of(c.data.corpus).teacher_forced:
        return predict(model, params, sentences, vocabulary, c.data)
    progress.say(f"translating {split}: {len(sentences.sources):,} sentences")
    limits: Any = dict(longest=model.limit, warn=progress.say)
    decoding = replace(c.decoding, max_extra=context.max_extra)
    return translate(model, params, sentences.sources, vocabulary, decoding, **limits)
