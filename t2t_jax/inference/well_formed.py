"""Rules that outputs keep by construction: at every step, a search may choose some tokens only.

A rule is a pytree of tables, which its method `of` makes on the host from the pieces of the
vocabulary. It reads and updates a state of fixed size for each hypothesis, as a model does:

    start(source int32 [S], max_length int32 []) -> state
    advance(state, token int32 []) -> state, after the token; the first one is BOS
    allowed(state) -> bool [V]: the tokens that may follow; EOS follows if there is none
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from t2t_jax.data.trees import WORD
from t2t_jax.inference.beam import Step
from t2t_jax.tokens import EOS, PAD

_DEPTH = 64  # open brackets at most; trees of the Wall Street Journal have at most 30


class _Open(NamedTuple):
    """The state of a tree that is being written."""

    labels: Array  # int32 [_DEPTH]: of the open brackets, the outermost first
    depth: Array  # int32 []: number of open brackets
    empty: Array  # bool []: whether the innermost one has no children yet
    words: Array  # int32 []: words of the source that are not in the tree yet
    room: Array  # int32 []: tokens that may follow, EOS included


class Trees(NamedTuple):
    """Trees of `data.trees` with as many words as their source, within the maximal length."""

    label: Array | np.ndarray  # int32 [V]: the number of a bracket's label; -1 of other tokens
    opens: Array | np.ndarray  # bool [V]
    closes: Array | np.ndarray  # bool [V]
    word: Array | np.ndarray  # bool [V]: whether it stands for a word in a tree
    begins: Array | np.ndarray  # bool [V]: whether it begins a word of a source

    @classmethod
    def of(cls, pieces: Sequence[str]) -> "Trees":
        """Returns the tables for the pieces of a vocabulary."""
        begins = np.array([piece.startswith("▁") for piece in pieces])
        texts = [piece[1:] if first else "" for piece, first in zip(pieces, begins, strict=True)]
        sides = [{text[1:] for text in texts if text[:1] == side} for side in "()"]
        labels = sorted((sides[0] & sides[1]) - {""})
        numbers = [labels.index(text[1:]) if text[1:] in labels else -1 for text in texts]
        label, side = np.array(numbers, np.int32), np.array([text[:1] for text in texts])
        opens, closes = (side == "(") & (label >= 0), (side == ")") & (label >= 0)
        return cls(label, opens, closes, np.array(texts) == WORD, begins)

    def start(self, source: Array, max_length: Array) -> _Open:
        words, room = jnp.asarray(self.begins)[source].sum(dtype=jnp.int32), max_length + 1  # BOS
        zero = jnp.zeros_like(room)
        return _Open(jnp.full(_DEPTH, -1, jnp.int32), zero, zero > 0, words, room)

    def advance(self, s: _Open, token: Array) -> _Open:
        label, opens, closes, word = (jnp.asarray(x)[token] for x in self[:4])
        new = opens & (jnp.arange(_DEPTH) == s.depth)
        labels = jnp.where(new, label, s.labels)
        return _Open(labels, s.depth + opens - closes, opens, s.words - word, s.room - 1)

    def allowed(self, s: _Open) -> Array:
        # What is open and missing must fit in, with EOS; a new bracket takes two more tokens. The
        # outermost bracket is always allowed: without room for a tree, the output is cut.
        fits = (s.room >= s.depth + s.words + 3) & (s.depth < _DEPTH)
        may_open = (s.words > 0) & (fits | (s.depth == 0))
        may_close = (s.depth > 0) & ~s.empty & ((s.depth > 1) | (s.words == 0))
        closing = self.closes & (self.label == s.labels[s.depth - 1])
        word = (s.depth > 0) & (s.words > 0) & self.word
        return may_open & self.opens | word | may_close & closing


def constrain(step: Step, rule: Any, V: int) -> Step:
    """Returns a step whose state is the pair of the model's and the rule's.

    The probability of all tokens that the rule excludes goes to PAD, which no search chooses. So a
    hypothesis keeps its probability, and the search finds the likeliest output that is allowed.
    """

    def constrained(memory: Any, states: Any, tokens: Array, t: Array) -> tuple[Array, Any]:
        # A dead hypothesis, of probability 0, can have a token beyond the vocabulary.
        tokens = jnp.minimum(tokens, V - 1)
        state, held = states
        held = jax.vmap(rule.advance)(held, tokens)
        logits, state = step(memory, state, tokens, t)
        logits, allowed = logits.astype(jnp.float32), jax.vmap(rule.allowed)(held)
        allowed = allowed.at[:, EOS].set(~allowed.any(axis=1))
        excluded = logsumexp(logits, axis=1, where=~allowed)
        return jnp.where(allowed, logits, -jnp.inf).at[:, PAD].set(excluded), (state, held)

    return constrained
