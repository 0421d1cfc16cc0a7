"""What runs that share a program have in common: model, parameter shapes, mesh and data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset, Split
from t2t_jax.errors import UsageError
from t2t_jax.training.progress import Progress

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Context:
    """What runs that share a program have in common.

    Attributes:
      params: abstract parameters: their shapes and layout.
      likelihoods: parameters -> `sentence_likelihoods` of dev, [sentences, 2].
      evaluate: parameters -> dev perplexity.
      to_score: whether a split is to be translated and scored, by its name.
    """

    model: Any
    params: Any
    mesh: Any
    dataset: Dataset
    likelihoods: "Callable[[Any], np.ndarray]"
    evaluate: Callable[[Any], float]
    to_score: Callable[[str], bool]
    progress: Progress


def make_context(
    c: Config, dataset: Dataset, to_score: Callable[[str], bool], progress: Progress, mesh: str
) -> Context:
    """Returns the context of runs with the config `c` but for its traced fields.

    Raises:
      UsageError: the config does not fit the data or the devices.
    """
    from t2t_jax.data.batches import in_order
    from t2t_jax.evaluation.metric import perplexity
    from t2t_jax.evaluation.perplexity import sentence_likelihoods
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import abstract

    model, dev = build(c, dataset.vocabulary.size), dataset.splits["dev"]
    _check_lengths(dev, model.limit)
    devices = sharding.make_mesh(mesh)
    params = abstract(model, c, devices).params  # raises if the mesh does not divide them
    num_buckets = min(4, c.data.num_buckets)
    batches = [
        (rows, sharding.put_batch(batch, devices))
        for rows, batch in in_order(dev.source, dev.target, c.data.batch_tokens, num_buckets)
    ]

    def likelihoods(params: Any) -> "np.ndarray":
        with sharding.use_mesh(devices):  # so that training and scoring share one program
            return sentence_likelihoods(model, params, batches)

    def evaluate(params: Any) -> float:
        return float(perplexity(likelihoods(params).sum(axis=0)))

    return Context(model, params, devices, dataset, likelihoods, evaluate, to_score, progress)


def _check_lengths(dev: Split, limit: int | None) -> None:
    longest = max(int(dev.source.lengths.max()), int(dev.target.lengths.max()))
    if limit is not None and longest > limit:
        raise UsageError(
            f"dev has a sentence of {longest} subwords and the model {limit} learned positions "
            "(max_length + max_extra): raise max_length, or set positions=sinusoid."
        )
