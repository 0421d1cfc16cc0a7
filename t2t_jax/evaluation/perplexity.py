"""Perplexity per wordpiece, always from the unsmoothed likelihood (Table 3's PPL)."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.errors import UsageError
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.step import mask, shift


def perplexity(model: Any, params: Any, batches: Iterable[Mapping[str, Any]]) -> float:
    """exp of the mean negative log-likelihood of a target token, EOS counted as one.

    Args:
      batches: {"source": int32 [B, S], "target": int32 [B, T]}, of any shapes; padding counts for
        nothing. The batches' sums are added in float64.

    Raises:
      UsageError: there is no target token.
    """
    sums = [negative_log_likelihood(model, params, dict(batch)) for batch in batches]
    nll = math.fsum(float(nll) for nll, _ in sums)
    tokens = math.fsum(float(tokens) for _, tokens in sums)
    if not tokens:
        raise UsageError("there is no perplexity of no sentences: give at least one pair.")
    with np.errstate(over="ignore"):  # a model that diverged has an infinite one
        return float(np.exp(nll / tokens))


@partial(jax.jit, static_argnames="model")
def negative_log_likelihood(
    model: Any, params: Any, batch: Mapping[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """Of a batch's target, in nats, and its number of tokens: two float32 scalars.

    A masked model is asked for every token in turn, all the others given.
    """
    variables, target = {"params": params}, batch["target"]
    encoded = model.apply(variables, batch["source"], method="encode")

    def sums(given: jax.Array, wanted: jax.Array) -> jax.Array:
        logits = model.apply(variables, encoded, given, method="decode")
        found = cross_entropy(logits, wanted, eps_ls=0.0)
        return jnp.stack([found["nll"], found["tokens"]])

    if model.masked:
        each = jnp.eye(target.shape[1], dtype=bool)[:, None]
        nll, tokens = jax.lax.map(lambda chosen: sums(*mask(target, chosen)), each).sum(axis=0)
    else:
        nll, tokens = sums(shift(target), target)
    return nll, tokens
