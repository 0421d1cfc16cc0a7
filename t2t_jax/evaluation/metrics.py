"""Metrics by name, each declared by the decorator `metric`, here and in study files alike.

A corpus names the metrics that its runs keep (`data.corpora.Corpus.metrics`); the first is its main
one. `table STUDY --metrics BLEU,TER@test_long` computes others from the outputs of finished
runs: such a metric is no part of a run.
"""

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from t2t_jax.config import Config, Data
from t2t_jax.data.cache import Split
from t2t_jax.data.corpora import CORPORA
from t2t_jax.errors import UsageError, in_function, near
from t2t_jax.parts import ARCHITECTURES

Texts = Sequence[str]
Counts = Sequence[Sequence[float]]  # of each sentence
Function = Callable[..., Counts | float]  # (hypotheses, references, sources) -> counts, or a score
Signature = str | Callable[..., str]
OfSums = Callable[[np.ndarray], np.ndarray]
F = TypeVar("F", bound=Function)
PPL, BPC, CONTRASTIVE = "PPL", "BPC", "contrastive"


class Outputs(NamedTuple):
    """A model's outputs for sentences, and what they are compared with."""

    hypotheses: Texts
    references: Texts
    sources: Texts
    extras: Sequence[Mapping[str, Any]] = ()  # annotations of the sentences, if there are any
    data: Data = Data()  # the corpus, with its target language


@dataclass(frozen=True)
class Metric:
    name: str  # heading of its column
    # How it is computed, or a function that returns this if it has to import a package.
    signature: Signature
    # (hypotheses, references, sources) -> for each sentence the counts whose sums give the metric;
    # or a number, the score of all sentences, for which there is no significance test. None for
    # PPL, BPC and contrastive, which are computed from likelihoods.
    function: Function | None
    of_sums: OfSums  # the metric [...] of summed counts [..., counts]
    key: str = ""  # its key in the scores of a result
    lower_is_better: bool = False
    annotation: str = ""  # of a sentence, which is compared in place of its reference
    whole: bool = False  # whether `function` and `signature` take the `Outputs` as one argument
    # Whether hypotheses are words predicted from the true words before them (`predictions.py`)
    # instead of translations, or the likelihood of each of these words.
    teacher_forced: bool = False

    def measure(self, outputs: Outputs) -> tuple[float, Counts]:
        """Returns the metric, and the counts of each sentence: none if only the score is known.

        Raises UsageError if the annotation is missing.
        """
        assert self.function is not None
        references = outputs.references
        if self.annotation:
            if not outputs.extras:
                raise UsageError(
                    f"{self.name} needs the annotation {self.annotation} of every sentence: choose "
                    "a split of the corpus."
                )
            references = [extra[self.annotation] for extra in outputs.extras]
        texts = (outputs.hypotheses, references, outputs.sources)
        try:
            returned = self.function(outputs) if self.whole else self.function(*texts)
        except Exception as error:
            if isinstance(error, UsageError) or self.name in PACKAGE:
                raise
            raise in_function(f"the metric {self.name}", error) from error
        sentences = len(outputs.hypotheses)
        try:
            counts = np.asarray(returned, dtype=float)
        except (TypeError, ValueError):
            counts = np.zeros(0)
        if counts.ndim and (counts.ndim != 2 or len(counts) != sentences):
            shown = reprlib.repr(returned)
            raise UsageError(
                f"the metric {self.name} returns {shown} for {sentences} sentences: return one "
                "number, or for each sentence a row of counts, such as (value, 1)."
            )
        score = self._of_sums(counts.sum(axis=0)) if counts.ndim else float(counts)
        if np.isnan(score):
            raise UsageError(f"the metric {self.name} is not a number (NaN) for these outputs.")
        return score, np.asarray(returned).tolist() if counts.ndim else ()

    def _of_sums(self, sums: np.ndarray) -> float:
        """Returns the metric of summed counts [counts]; tables need it to map over other axes."""
        several = np.stack([sums] * (len(sums) + 1))
        try:
            with np.errstate(invalid="ignore", divide="ignore"):
                scores = np.asarray(self.of_sums(several), dtype=float)
        except (IndexError, TypeError, ValueError):
            scores = np.zeros(0)
        if scores.shape != several.shape[:1]:
            raise UsageError(
                f"of_sums of the metric {self.name} does not take {len(sums)} counts [..., counts] "
                "to scores [...]: index the last axis, as in sums[..., 0] / sums[..., 1]."
            )
        return float(scores[0])

    def describe(self, outputs: Outputs = Outputs((), (), ())) -> str:  # noqa: B008
        if isinstance(self.signature, str):
            return self.signature
        return self.signature(*[outputs] * self.whole)


def percentage(sums: np.ndarray) -> np.ndarray:
    """Returns the mean of a value per sentence, or a ratio, in percent [...] from [..., 2]."""
    return 100 * sums[..., 0] / sums[..., 1]


def perplexity(sums: np.ndarray) -> np.ndarray:
    """exp of the negative log-likelihood per token [...], from sums of both [..., 2]."""
    with np.errstate(over="ignore"):  # the perplexity of a model that diverged is infinite
        return np.exp(sums[..., 0] / sums[..., 1])


def bits(sums: np.ndarray) -> np.ndarray:
    """Bits per character [...], from sums of the nats and the characters of sentences [..., 2]."""
    return sums[..., 0] / sums[..., 1] / math.log(2)


METRICS: dict[str, Metric] = {
    PPL: Metric(PPL, "per subword on dev", None, perplexity, PPL, lower_is_better=True),
    BPC: Metric(BPC, "bits per character on dev", None, bits, BPC, lower_is_better=True),
    CONTRASTIVE: Metric(
        CONTRASTIVE, "on minimal pairs of the corpus", None, percentage, CONTRASTIVE
    ),
}
PACKAGE: set[str] = set()  # the names of the metrics of this package, set once they are declared


def metric(
    name: str, signature: Signature, of_sums: OfSums = percentage, *, key: str = "", **fields: Any
) -> Callable[[F], F]:
    """Returns a decorator that adds a metric, which a function computes, to METRICS.

    Further arguments are fields of `Metric`, such as `lower_is_better`. Raises UsageError if the
    name is empty, contains a comma or an @, or belongs to a metric of the package, or if another
    metric has the key.
    """
    if name in PACKAGE or {",", "@"} & {*name} or not name:
        raise UsageError(f"a metric cannot be called {name!r}: choose another name.")
    if owner := next((n for n, x in METRICS.items() if x.key == (key or name) and n != name), ""):
        raise UsageError(f"{owner} has the key {key or name!r} of the metric {name}: give another.")

    def add(function: F) -> F:
        METRICS[name] = Metric(name, signature, function, of_sums, key or name, **fields)
        return function

    return add


def metric_of(corpus: str) -> Metric:
    """Returns the main metric of a corpus, by which its runs are compared."""
    return metrics_of(corpus)[0]


def metrics_of(corpus: str) -> list[Metric]:
    """Returns the metrics that runs of a corpus keep, the main one first.

    Raises UsageError if the corpus is declared with a metric that does not exist, or if its main
    metric needs whole words, which it lacks.
    """
    c = CORPORA[corpus]
    for name in c.metrics:
        if name not in METRICS:
            raise UsageError(f"corpus {corpus} names a metric {name!r}: {near(name, METRICS)}")
    main, *_ = metrics = [METRICS[name] for name in c.metrics]
    if main.teacher_forced and c.splits and not (c.words or c.documents):
        raise UsageError(
            f"{main.name} needs whole words: declare corpus {corpus} with words='...'."
        )
    return metrics


def is_scored(c: Config) -> bool:
    """Returns whether a model of this config has outputs that can be scored."""
    translates = ARCHITECTURES[c.model.architecture].translates
    return translates or metric_of(c.data.corpus).teacher_forced


def score(outputs: Outputs, metrics: Sequence[Metric]) -> tuple[dict[str, Any], Counts]:
    """Returns scores by key, as JSON, and the counts of each sentence by the first metric.

    Raises UsageError if there is nothing to score, or an annotation is missing.
    """
    if len(outputs.hypotheses) != len(outputs.references):
        raise UsageError(
            f"there are {len(outputs.hypotheses)} translations for {len(outputs.references)} "
            "references: score one translation for each line of the reference."
        )
    if not outputs.references:
        raise UsageError("there is nothing to score: the reference has no lines.")
    scores, statistics = {}, []
    for metric in metrics:
        value, counts = metric.measure(outputs)
        signature = metric.describe(outputs)
        scores[metric.key] = dict(name=metric.name, score=value, signature=signature)
        statistics.append(counts)
    return scores, statistics[0]


def outputs_of(split: Split, hypotheses: Sequence[str], data: Data) -> Outputs:
    return Outputs(hypotheses, split.references, split.sources, split.extras, data)


def check(metrics: Sequence[Metric], outputs: Outputs, report: Callable[[str], object]) -> None:
    """Tries metrics on the references as outputs, before a model is trained or translates.

    Raises UsageError if a metric cannot be computed here, or its function returns no score.
    """
    from t2t_jax.evaluation.bleu import caution

    for metric in metrics:
        metric.describe(outputs)
        if metric.name not in PACKAGE and not CORPORA[outputs.data.corpus].documents:
            metric.measure(outputs._replace(hypotheses=outputs.references))
    of_words = any(metric.name.startswith("BLEU") for metric in metrics)
    if of_words and (said := caution(outputs.references, outputs.data)):
        report(said)


def parse(text: str, corpus: str, *, table: bool = False) -> tuple[str, ...]:
    """Returns the names of `--metrics`, separated by commas, for the corpus that is scored.

    In a table, a name may have a split, as in `BLEU@test_long`, and may be PPL or BPC. Raises
    UsageError if there is no such metric of this corpus, it is named twice, or it is perplexity or
    contrastive accuracy on a split.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    predicted = metric_of(corpus).teacher_forced  # words, or their likelihoods, but no text
    of_text = [] if predicted else [n for n, x in METRICS.items() if not x.annotation]
    own = [n for n in of_text if not METRICS[n].teacher_forced]
    own += PPL, BPC, *CORPORA[corpus].metrics
    choices = [n for n in METRICS if n in own and (table or n not in (PPL, BPC))]
    for name in names:
        metric, split = of_split(name) if table else (name, "")
        if metric not in choices:
            raise UsageError(f"there is no metric {name!r} here: {near(metric, choices)}")
        if metric in (PPL, BPC) and split:
            raise UsageError(f"{metric} is measured on dev alone: leave out @{split}.")
        if metric == CONTRASTIVE and split:
            raise UsageError(f"{metric} has pairs of its own, and no split: leave out @{split}.")
        if names.count(name) > 1:
            raise UsageError(f"--metrics names {name} twice: leave one out.")
    return names


def of_split(name: str) -> tuple[str, str]:
    """Returns the metric and the split of a name such as `BLEU@test_long`; "" without a split."""
    metric, _, split = name.partition("@")
    return metric, split
