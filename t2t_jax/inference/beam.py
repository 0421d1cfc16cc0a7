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
    """The state of a search, which each step updates."""

    t: Array  # int32 []: tokens chosen so far
    state: Tree  # the model's, leading axis B K
    tokens: Array  # int32 [B, K, capacity]: the living hypotheses, best first
    log_p: Array  # float32 [B, K]: their total log-probabilities
    best: Array  # int32 [B, capacity]: the best finished hypothesis
    score: Array  # float32 [B]: its normalised score
    finished: Array  # int32 [B]: number of hypotheses that have finished
    done: Array  # bool [B]


class _Search(NamedTuple):
    """What every step of a search reads and none changes."""

    step: Step
    memory: Tree  # leading axis B K
    max_lengths: Array  # int32 [B]
    alpha: float | Array

    def penalty(self, length: Array) -> Array:
        """lp(length) of Wu et al. 2016, equation 14."""
        return ((5 + length.astype(jnp.float32)) / 6) ** self.alpha


def search(
    step: Step,
    memory: Tree,
    state: Tree,
    *,
    max_lengths: Array,
    capacity: int,
    beam: int,
    alpha: float | Array,
) -> tuple[Array, Array]:
    """The best hypothesis that beam search finds for each sentence. Pure; wrap it in `jax.jit`.

    Each step ranks the K V continuations of a sentence's K living hypotheses by total
    log-probability. Those among the first K that end in EOS have finished; the best K that do not
    end live on. A finished hypothesis of probability p and length n, EOS counted, scores
    log p / lp(n) with lp(n) = ((5 + n) / 6)^alpha (Wu et al. 2016, equation 14). A sentence is
    done as soon as

    - K hypotheses have finished and the best of them scores at least as much as the best living
      one would at its present length (without this second condition, a confident model whose EOS
      enters the last ranks would stop in mid-sentence), or
    - no living hypothesis can beat the best finished one: its log-probability can only fall and
      its penalty only grow, so log p / lp(max length) bounds its score (alpha >= 0), or
    - its hypotheses have its own max length. If none has finished by then, the best living one
      is returned, and its score is normalised in the same way.

    So a beam of 1 is greedy search up to the first EOS, and a beam as wide as the space of
    sequences returns the optimum. The result for a sentence does not depend on the rest of its
    batch. PAD and BOS are never chosen; log-probabilities are normalised over all V subwords.

    Args:
      step: (memory, state, tokens int32 [B K], t int32 []) -> (logits [B K, V], state), where
        `tokens` are those at position t, BOS at position 0.
      memory: pytree with leading axis B, which no step changes.
      state: pytree with leading axis B, before the first step.
      max_lengths: int32 [B], at most `capacity`; 0 for a row that is all padding.
      capacity: the largest number of tokens in a hypothesis; static.
      beam: K; static.
      alpha: exponent of the length penalty, at least 0.

    Returns:
      tokens int32 [B, capacity], EOS included and PAD after it, and scores float32 [B].
    """
    max_lengths = jnp.minimum(max_lengths, capacity)
    memory, state = jax.tree.map(lambda x: jnp.repeat(x, beam, axis=0), (memory, state))
    query = _Search(step, memory, max_lengths, alpha)
    start, advance = _start(state, max_lengths, capacity, beam), partial(_advance, query)
    end = lax.while_loop(lambda s: (~s.done).sum() > 0, advance, start)
    return end.best, end.score


def _start(state: Tree, max_lengths: Array, capacity: int, K: int) -> Beam:
    B = len(max_lengths)
    return Beam(
        t=jnp.int32(0),
        state=state,
        tokens=jnp.full((B, K, capacity), PAD, jnp.int32),
        log_p=jnp.full((B, K), -jnp.inf).at[:, 0].set(0.0),  # the K hypotheses are equal at first
        best=jnp.full((B, capacity), PAD, jnp.int32),
        score=jnp.full(B, -jnp.inf),
        finished=jnp.zeros(B, jnp.int32),
        done=max_lengths <= 0,
    )


def _advance(query: _Search, s: Beam) -> Beam:
    """One step: every living hypothesis grows by a token, or finishes."""
    # No value of a `top_k` is looked up by its index: XLA would then sort everything.
    B, K = s.log_p.shape
    # At t = 0 nothing precedes: whatever is read there is replaced by BOS.
    previous = lax.dynamic_index_in_dim(s.tokens, s.t - 1, axis=2, keepdims=False)
    previous = jnp.where(s.t == 0, BOS, previous)
    logits, state = query.step(query.memory, s.state, previous.reshape(B * K), s.t)
    ends, words, ids = _continuations(logits.astype(jnp.float32), s.log_p)
    t = s.t + 1

    # EOS competes with the words: only an EOS among the first K has finished its hypothesis.
    everything = jnp.concatenate([ends, words.reshape(B, -1)], axis=1)
    last = lax.top_k(everything, K)[0].min(axis=1, keepdims=True)
    in_first_K = (ends >= last) & (ends > -jnp.inf)
    ends = jnp.where(in_first_K, ends, -jnp.inf)
    ended = _take(s.tokens, jnp.argmax(ends, axis=1)[:, None])[:, 0].at[:, s.t].set(EOS)
    finished = s.finished + in_first_K.sum(axis=1)

    log_p, chosen = lax.top_k(words.reshape(B, -1), K)
    parents = chosen // ids.shape[2]
    tokens = _take(s.tokens, parents).at[:, :, s.t].set(_take(ids.reshape(B, -1), chosen))
    if K > 1:  # a single hypothesis is its own parent
        state = jax.tree.map(
            lambda x: _take(x.reshape(B, K, *x.shape[1:]), parents).reshape(x.shape), state
        )
    grown = s._replace(t=t, state=state, tokens=tokens, log_p=log_p, finished=finished)
    return _judge(query, grown, ended, ends)


def _judge(query: _Search, s: Beam, ended: Array, ends: Array) -> Beam:
    """Updates the best finished hypotheses, and which sentences are done.

    Args:
      s: after a step, `best`, `score` and `done` still those before it.
      ended: int32 [B, capacity], of each sentence the best hypothesis that this step finished.
      ends: float32 [B, K], log-probabilities of the hypotheses that it finished; -inf if none.
    """
    # At its max length, the best living hypothesis is returned if none has finished.
    cut = (s.t >= query.max_lengths) & (s.finished == 0)
    ended = jnp.where(cut[:, None], s.tokens[:, 0], ended)
    living_log_p = s.log_p.max(axis=1)
    score = jnp.where(cut, living_log_p, ends.max(axis=1)) / query.penalty(s.t)
    # A sentence that is done keeps its result, however long the others of its batch go on.
    better = ~s.done & ((score > s.score) | cut)
    best = jnp.where(better[:, None], ended, s.best)
    score = jnp.where(better, score, s.score)

    enough = (s.finished >= s.log_p.shape[1]) & (score >= living_log_p / query.penalty(s.t))
    hopeless = score >= living_log_p / query.penalty(query.max_lengths)
    done = s.done | enough | hopeless | (s.t >= query.max_lengths)
    return s._replace(best=best, score=score, done=done)


def _continuations(logits: Array, log_p: Array) -> tuple[Array, Array, Array]:
    """The continuations of living hypotheses that can be among the best K of their sentence.

    From logits float32 [B K, V] and log-probabilities of hypotheses [B, K]: total log-probabilities
    of ending in EOS float32 [B, K], and of the best k words after each hypothesis float32
    [B, K, k], and the words' ids int32 [B, K, k]; k = K words are enough.
    """
    B, K = log_p.shape
    words, ids = top_k(logits, min(K, logits.shape[1]), first=EOS + 1)  # PAD, BOS, EOS are no words
    # The log-softmax of K words only: [B K, V] is read once for the sum, and never written.
    largest = jnp.maximum(words.max(axis=1), logits[:, : EOS + 1].max(axis=1))
    log_z = largest + jnp.log(jnp.exp(logits - largest[:, None]).sum(axis=1))
    base = log_p.reshape(B * K) - log_z
    ends, words = base + logits[:, EOS], base[:, None] + words
    return ends.reshape(B, K), words.reshape(B, K, -1), ids.reshape(B, K, -1)


def _take(x: Array, indices: Array) -> Array:
    """x [B, K, ...] at indices [B, k] of its second axis -> [B, k, ...]."""
    return jax.vmap(lambda row, i: jnp.take(row, i, axis=0, mode="clip"))(x, indices)
