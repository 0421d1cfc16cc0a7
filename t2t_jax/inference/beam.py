"""Beam search over any model's step, as one compiled loop (section 6.1).

Axes: B batch, K beam, V vocabulary. Rows of one sentence are adjacent on an axis of length B K.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from t2t_jax.ops.top_k import top_k
from t2t_jax.tokens import BOS, EOS, PAD

Tree = Any
Step = Callable[[Tree, Tree, Array, Array], tuple[Array, Tree]]


class Beam(NamedTuple):
    """What one step hands to the next."""

    t: Array  # int32 []: tokens chosen so far
    state: Tree  # the model's, leading axis B K
    tokens: Array  # int32 [B, K, capacity]: the living hypotheses, best first
    log_p: Array  # float32 [B, K]: their total log-probabilities
    best: Array  # int32 [B, capacity]: the best finished hypothesis
    score: Array  # float32 [B]: its normalised score
    finished: Array  # int32 [B]: hypotheses that have finished
    done: Array  # bool [B]


def search(
    step: Step,
    memory: Tree,
    state: Tree,
    *,
    max_lengths: Array,
    capacity: int,
    beam: int,
    alpha: float | Array,
    few: int = 0,
) -> tuple[Array, Array]:
    """The best hypothesis that beam search finds for each sentence. Pure; wrap it in `jax.jit`.

    Each step ranks the K V continuations of a sentence's K living hypotheses by total
    log-probability. Those among the first K that end in EOS have finished; the best K that do not
    end live on. A finished hypothesis of probability p and length n, EOS counted, scores
    log p / lp(n) with lp(n) = ((5 + n) / 6)^alpha (Wu et al. 2016, equation 14). A sentence is
    done as soon as

    - K hypotheses have finished and the best of them scores no less than the best living one
      would if it ended there for nothing (without this half, a confident model whose EOS creeps
      into the last ranks would stop in mid-sentence), or
    - no living one can beat the best finished one: its log-probability can only fall and its
      penalty only grow, so log p / lp(max length) bounds what it may score (alpha >= 0), or
    - its hypotheses have its own max length. If none has finished by then, the best living one
      is returned, its score normalised alike.

    So a beam of 1 is greedy search up to the first EOS, and a beam as wide as the space of
    sequences returns the optimum. What a sentence gets does not depend on the rest of its batch.
    PAD and BOS are never chosen; the log-probabilities are the model's own over all V subwords.

    Args:
      step: (memory, state, tokens int32 [B K], t int32 []) -> (logits [B K, V], state), where
        `tokens` stand at position t, BOS at 0.
      memory: pytree with leading axis B, which no step changes.
      state: pytree with leading axis B, before the first step.
      max_lengths: int32 [B], at most `capacity`; 0 for a row that is only padding.
      capacity: the longest hypothesis there is room for; static.
      beam: K, static.
      alpha: length penalty, at least 0.
      few: when no more sentences than these are left, they go on without the others; static.

    Returns:
      tokens int32 [B, capacity], EOS included and PAD after it, and scores float32 [B].
    """
    B, K = len(max_lengths), beam
    max_lengths = jnp.minimum(max_lengths, capacity)

    def lp(length: Array) -> Array:
        return ((5 + length.astype(jnp.float32)) / 6) ** alpha

    def advance(memory: Tree, max_lengths: Array, s: Beam) -> Beam:
        # No value of a `top_k` is picked by its place: XLA would sort everything to serve both.
        B = len(s.done)
        previous = lax.dynamic_index_in_dim(s.tokens, s.t - 1, axis=2, keepdims=False)
        previous = jnp.where(s.t == 0, BOS, previous)
        logits, state = step(memory, s.state, previous.reshape(B * K), s.t)
        ends, words, ids = _continuations(logits.astype(jnp.float32), s.log_p)
        n = s.t + 1

        everything = jnp.concatenate([ends, words.reshape(B, -1)], axis=1)
        last = lax.top_k(everything, K)[0].min(axis=1, keepdims=True)
        in_first_K = (ends >= last) & (ends > -jnp.inf)
        ends = jnp.where(in_first_K, ends, -jnp.inf)
        ended = _take(s.tokens, jnp.argmax(ends, axis=1)[:, None])[:, 0]
        ended = ended.at[:, s.t].set(EOS)
        finished = s.finished + in_first_K.sum(axis=1)

        log_p, chosen = lax.top_k(words.reshape(B, -1), K)
        parents = chosen // ids.shape[2]
        tokens = _take(s.tokens, parents).at[:, :, s.t].set(_take(ids.reshape(B, -1), chosen))
        if K > 1:  # a single hypothesis is its own parent
            state = jax.tree.map(lambda x: _take(_split(x, K), parents).reshape(x.shape), state)

        # One that merely ran out of room stands in where none has finished.
        cut = (n >= max_lengths) & (finished == 0)
        ended = jnp.where(cut[:, None], tokens[:, 0], ended)
        first = log_p.max(axis=1)
        score = jnp.where(cut, first, ends.max(axis=1)) / lp(n)
        better = ~s.done & ((score > s.score) | cut)
        best = jnp.where(better[:, None], ended, s.best)
        score = jnp.where(better, score, s.score)

        enough = (finished >= K) & (score >= first / lp(n))
        hopeless = score >= first / lp(max_lengths)
        done = s.done | enough | hopeless | (n >= max_lengths)
        return Beam(n, state, tokens, log_p, best, score, finished, done)

    memory, state = jax.tree.map(lambda x: jnp.repeat(x, K, axis=0), (memory, state))
    start = Beam(
        t=jnp.int32(0),
        state=state,
        tokens=jnp.full((B, K, capacity), PAD, jnp.int32),
        log_p=jnp.full((B, K), -jnp.inf).at[:, 0].set(0.0),  # K copies of BOS would be one
        best=jnp.full((B, capacity), PAD, jnp.int32),
        score=jnp.full(B, -jnp.inf),
        finished=jnp.zeros(B, jnp.int32),
        done=max_lengths <= 0,
    )

    def until(left: int, memory: Tree, max_lengths: Array, s: Beam) -> Beam:
        """As many steps as it takes until no more than `left` sentences are not done."""
        more = partial(advance, memory, max_lengths)
        return lax.while_loop(lambda s: (~s.done).sum() > left, more, s)

    if not few:
        end = until(0, memory, max_lengths, start)
        return end.best, end.score
    end = until(few, memory, max_lengths, start)
    rows = jnp.argsort(end.done)[:few]  # what is not done comes first
    of_rows = (rows[:, None] * K + jnp.arange(K)[None]).reshape(-1)
    state, memory = jax.tree.map(lambda x: x[of_rows], (end.state, memory))
    part = [x[rows] for x in end[2:]]
    last = until(0, memory, max_lengths[rows], Beam(end.t, state, *part))
    return end.best.at[rows].set(last.best), end.score.at[rows].set(last.score)


def _continuations(logits: Array, log_p: Array) -> tuple[Array, Array, Array]:
    """What may follow each of [B, K] hypotheses: log-probabilities of ending [B, K] and of its best
    words [B, K, k], and the words' ids [B, K, k]. k = K words suffice for the best K of all."""
    B, K = log_p.shape
    words, ids = top_k(logits, min(K, logits.shape[1]), first=EOS + 1)  # PAD, BOS, EOS are no words
    largest = jnp.maximum(words.max(axis=1), logits[:, : EOS + 1].max(axis=1))
    log_z = largest + jnp.log(jnp.exp(logits - largest[:, None]).sum(axis=1))
    base = log_p.reshape(B * K) - log_z
    ends, words = base + logits[:, EOS], base[:, None] + words
    return ends.reshape(B, K), words.reshape(B, K, -1), ids.reshape(B, K, -1)


def _split(x: Array, K: int) -> Array:
    return x.reshape(x.shape[0] // K, K, *x.shape[1:])


def _take(x: Array, indices: Array) -> Array:
    """x [B, K, ...] at indices [B, k] of its second axis -> [B, k, ...]."""
    return jax.vmap(lambda row, i: jnp.take(row, i, axis=0, mode="clip"))(x, indices)
