"""What runs that share a program have in common: model, parameter shapes, mesh and data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t2t_jax import checks, config
from t2t_jax.config import Config
from t2t_jax.data.batches import Batches
from t2t_jax.data.cache import Dataset, as_one, packed
from t2t_jax.data.corpora import CORPORA
from t2t_jax.evaluation.metrics import check, is_scored, metrics_of, outputs_of, perplexity
from t2t_jax.evaluation.predictions import placed, sentence_likelihoods, token_likelihoods
from t2t_jax.inference.translate import output_limit
from t2t_jax.models import build
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.runs import identity, programs, provenance
from t2t_jax.terminal import Progress
from t2t_jax.training import sharding
from t2t_jax.training.step import abstract


@dataclass(frozen=True)
class Context:
    """What runs that share a program have in common."""

    model: Any
    params: Any  # abstract: shapes and layout
    mesh: Any
    dataset: Dataset
    likelihoods: Callable[[Any], np.ndarray]  # `sentence_likelihoods` of dev or of its documents
    evaluate: Callable[[Any], float]  # parameters -> dev perplexity
    batches: Batches  # of training; a run has them in the order of its seed
    scored: list[str]  # splits
    max_extra: int  # subwords by which an output may exceed its input
    progress: Progress

    def facts(self, c: Config) -> dict[str, Any]:
        """Returns what determines a run besides its config."""
        facts = identity.data_facts(self.dataset) | {"dtype": self.model.dtype.name}
        raised = self.max_extra != c.decoding.max_extra
        return facts | ({"max_extra": self.max_extra} if raised else {})

    def origin(self, c: Config) -> dict[str, Any]:
        """Returns `provenance.origin` of a run."""
        first = {"batches": programs.first_batches(self.batches)}
        return provenance.origin(c, programs.programs(c, self.model.V) | first)


def make_context(
    c: Config, dataset: Dataset, to_score: Callable[[str], bool], progress: Progress, mesh: str
) -> Context:
    """Returns the context of runs whose configs are `c` except for traced fields.

    Raises a UsageError if the config does not fit the data or the devices.
    """
    model, dev = build(c, dataset.vocabulary.size), dataset.splits["dev"]
    scored = [name for name in dataset.splits if is_scored(c) and to_score(name)]
    for name in ("train", "dev"):
        checks.check_split(c, name, dataset.splits[name], model.limit, translated=False)
    metrics, train = metrics_of(c.data.corpus), dataset.splits["train"]
    decodes, limit = model.translates and not metrics[0].teacher_forced, c.decoding.max_extra
    if decodes:
        limit = output_limit(c.decoding, train.source.lengths, train.target.lengths)
    if limit != c.decoding.max_extra:
        progress.say(f"outputs may be {limit} subwords longer than their input, as in training")
    limited = config.replace(c, max_extra=limit)
    for name in scored:
        split = dataset.splits[name]
        checks.check_split(limited, name, split, model.limit, decodes)
        check(metrics, outputs_of(split, (), c.data), progress.say)
    devices = sharding.make_mesh(mesh)
    params = abstract(model, c, devices).params  # raises if the mesh does not divide them
    sizes = c.data.batch_tokens, c.data.num_buckets
    batches = Batches(train.source, train.target, *sizes, c.training.accumulate)
    of_dev = list(placed(dev, c.data, devices))

    def likelihoods(params: Any) -> np.ndarray:
        if dev.documents is not None:
            documents = token_likelihoods(model, params, dev, of_dev)
            return np.array([(nats.sum(), len(nats)) for nats in documents])
        with sharding.use_mesh(devices):  # so that training and scoring share one program
            return sentence_likelihoods(model, params, of_dev)

    def evaluate(params: Any) -> float:
        return float(perplexity(likelihoods(params).sum(axis=0)))

    return Context(
        model, params, devices, dataset, likelihoods, evaluate, batches, scored, limit, progress
    )


def as_read(c: Config, dataset: Dataset) -> Dataset:
    """Returns the dataset as the model of a config reads it.

    A language model reads each source of a corpus with prompts before its target, as one sequence,
    and documents one after another. It does not read the sources of other corpora.
    """
    corpus, splits = CORPORA[c.data.corpus], dataset.splits
    if corpus.documents:
        splits = {x: packed(y, c.data.max_length, x == "train") for x, y in splits.items()}
    elif corpus.prompts and not ARCHITECTURES[c.model.architecture].translates:
        splits = {x: as_one(y) for x, y in splits.items()}
    return replace(dataset, splits=splits)
