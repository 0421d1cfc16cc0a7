"""Judgements of runs on contrastive sets; a finished run stores those on its corpus's own set."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.prepare import open_corpus
from t2t_jax.data.raw import HOME, drawn_pairs
from t2t_jax.environment import environment
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.contrastive import Judgement, judge, rule
from t2t_jax.parts import implementation
from t2t_jax.runs import claim, identity, store
from t2t_jax.runs.names import title
from t2t_jax.runs.store import Report


def score(directory: Path, cache: Path, report: Report) -> tuple[dict[str, Any], list[Judgement]]:
    """Returns the accuracy of a run on the minimal pairs of its corpus, and each judgement.

    The set has none of the sentences that the run may have been trained on.
    """
    from t2t_jax.runs.loading import load  # with JAX, which `table` does not need

    c = store.read_config(directory)
    corpus = CORPORA[c.data.corpus]
    if not corpus.minimal_pairs:
        raise UsageError(
            f"{title(directory)} was trained on {c.data.corpus}, which has no minimal pairs: leave "
            f"{store.CONTRASTIVE} out."
        )
    store.open_dataset(directory, c, cache, lambda _: None)  # raises if it is another corpus today
    whole = config.replace(c, pairs=drawn_pairs(c.data))  # a sample of any size is in it
    dataset = open_corpus(whole.data, cache, lambda _: None)
    train = dataset.splits["train"].source
    known = dataset.vocabulary.decode(train[i] for i in range(len(train)))
    items = implementation(corpus.minimal_pairs, HOME)(c.data, frozenset(known))
    report(f"judging {len(items):,} minimal pairs: {title(directory)}")
    _, model, params, vocabulary = load(directory, report)
    judgements = judge(model, params, vocabulary, items)
    share = 100 * sum(x.right for x in judgements) / len(judgements)
    graded = f"grade:{c.data.grade}|" * ("grade" in corpus.fields)
    fingerprint = identity.sha256(items)[:12]
    signature = f"{graded}pairs:{len(judgements)}|set:{fingerprint}|rule:{rule()}"
    return dict(name=store.CONTRASTIVE, score=share, signature=signature), judgements


def judged(
    directory: Path, result: Mapping[str, Any], cache: Path, report: Report
) -> Mapping[str, Any]:
    """Returns the result of a run with its `score`, made once and stored if it has parameters."""
    if not is_waiting(directory, result):
        return result
    with claim.lock(directory, wait=True):
        result = store.read_result(directory) or result
        if kept(directory, result):  # by another process that prints the same table
            return result
        start = time.monotonic()
        accuracy, judgements = score(directory, cache, report)
        before, now = result["environment"], environment()
        entry = accuracy | {
            "seconds": time.monotonic() - start,
            "environment": {n: x for n, x in now.items() if before.get(n) != x},
            "statistics": store.write_statistics(directory, store.CONTRASTIVE, judgements),
        }
        result = {**result, store.CONTRASTIVE: entry}
        store.write_result(directory, result)
    return result


def is_waiting(directory: Path, result: Mapping[str, Any]) -> bool:
    """Returns whether a finished run has parameters and no judgements."""
    return not kept(directory, result) and (directory / "final").exists()


def kept(directory: Path, result: Mapping[str, Any]) -> list[Judgement]:
    """Returns the judgements that a finished run has stored; an empty list without any."""
    statistics = store.read_statistics(directory, result, store.CONTRASTIVE)
    return [Judgement(*x) for x in statistics or ()]
