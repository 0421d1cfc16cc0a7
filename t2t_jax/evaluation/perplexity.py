"""Likelihoods of sentences or documents, without label smoothing; their sums give Table 3's PPL."""

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
from t2t_jax.errors import UsageError
from t2t_jax.training import sharding
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.step import loss_targets, mask, shift

Batch = Mapping[str, Any]
Batches = Iterable[tuple[np.ndarray, Batch]]


def sentence_likelihoods(model: Any, params: Any, batches: Batches) -> np.ndarray:
    """The negative log-likelihood of every target in nats, and its number of tokens with EOS.

    Prompt tokens of a target, which are input without a loss, are not counted.

    Args:
      batches: indices of the sentences [n], and {"source": int32 [B, S], "target": int32 [B, T]}
        whose first n rows are these sentences. Padding is left out.

    Returns:
      float64 [sentences, 2]; the sum over sentences gives `metrics.perplexity`.

    Raises:
      UsageError: there is no target token.
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


def token_likelihoods(model: Any, params: Any, split: Split, batches: Batches) -> list[np.ndarray]:
    """The negative log-likelihood of every token of each document of a packed split, in nats.

    Args:
      batches: as `sentence_likelihoods` takes them.
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


def placed(split: Split, data: Data, mesh: Any) -> Batches:
    """The batches of a split for evaluation, on the devices."""
    sizes = data.batch_tokens, min(4, data.num_buckets)
    for rows, batch in in_order(split.source, split.target, *sizes):
        yield rows, sharding.put_batch(batch, mesh)


@partial(jax.jit, static_argnames="model")
def token_nll(model: Any, params: Any, batch: Batch) -> jax.Array:
    """The negative log-likelihood float32 [B, T] of each token of a batch, given those before."""
    variables, target = {"params": params}, batch["target"]
    encoded = model.apply(variables, batch["source"], method="encode")
    logits = model.apply(variables, encoded, shift(target), method="decode")
    nll = cross_entropy(logits, loss_targets(target), eps_ls=0.0, axis=())["nll"]
    return nn.with_logical_constraint(nll, (None, None))


@partial(jax.jit, static_argnames="model")
def negative_log_likelihood(model: Any, params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The negative log-likelihood of each target of a batch in nats, and its number of tokens.

    A masked model predicts one token at a time from all the others (Salazar et al. 2020).

    Returns:
      Two float32 [B], on every device.
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
