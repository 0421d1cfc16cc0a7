"""Continuation of a text by a causal language model, token by token."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from t2t_jax.attention import choice as mechanisms
from t2t_jax.tokens import BOS, EOS, PAD
from t2t_jax.training import sharding


class Choice(NamedTuple):
    """How a token is drawn from the logits; arrays, so that one program serves all values."""

    temperature: Any  # divides the logits, float32 []; 0 chooses the most likely token
    top_k: Any  # the number of tokens among which it is drawn, int32 []
    top_p: Any  # it is drawn among the most likely tokens of this probability, float32 []


def choose(logits: Array, key: Array, choice: Choice) -> Array:
    """A token int32 [B], drawn from logits [B, V]; PAD and BOS are never chosen."""
    logits = logits.astype(jnp.float32).at[:, jnp.array([PAD, BOS])].set(-jnp.inf)
    ordered, ids = lax.top_k(logits, logits.shape[1])
    ordered /= jnp.where(choice.temperature > 0, choice.temperature, 1)
    p = jax.nn.softmax(ordered, axis=-1)
    rank = jnp.arange(p.shape[1])[None]
    # The first token whose predecessors have the probability top_p is left out.
    kept = (rank < choice.top_k) & (p.cumsum(axis=-1) - p < choice.top_p)
    kept &= (rank == 0) | (choice.temperature > 0)
    drawn = jax.random.categorical(key, jnp.where(kept | (rank == 0), ordered, -jnp.inf))
    return jnp.take_along_axis(ids, drawn[:, None], axis=1)[:, 0]


@partial(jax.jit, static_argnames=("model", "capacity"))
def begin(model: Any, params: Any, capacity: int) -> Any:
    """The state of one text before its first position."""
    first = jnp.full((1, 1), BOS)
    return model.apply({"params": params}, first, capacity, method="start")[1]


@partial(jax.jit, static_argnames="model", donate_argnames="state")
def advance(
    model: Any, params: Any, state: Any, token: Array, t: Array, key: Array, choice: Choice
) -> tuple[Any, Array]:
    """The state after position t, at which a token int32 [1] stands, and the next token int32 [1].

    The draw is a function of key and position.
    """
    logits, state = model.apply({"params": params}, None, state, token, t, method="step")
    return state, choose(logits, jax.random.fold_in(key, t), choice)


def positions(model: Any) -> float:
    """The largest number of positions that the model and all of its mechanisms have, or inf."""
    pieces = mechanisms.pieces(model.c.decoder_attention)
    return min(model.limit or math.inf, *(mechanisms.capacity(piece)[1] for piece in pieces))


def generate(
    model: Any, params: Any, prompt: Sequence[int], length: int, seed: int, choice: Choice
) -> Iterator[list[int]]:
    """Yields up to `length` tokens, each as it is drawn, but not the end mark at which a text ends.

    The prompt are ids, the mark after which a text begins first. Equal seeds draw equal tokens.
    """
    total, token = len(prompt) + length, np.zeros(1, np.int32)
    capacity = int(min(1 << max(6, total.bit_length()), positions(model)))
    key, mesh = jax.random.key(seed), sharding.mesh_of(params)
    with sharding.use_mesh(mesh):
        state = begin(model, params, capacity)
    for t in range(total - 1):
        token = np.array(prompt[t : t + 1], np.int32) if t < len(prompt) else token
        with sharding.use_mesh(mesh):
            state, drawn = advance(model, params, state, token, np.int32(t), key, choice)
        if t + 1 >= len(prompt):
            token = np.asarray(drawn)
            if token[0] == EOS:
                return
            yield token.tolist()
