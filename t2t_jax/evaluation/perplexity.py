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
    """exp of the mean negative log-likelihood per target token, EOS included.

    Args:
      batches: {"source": int32 [B, S], "target": int32 [B, T]}, of any shapes. Padding is left out;
        the sums of batches are added in float64.

    Raises:
      UsageError: there is no target token.
    """
    sums = [negative_log_likelihood(model, params, dict(batch)) for batch in batches]
    nll = math.fsum(float(nll) for nll, _ in sums)
    tokens = math.fsum(float(tokens) for _, tokens in sums)
    if not tokens:
        raise UsageError("perplexity needs at least one sentence pair, and there is none.")
    with np.errstate(over="ignore"):  # the perplexity of a model that diverged is infinite
        return float(np.exp(nll / tokens))


@partial(jax.jit, static_argnames="model")
def negative_log_likelihood(
    model: Any, params: Any, batch: Mapping[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """The negative log-likelihood of a batch's target in nats, and its number of tokens.

    A masked model predicts one token at a time from all the others (Salazar et al. 2020).

    Returns:
      Two float32 scalars.
    """
    variables, target = {"params": params}, batch["target"]
    encoded = model.apply(variables, batch["source"], method="encode")

    def nll_and_tokens(inputs: jax.Array, labels: jax.Array) -> jax.Array:
        logits = model.apply(variables, encoded, inputs, method="decode")
        sums = cross_entropy(logits, labels, eps_ls=0.0)
        return jnp.stack([sums["nll"], sums["tokens"]])

    if model.masked:
        one_hot = jnp.eye(target.shape[1], dtype=bool)[:, None]  # [T, 1, T]
        each = jax.lax.map(lambda chosen: nll_and_tokens(*mask(target, chosen)), one_hot)
        nll, tokens = each.sum(axis=0)
    else:
        nll, tokens = nll_and_tokens(shift(target), target)
    return nll, tokens
