"""What a model makes of the true words of a split: their likelihoods and its own predictions.

Likelihoods are without label smoothing, and their sums give Table 3's PPL.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.config import Data
from t2t_jax.data.batches import in_order
from t2t_jax.data.cache import Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import UsageError
from t2t_jax.tokens import EOS, PROMPT
from t2t_jax.training import sharding
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.step import loss_targets, mask, shift

Batch = Mapping[str, Any]
PlacedBatches = Iterable[tuple[np.ndarray, Batch]]


def sentence_likelihoods(model: Any, params: Any, batches: PlacedBatches) -> np.ndarray:
    """The negative log-likelihood in nats and the number of tokens of each target, float64 [n, 2].

    Their sums give `metrics.perplexity`. EOS counts; prompt tokens of a target, which are input
    without a loss, do not. Raises UsageError if there is no token. The batches are indices of
    sentences [n], and {"source": int32 [B, S], "target": int32 [B, T]} whose first n rows are these
    sentences.
    """
    order, rows = [np.zeros(0, int)], [np.zeros((0, 2))]
    for indices, batch in batches:
        sums = np.stack(negative_log_likelihood(model, params, dict(batch)), axis=-1)
        order.append(indices)
        rows.append(sums[: len(indices)].astype(float))
    statistics = np.concatenate(rows)[np.argsort(np.concatenate(order))]
    if not statistics[:, 1].any():
        raise UsageError("perplexity needs at least one sentence pair, and there is none.")
    return statistics


def token_likelihoods(
    model: Any, params: Any, split: Split, batches: PlacedBatches
) -> list[np.ndarray]:
    """The negative log-likelihood of every token of each document of a packed split, in nats.

    Batches are as `sentence_likelihoods` takes them.
    """
    assert split.documents is not None
    offsets, mesh = split.target.offsets, sharding.mesh_of(params)
    nats = np.zeros(len(split.target.tokens))
    for rows, batch in batches:
        with sharding.use_mesh(mesh):
            of_batch = np.asarray(token_nll(model, params, dict(batch)))
        for i, row in zip(rows, of_batch, strict=False):
            nats[offsets[i] : offsets[i + 1]] = row[: offsets[i + 1] - offsets[i]]
    return np.split(nats, split.documents.offsets[1:-1])


def placed(split: Split, data: Data, mesh: Any) -> PlacedBatches:
    """The batches of a split for evaluation, on the devices."""
    sizes = data.batch_tokens, min(4, data.num_buckets)
    for rows, batch in in_order(split.source, split.target, *sizes):
        yield rows, sharding.put_batch(batch, mesh)


def predict(model: Any, params: Any, split: Split, vocabulary: Vocabulary, data: Data) -> list[str]:
    """The predicted words of each target, beside its prompts, as texts like its references.

    Of documents, it is the negative log-likelihood of every token in nats, as text.

    A prediction has as many words as its reference. A wrong prediction in place of the end mark is
    one more word; an end mark predicted in place of a word is written as its piece. If a whole
    prediction is right, greedy decoding returns the target: both take the largest logit at every
    position, given the same words up to the first mistake. (Decoding never chooses PAD or BOS.)

    The split is as the model reads it (`runs.context.as_read`); `data` has the size of batches.
    """
    mesh = sharding.mesh_of(params)
    batches = placed(split, data, mesh)
    if split.documents is not None:
        documents = token_likelihoods(model, params, split, batches)
        return [" ".join(f"{x:.3f}" for x in nats) for nats in documents]
    words = [piece.removeprefix("▁") for piece in vocabulary.pieces(range(vocabulary.size))]
    texts = [""] * len(split.target)
    for rows, batch in batches:
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


def _logits(model: Any, params: Any, batch: Batch) -> jax.Array:
    """The logits [B, T, V] of each token of a batch, given those before."""
    variables = {"params": params}
    encoded = model.apply(variables, batch["source"], method="encode")
    return model.apply(variables, encoded, shift(batch["target"]), method="decode")


@partial(jax.jit, static_argnames="model")
def predictions(model: Any, params: Any, batch: Batch) -> jax.Array:
    """The ids int32 [B, T] with the largest logits, given the true tokens before each position."""
    ids = _logits(model, params, batch).argmax(axis=-1).astype("int32")
    return nn.with_logical_constraint(ids, (None, None))


@partial(jax.jit, static_argnames="model")
def token_nll(model: Any, params: Any, batch: Batch) -> jax.Array:
    """The negative log-likelihood float32 [B, T] of each token of a batch, given those before."""
    logits, labels = _logits(model, params, batch), loss_targets(batch["target"])
    nll = cross_entropy(logits, labels, eps_ls=0.0, axis=())["nll"]
    return nn.with_logical_constraint(nll, (None, None))


@partial(jax.jit, static_argnames="model")
def negative_log_likelihood(model: Any, params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The negative log-likelihood of each target in nats, and its number of tokens, float32 [B].

    A masked model predicts one token at a time from all the others (Salazar et al. 2020).
    """
    variables, target = {"params": params}, batch["target"]
    encoded = model.apply(variables, batch["source"], method="encode")

    def nll_and_tokens(inputs: jax.Array, labels: jax.Array) -> jax.Array:
        logits = model.apply(variables, encoded, inputs, method="decode")
        sums = cross_entropy(logits, labels, eps_ls=0.0, axis=-1)
        return jnp.stack([sums["nll"], sums["tokens"]])

    if model.masked:
        one_hot = jnp.eye(target.shape[1], dtype=bool)[:, None]  # [T, 1, T]
        each = jax.lax.map(lambda chosen: nll_and_tokens(*mask(target, chosen)), one_hot)
        sums = each.sum(axis=0)
    else:
        sums = nll_and_tokens(shift(target), loss_targets(target))
    nll, tokens = nn.with_logical_constraint(sums, (None, None))
    return nll, tokens
