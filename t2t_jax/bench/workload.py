"""The work on which speed is measured: models, training batches and sentences to translate.

This module does not import JAX, so that programs of other frameworks can use it, too.
"""

import dataclasses
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.batches import Batch, Batches
from t2t_jax.data.cache import Ragged, ragged
from t2t_jax.recipes import recipe
from t2t_jax.tokens import EOS, UNK

PAIRS = 2000  # the least number of random sentence pairs from which the batches are made
BATCHES = 8  # training batches in a round
SHAPES = 4  # greatest number of different shapes of these batches
SENTENCES, LENGTH, ROWS = 1000, 15, 64  # translated in a round, subwords of each, batch size


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and the batches on which it is trained."""

    c: Config
    V: int  # size of the vocabulary
    mean_length: int  # mean number of subwords in a source sentence


def workload(size: str, batch_tokens: int) -> Workload:
    """Returns the workload of a size: tiny, base or big.

    tiny is the model of Wu et al. (2021) on sentences as long as Multi30k's; base and big are the
    paper's models on sentences as long as WMT14's.
    """
    tiny = size == "tiny"
    c = recipe("multi30k_tiny" if tiny else size)
    c = config.replace(c, batch_tokens=batch_tokens, max_length=256, P_drop=0.1, num_buckets=SHAPES)
    return Workload(c, 8000, 14) if tiny else Workload(c, 37_000, 27)


def batches(w: Workload) -> list[Batch]:
    """Returns the training batches of a round: {"source": int32 [B, S], "target": [B, T]}.

    Source lengths are drawn from a gamma distribution of shape 6, the ratio of target to source
    length from a normal distribution, and token ids uniformly.
    """
    random = np.random.default_rng(0)
    n = max(PAIRS, 2 * BATCHES * w.c.data.batch_tokens // w.mean_length)  # enough to fill batches
    source = 2 + np.round(random.gamma(6, (w.mean_length - 2) / 6, n)).astype(int)
    target = np.maximum(2, np.round(source * random.normal(1.05, 0.15, n)).astype(int))

    def side(lengths: np.ndarray) -> Ragged:
        lengths = np.minimum(lengths, w.c.data.max_length)
        return ragged([[*random.integers(UNK + 1, w.V, n - 1), EOS] for n in lengths])

    pairs = Batches(side(source), side(target), w.c.data.batch_tokens, w.c.data.num_buckets)
    stream = pairs.stream()
    return [next(stream)[1] for _ in range(BATCHES)]


def count_tokens(batches: list[Batch]) -> int:
    """Returns the number of tokens on both sides, padding excluded."""
    return int(sum((x != 0).sum() for batch in batches for x in batch.values()))


def sentences(V: int) -> np.ndarray:
    """Returns the sources to translate, int32 [SENTENCES, LENGTH]; outputs have LENGTH subwords."""
    return np.random.default_rng(0).integers(UNK + 1, V, (SENTENCES, LENGTH), np.int32)


def hyperparameters(w: Workload) -> dict[str, Any]:
    """Returns the hyperparameters from which another framework builds the same model."""
    m, t = w.c.model, w.c.training
    sizes = dict(N=m.N, d_model=m.d_model, d_ff=m.d_ff, h=m.h, V=w.V)
    return sizes | dict(P_drop=t.P_drop, eps_ls=t.eps_ls)
