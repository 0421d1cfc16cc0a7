"""The work that models are timed on, the same for every contender: sizes, batches, sentences.

No JAX: contenders of other frameworks read it in environments of their own.
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

PAIRS = 2000  # drawn pairs, from which batches are made
BATCHES = 8  # of a round
SHAPES = 4


@dataclasses.dataclass(frozen=True)
class Size:
    """A model and the batches it is timed on.

    Attributes:
      V: subwords of its vocabulary.
      mean: subwords of a sentence.
    """

    c: Config
    V: int
    mean: int


def size(name: str, batch_tokens: int) -> Size:
    """tiny (Wu et al. 2021), on sentences as long as Multi30k's; base or big, as WMT14's."""
    tiny = name == "tiny"
    c = recipe("multi30k_tiny" if tiny else name)
    c = config.replace(c, batch_tokens=batch_tokens, max_length=256, P_drop=0.1, num_buckets=SHAPES)
    return Size(c, 8000, 14) if tiny else Size(c, 37_000, 27)


def batches(s: Size, seed: int = 0) -> list[Batch]:
    """A round's batches, of at most SHAPES shapes: {"source": int32 [B, S], "target": [B, T]}.

    Lengths are drawn from a gamma distribution of shape 6, a target's from one about its source's;
    ids uniformly.
    """
    random = np.random.default_rng(seed)
    source = 2 + np.round(random.gamma(6, (s.mean - 2) / 6, PAIRS)).astype(int)
    target = np.maximum(2, np.round(source * random.normal(1.05, 0.15, PAIRS)).astype(int))

    def side(lengths: np.ndarray) -> Ragged:
        lengths = np.minimum(lengths, s.c.data.max_length)
        return ragged([[*random.integers(UNK + 1, s.V, n - 1), EOS] for n in lengths])

    drawn = Batches(side(source), side(target), s.c.data.batch_tokens, SHAPES, seed=seed)
    stream = drawn.stream()
    return [next(stream)[1] for _ in range(BATCHES)]


def tokens(some: list[Batch]) -> int:
    """Tokens of both sides, without padding."""
    return int(sum((x != 0).sum() for b in some for x in b.values()))


SENTENCES, LENGTH, ROWS = 1000, 15, 64


def sentences(V: int) -> np.ndarray:
    """int32 [SENTENCES, LENGTH]: sources, to be given outputs of LENGTH subwords each."""
    return np.random.default_rng(0).integers(UNK + 1, V, (SENTENCES, LENGTH), np.int32)


def facts(s: Size) -> dict[str, Any]:
    """What contenders must know of a size."""
    m = s.c.model
    return dict(N=m.N, d_model=m.d_model, d_ff=m.d_ff, h=m.h, V=s.V, P_drop=s.c.training.P_drop,
                eps_ls=s.c.training.eps_ls)  # fmt: skip
