"""The main metric of each corpus: BLEU of translations, F1 of trees, or accuracy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.config import Config, Data
from t2t_jax.data.registry import is_task
from t2t_jax.data.treebank import TREEBANKS
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import accuracy, bleu, parseval
from t2t_jax.evaluation.score import Score
from t2t_jax.parts import ARCHITECTURES

Extras = Sequence[Mapping[str, Any]]


class Metric(NamedTuple):
    """The main metric of a corpus, by which its runs are compared.

    Attributes:
      name: heading of its column, and the field of a row that holds the paper's value.
      key: its key in `scores`.
      scores: (hypotheses, references, extras, target language) -> all scores of the corpus, by key.
      sentences: (hypotheses, references, extras) -> for each sentence the counts whose sums give
        the metric.
      of_sums: the metric [...] of summed counts [..., counts].
      forced: whether its hypotheses are predictions given the true prefix (`predictions.py`)
        instead of translations.
    """

    name: str
    key: str
    scores: Callable[[Sequence[str], Sequence[str], Extras, str], dict[str, Score]]
    sentences: Callable[[Sequence[str], Sequence[str], Extras], list[list[int]]]
    of_sums: Callable[[np.ndarray], np.ndarray]
    forced: bool = False


def metric_of(corpus: str) -> Metric:
    """The metric of a corpus, which is named as in `config.Data`."""
    if corpus in TREEBANKS:
        return F1
    if is_task(corpus):
        return ACCURACY
    return MULTI30K if corpus in ("multi30k", "multi30k_lower") else BLEU


def is_scored(c: Config) -> bool:
    """Whether a model of this config has outputs that can be scored."""
    return ARCHITECTURES[c.model.architecture].translates or metric_of(c.data.corpus).forced


def perplexity(sums: np.ndarray) -> np.ndarray:
    """exp of the negative log-likelihood per token [...], from sums of both [..., 2]."""
    with np.errstate(over="ignore"):  # the perplexity of a model that diverged is infinite
        return np.exp(sums[..., 0] / sums[..., 1])


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    extras: Sequence[Mapping[str, Any]],
    data: Data,
) -> dict[str, Any]:
    """All scores of a corpus by key, as JSON.

    Raises:
      UsageError: there is nothing to score, or gold trees are missing.
    """
    scores = metric_of(data.corpus).scores(hypotheses, references, extras, data.target)
    return {key: asdict(score) for key, score in scores.items()}


def _gold(extras: Extras) -> list[str]:
    if not extras:
        raise UsageError("there are no gold trees to score against: choose a split of the corpus.")
    return [x["tree"] for x in extras]


BLEU = Metric(
    "BLEU",
    bleu.CASED,
    lambda hypotheses, references, *_: bleu.scores(hypotheses, references),
    lambda hypotheses, references, _: bleu.sentence_statistics(hypotheses, references),
    bleu.of_sums,
)
# The published scores of Multi30k are of lowercased tokens.
MULTI30K = BLEU._replace(
    scores=lambda hypotheses, references, _, lang: {
        **bleu.scores(hypotheses, references),
        bleu.MOSES: bleu.moses_score(hypotheses, references, lang),
    }
)
F1 = Metric(
    "F1",
    "f1",
    lambda hypotheses, _, extras, __: parseval.scores(hypotheses, _gold(extras)),
    lambda hypotheses, _, extras: parseval.sentence_statistics(hypotheses, _gold(extras)),
    parseval.of_sums,
)
ACCURACY = Metric(
    "accuracy",
    "accuracy",
    lambda hypotheses, references, *_: accuracy.scores(hypotheses, references),
    lambda hypotheses, references, _: accuracy.sentence_statistics(hypotheses, references),
    accuracy.of_sums,
    forced=True,
)
