"""Accuracy on contrastive sets: how often a model finds a translation likelier than the same one
with an error (Sennrich 2017, LingEval97). A corpus may declare a set (`Corpus.minimal_pairs`)."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError

DISTANCES = (1, 2), (3, 4), (5, 6), (7, 9), (10, math.inf)  # of the two words that must agree
_BATCH_TOKENS = 4096
_Z = 1.96  # of a 95% interval


class Judgement(NamedTuple):
    """Whether a model finds a reference likelier than its version with an error."""

    type: str
    distance: int  # in words, between the wrong word and the one it depends on; 0 if there is none
    right: float  # of several models, the share of which this is true


class Accuracy(NamedTuple):
    """The share of right judgements, in percent, with Wilson's 95% interval."""

    type: str
    distance: str  # the range of distances, or "" for all
    share: float
    low: float
    high: float
    n: int


def judge(
    model: Any, params: Any, vocabulary: Vocabulary, items: Sequence[Mapping[str, Any]]
) -> list[Judgement]:
    """Returns the judgement of every error, in order.

    The likelihood of a text is the product of the probabilities of its tokens; a tie is wrong.
    Raises UsageError if the set is empty or has another format than LingEval97's, or a sentence
    exceeds the model's learned positions.
    """
    from t2t_jax.data.batches import in_order
    from t2t_jax.data.cache import ragged
    from t2t_jax.evaluation.predictions import sentence_likelihoods
    from t2t_jax.tokens import EOS

    _check(items)
    errors = [(i, error) for i, item in enumerate(items) for error in item["errors"]]
    if not errors:
        raise UsageError("the contrastive set has no errors: give one that has some.")
    sources = [item["source"] for item in items] + [items[i]["source"] for i, _ in errors]
    targets = [item["reference"] for item in items] + [e["contrastive"] for _, e in errors]
    sides = [[[*ids, EOS] for ids in vocabulary.encode(x)] for x in (sources, targets)]
    longest = max(len(ids) for side in sides for ids in side)
    if model.limit and longest > model.limit:
        raise UsageError(
            f"a sentence of the contrastive set has {longest} subwords, but the model has "
            f"{model.limit} positions: leave it out."
        )
    batches = in_order(ragged(sides[0]), ragged(sides[1]), _BATCH_TOKENS)
    nll = sentence_likelihoods(model, params, batches)[:, 0]
    return decide(errors, nll[: len(items)].tolist(), nll[len(items) :].tolist())


def _check(items: Sequence[Mapping[str, Any]]) -> None:
    try:
        for item in items:
            texts = [item["source"], item["reference"]]
            texts += [error[name] for error in item["errors"] for name in ("type", "contrastive")]
            distances = [error.get("distance", 0) for error in item["errors"]]
            texts_fit = all(isinstance(x, str) for x in texts)
            if not (texts_fit and all(isinstance(x, int) for x in distances)):
                raise TypeError
    except (TypeError, KeyError, AttributeError):
        raise UsageError(
            "the contrastive set of the corpus is not in LingEval97's format: it must be a list of "
            "mappings with source, reference, and errors that have a type and a contrastive text."
        ) from None


def decide(
    errors: Sequence[tuple[int, Mapping[str, Any]]], right: Sequence[float], wrong: Sequence[float]
) -> list[Judgement]:
    """Returns the judgement of every error, an index into `right` and its description.

    `right` and `wrong` are negative log-likelihoods of references, and of texts with an error.
    """
    return [
        Judgement(e["type"], e.get("distance", 0), bool(right[i] < x))
        for (i, e), x in zip(errors, wrong, strict=True)
    ]


def rule() -> str:
    """Returns eight hex digits of what `decide` decides, which is in no program of a run."""
    errors = [(i, {"type": "a", "distance": i}) for i in (0, 0, 0, 1)]
    decided = decide(errors, [1.0, 2.0], [0.5, 1.0, 1.5, 1.5])
    return hashlib.sha256(repr([tuple(x) for x in decided]).encode()).hexdigest()[:8]


def accuracies(judgements: Iterable[Judgement]) -> list[Accuracy]:
    """Returns the accuracy of each type of error, and of its distances if there are several."""
    by_type: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        by_type.setdefault(judgement.type, []).append(judgement)
    out = []
    for kind, members in by_type.items():
        out.append(_accuracy(kind, "", members))
        by_span = {span(a, b): [x for x in members if a <= x.distance <= b] for a, b in DISTANCES}
        parts = [(distance, part) for distance, part in by_span.items() if part]
        if len(parts) > 1:
            out += [_accuracy(kind, distance, part) for distance, part in parts]
    return out


def span(first: float, last: float) -> str:
    return f"{first} to {last}" if last < math.inf else f"{first} or more"


def _accuracy(kind: str, distance: str, judgements: Sequence[Judgement]) -> Accuracy:
    n, p = len(judgements), sum(x.right for x in judgements) / len(judgements)
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return Accuracy(kind, distance, 100 * p, 100 * (middle - half), 100 * (middle + half), n)
