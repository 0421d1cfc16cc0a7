"""A sentence while it is drawn: words with alignment keys, phrases, and the draft."""

import itertools
import math
import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.grades import NORMAL, Grade
from t2t_jax.data.grammar.inflection import Noun

T = TypeVar("T")


class Reject(Exception):
    """The words drawn so far cannot become a sentence of the corpus; it is to be drawn again."""


@dataclass(slots=True, eq=False)
class Word:
    """A word; words of the two languages with equal keys are aligned."""

    text: str
    key: int
    opens: tuple[str, ...] = ()  # labels of constituents that begin with it, the outermost first
    closes: int = 0  # number of those that end with it


Sides = tuple[list[Word], list[Word]]  # an expression in English and in German


def mark(label: str, words: list[Word]) -> list[Word]:
    """Makes a constituent of words, around the constituents in them; returns the words."""
    words[0].opens = (label, *words[0].opens)
    words[-1].closes += 1
    return words


COMMA = Word(",", -1)  # attached to the word before it; a repeated or final comma is dropped


@cache
def _edges(size: int, flatness: float) -> tuple[float, ...]:
    """The cumulative Zipf weights of the ranks below `size`."""
    return tuple(itertools.accumulate(1 / (rank + flatness) for rank in range(size)))


def below(r: float, alternatives: Sequence[tuple[float, T]]) -> T:
    """The first alternative whose cumulative probability is above r, a draw from [0, 1)."""
    return next(value for bound, value in alternatives if r < bound)


@dataclass(slots=True, eq=False)
class Phrase:
    """A noun phrase, pronoun, name or relative pronoun of a clause."""

    en: list[Word]  # with a relative clause
    de: list[Word]  # without a relative clause
    word: Word  # the German word that verbs agree with
    head: Word  # the German noun that `word` refers to
    person: int = forms.ER  # index into the German forms of a verb
    noun: Noun | None = None
    kind: str = "noun"  # noun, name, pronoun, relative or fixed
    owner: tuple[str, str] | None = None  # the possessives that refer to the phrase: his, sein
    indefinite: bool = False
    tail: list[Word] = field(default_factory=list)  # the German relative clause, which may move
    closed: bool = False  # whether it takes no relative clause
    adjective: str = ""  # in English

    @property
    def be(self) -> int:
        """Index into the English forms of be: 0 for I, 1 for he, 2 for you and they."""
        return {0: 0, forms.ER: 1}.get(self.person, 2)

    @property
    def plural(self) -> bool:
        return self.person > forms.ER

    def __post_init__(self) -> None:
        mark("WHNP" if self.kind == "relative" else "NP", self.en)


@dataclass(slots=True)
class Draft:
    rng: random.Random
    grade: Grade = NORMAL
    keys: int = 0  # number of alignment keys in use
    dependencies: list[tuple[str, Word, Word]] = field(default_factory=list)  # kind, word, head
    mentions: list[Phrase] = field(default_factory=list)  # the noun phrases and names so far
    depth: int = 0  # of the clauses so far
    verbs: set[str] = field(default_factory=set)  # English verbs in use, none of which is repeated
    adjectives: set[str] = field(default_factory=set)  # English adjectives in use
    timed: bool = False  # whether it has a time adverbial

    def key(self) -> int:
        """A new alignment key."""
        self.keys += 1
        return self.keys

    def draw(self, items: Sequence[T]) -> T:
        """Draws one of the items, the most frequent first, that the grade uses."""
        if not items:
            raise Reject
        edges = _edges(math.ceil(self.grade.vocabulary * len(items)), self.grade.flatness)
        return items[bisect(edges, self.rng.random() * edges[-1])]

    def chance(self, p: float) -> bool:
        """Draws whether something optional of probability p occurs."""
        return self.rng.random() < p * self.grade.rich

    def pair(self, english: str, german: str) -> Sides:
        """Both sides of a fixed expression, aligned as a whole."""
        key = self.key()
        en, de = ([Word(text, key) for text in side.split()] for side in (english, german))
        return en, de

    def depend(self, kind: str, word: Word, head: Word) -> None:
        """Records a dependency of a German word."""
        self.dependencies.append((kind, word, head))
