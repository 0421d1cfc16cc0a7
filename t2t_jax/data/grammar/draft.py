"""What a sentence is made of while it is drawn: words with alignment keys, phrases, the draft."""

import itertools
import random
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.inflection import Noun

T = TypeVar("T")


class Reject(Exception):
    """The draws so far lead to no sentence of the corpus; draw again."""


class Word:
    __slots__ = ("key", "text")

    def __init__(self, text: str, key: int) -> None:
        self.text, self.key = text, key


COMMA = Word(",", -1)  # joins the word before it; doubled or final ones are dropped


class Pool(Generic[T]):
    """Items drawn with Zipf weights 1 / (rank + 3)."""

    def __init__(self, items: Iterable[T]) -> None:
        self.items = tuple(items)
        self.edges = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(self.items))))

    def draw(self, rng: random.Random) -> T:
        if not self.items:
            raise Reject
        return self.items[bisect(self.edges, rng.random() * self.edges[-1])]


def below(r: float, alternatives: Sequence[tuple[float, T]]) -> T:
    """The first alternative whose cumulative probability is above r, a draw from [0, 1)."""
    return next(value for bound, value in alternatives if r < bound)


@dataclass(slots=True, eq=False)
class Phrase:
    """A noun phrase, pronoun, name or relative pronoun in its place in a clause.

    `word` is the German word that agrees, `head` the noun that it stands for; `person` is an
    index into verb forms; `be` 0 for I, 1 for he, 2 for you and they. `en` includes the English
    relative clause, `tail` is the German one, which may move behind the verbs.
    """

    en: list[Word]
    de: list[Word]
    word: Word
    head: Word
    person: int = forms.ER
    be: int = 1
    noun: Noun | None = None
    plural: bool = False
    kind: str = "noun"  # noun, name, pronoun, relative
    owner: tuple[str, str] | None = None  # possessives that refer to it: his/sein
    indefinite: bool = False
    tail: list[Word] = field(default_factory=list)
    closed: bool = False  # takes no relative clause
    adjectives: tuple[str, ...] = ()


@dataclass(slots=True)
class Draft:
    """A sentence in the making: its random draws, its dependencies and who was mentioned."""

    rng: random.Random
    rich: float = 1.0  # multiplies the chance of everything optional,
    nest: float = 1.0  # this that of relative clauses
    keys: int = 0
    dependencies: list[tuple[str, Word, Word]] = field(default_factory=list)
    mentions: list[Phrase] = field(default_factory=list)
    depth: int = 0
    limit: int = 2  # of the depth
    verbs: set[str] = field(default_factory=set)  # used so far; none comes twice
    adjectives: set[str] = field(default_factory=set)
    timed: bool = False  # has its time adverbial

    def key(self) -> int:
        self.keys += 1
        return self.keys

    def chance(self, p: float) -> bool:
        return self.rng.random() < p * self.rich

    def pair(self, english: str, german: str) -> tuple[list[Word], list[Word]]:
        """Both sides of a fixed expression, aligned as a whole."""
        key = self.key()
        return (
            [Word(text, key) for text in english.split()],
            [Word(text, key) for text in german.split()],
        )

    def depend(self, kind: str, word: Word, head: Word) -> None:
        self.dependencies.append((kind, word, head))
