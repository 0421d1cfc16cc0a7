"""The metrics that a table shows on request: `table STUDY --metrics BLEU,chrF2,PPL`.

They are computed from the translations of finished runs, and are not part of a run. PPL and the
main metric of the corpus (`evaluation.metric`) are kept in a run's result. All others are here:
those of sacreBLEU, COMET, and those that a study file adds with the decorator `metric`. A name with
a split, as in `BLEU@test_long`, is a metric on another split than the study's own. Only contrastive
accuracy is computed from the parameters (`runs.judging`).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from t2t_jax.errors import UsageError, near
from t2t_jax.evaluation import accuracy, bleu

# (hypotheses, references, sources) -> the counts of each sentence, or a score of all.
Measured = Sequence[Sequence[float]] | float
Function = Callable[[Sequence[str], Sequence[str], Sequence[str]], Measured]
STORED = "PPL", "BLEU", "F1", "accuracy"  # metrics that are kept in results
CONTRASTIVE = "contrastive"
LOWER_IS_BETTER = {"PPL"}


@dataclass(frozen=True)
class Metric:
    """A metric that is computed on request.

    Attributes:
      name: heading of its column.
      signature: how it is computed, or a function that returns this if it has to import a package.
      measure: (hypotheses, references, sources) -> for each sentence the counts whose sums give the
        metric; or a number, the score of all sentences, for which there is no significance test.
        None for the accuracy on a contrastive set, which is not a metric of translations.
      of_sums: the metric [...] of summed counts [..., counts].
      key: its key in the scores of a result, if it is kept there.
    """

    name: str
    signature: str | Callable[[], str]
    measure: Function | None
    of_sums: Callable[[np.ndarray], np.ndarray]
    key: str = ""

    def of(
        self, hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> tuple[float, Sequence[Sequence[float]]]:
        """Returns the metric, and the counts of each sentence: none if only the score is known."""
        assert self.measure is not None
        measured = self.measure(hypotheses, references, sources)
        if np.ndim(measured) == 0:
            return float(measured), ()  # type: ignore[arg-type]
        return float(self.of_sums(np.array(measured).sum(axis=0))), measured  # type: ignore[return-value]

    def describe(self) -> str:
        """Returns the signature."""
        return self.signature if isinstance(self.signature, str) else self.signature()


METRICS: dict[str, Metric] = {}


def percentage(sums: np.ndarray) -> np.ndarray:
    """Returns the mean of a value per sentence, or a ratio, in percent [...] from [..., 2]."""
    return 100 * sums[..., 0] / sums[..., 1]


def metric(
    name: str,
    signature: str | Callable[[], str],
    of_sums: Callable[[np.ndarray], np.ndarray] = percentage,
    *,
    lower_is_better: bool = False,
    key: str = "",
) -> Callable[[Function], Function]:
    """Returns a decorator that adds a function to METRICS; see `Metric` for the arguments.

    Raises:
      UsageError: the name is empty, contains a comma or an @, or is that of a metric of the
        package that results store.
    """
    if name in (*STORED, CONTRASTIVE) or {",", "@"} & {*name} or not name:
        raise UsageError(f"a metric cannot be called {name!r}: choose another name.")

    def add(function: Function) -> Function:
        METRICS[name] = Metric(name, signature, function, of_sums, key)
        (LOWER_IS_BETTER.add if lower_is_better else LOWER_IS_BETTER.discard)(name)
        return function

    return add


def parse(text: str, *stored: str, splits: bool = False) -> tuple[str, ...]:
    """Returns the names of `--metrics`, separated by commas.

    Args:
      stored: the metrics that can be named beside those computed here.
      splits: whether a name may have a split, as in `BLEU@test_long`.

    Raises:
      UsageError: there is no such metric, it is named twice, or it is perplexity on a split.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    choices = [*stored, *METRICS]
    for name in names:
        metric, split = of_split(name) if splits else (name, "")
        if metric not in choices:
            raise UsageError(f"there is no metric {name!r} here: {near(metric, choices)}")
        if metric == "PPL" and split:
            raise UsageError(f"PPL is measured on dev alone: leave out {name}.")
        if metric == CONTRASTIVE and split:
            raise UsageError(f"{metric} has pairs of its own, and no split: leave out @{split}.")
        if names.count(name) > 1:
            raise UsageError(f"--metrics names {name} twice: leave one out.")
    return names


def of_split(name: str) -> tuple[str, str]:
    """Returns the metric and the split of a name such as `BLEU@test_long`; "" without a split."""
    metric, _, split = name.partition("@")
    return metric, split


@functools.cache
def _sacrebleu(name: str) -> Any:
    """Returns a metric of sacreBLEU, with its defaults."""
    import sacrebleu.metrics

    made = getattr(sacrebleu.metrics, name)()
    made.corpus_score(["a"], [["a"]])  # its signature needs the number of references
    return made


def _of_sacrebleu(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Measured:
    """Returns the counts that sacreBLEU sums, and resamples for its own tests."""
    return _sacrebleu(name)._extract_corpus_statistics(hypotheses, [references])


def _chrf_of_sums(sums: np.ndarray) -> np.ndarray:
    """Returns chrF2 [...] of n-grams in hypothesis, reference and both [..., 3 per order]."""
    hypothesis, reference, both = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, 3), -1, 0)
    defined = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(defined.sum(axis=-1), 1)
    precision = np.where(defined, both / np.maximum(hypothesis, 1), 0).sum(axis=-1) / orders
    recall = np.where(defined, both / np.maximum(reference, 1), 0).sum(axis=-1) / orders
    return 100 * 5 * precision * recall / np.maximum(4 * precision + recall, 1e-300)


@metric("chrF2", lambda: str(_sacrebleu("CHRF").get_signature()), _chrf_of_sums, key=bleu.CHRF2)
def _chrf(hypotheses: Sequence[str], references: Sequence[str], _: Sequence[str]) -> Measured:
    return _of_sacrebleu("CHRF", hypotheses, references)


@metric("TER", lambda: str(_sacrebleu("TER").get_signature()), lower_is_better=True)
def _ter(hypotheses: Sequence[str], references: Sequence[str], _: Sequence[str]) -> Measured:
    return _of_sacrebleu("TER", hypotheses, references)


@metric("exact", accuracy.EXACT, key="exact")
def _exact(hypotheses: Sequence[str], references: Sequence[str], _: Sequence[str]) -> Measured:
    return [(x == y, 1) for x, y in zip(hypotheses, references, strict=True)]


METRICS[CONTRASTIVE] = Metric(CONTRASTIVE, "on minimal pairs of the grammar", None, percentage)
COMET = "Unbabel/wmt22-comet-da"


@functools.cache
def _comet_model() -> Any:
    """Returns the model of COMET, which its package downloads once."""
    try:
        import comet
    except ImportError:
        raise UsageError(
            "the metric COMET needs its package: `pip install unbabel-comet`, or leave COMET out."
        ) from None
    return comet.load_from_checkpoint(comet.download_model(COMET))


def _comet_signature() -> str:
    from importlib.metadata import version

    return f"{COMET}|version:{version('unbabel-comet')}"


@metric("COMET", _comet_signature)
def _comet(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> Measured:
    model, texts = _comet_model(), zip(sources, hypotheses, references, strict=True)
    import torch  # which COMET has installed

    data = [{"src": source, "mt": output, "ref": reference} for source, output, reference in texts]
    scores = model.predict(data, gpus=int(torch.cuda.is_available()), progress_bar=False).scores
    return [(score, 1) for score in scores]
