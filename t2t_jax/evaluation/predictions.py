"""The words that a model predicts for a split, each given the true words before it.

If a whole prediction is right, greedy decoding returns the target: both take the largest logit at
every position, given the same words up to the first mistake. (Decoding never chooses PAD or BOS.)
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from t2t_jax.config import Data
from t2t_jax.data.cache import Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.evaluation.perplexity import placed, token_likelihoods
from t2t_jax.tokens import EOS, PROMPT
from t2t_jax.training import sharding
from t2t_jax.training.step import shift


def predict(model: Any, params: Any, split: Split, vocabulary: Vocabulary, data: Data) -> list[str]:
    """The predicted words of each target, beside its prompts, as texts like its references.

    Of documents, it is the negative log-likelihood of every token in nats, as text.

    A prediction has as many words as its reference. A wrong prediction in place of the end mark is
    one more word; an end mark predicted in place of a word is written as its piece.

    Args:
      split: as the model reads it (`runs.context.as_read`).
      data: has the size of batches and the number of their shapes.
    """
    if split.documents is not None:
        batches = placed(split, data, sharding.mesh_of(params))
        documents = token_likelihoods(model, params, split, batches)
        return [" ".join(f"{x:.3f}" for x in nats) for nats in documents]
    words = [piece.removeprefix("▁") for piece in vocabulary.pieces(range(vocabulary.size))]
    mesh, texts = sharding.mesh_of(params), [""] * len(split.target)
    for rows, batch in placed(split, data, mesh):
        with sharding.use_mesh(mesh):
            predicted = predictions(model, params, batch)
        for i, row in zip(rows, np.asarray(predicted), strict=False):
            target = split.target[i]
            last = len(split.references[i].split()) + 1
            own = slice(len(target) - last, len(target))
            texts[i] = _text(row[: len(target)][own], target[own], words)
    return texts


def _text(predicted: np.ndarray, target: np.ndarray, words: list[str]) -> str:
    """The words of a prediction; both arrays are [words + 1], with the end mark."""
    pairs = list(zip(predicted.tolist(), target.tolist(), strict=True))
    end, true_end = pairs.pop()
    out = [PROMPT + words[-y] if y < 0 else words[x] for x, y in pairs]
    return " ".join(out + [words[end]] * (true_end > 0 and end != EOS))


@partial(jax.jit, static_argnames="model")
def predictions(model: Any, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """The ids int32 [B, T] with the largest logits, given the true tokens before each position."""
    variables = {"params": params}
    encoded = model.apply(variables, batch["source"], method="encode")
    logits = model.apply(variables, encoded, shift(batch["target"]), method="decode")
    return nn.with_logical_constraint(logits.argmax(axis=-1).astype("int32"), (None, None))
