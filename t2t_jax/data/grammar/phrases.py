"""Noun phrases of the grammar corpus, built in both languages at once.

A phrase is a list of `Word`s; words of the two languages that carry the same key are aligned.
"""

import itertools
import random
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.inflection import ADJECTIVES, ADVERBS, NOUNS, VERBS, Adjective, Noun, Verb

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


def _twice(items: Iterable[tuple[str, str]]) -> set[str]:
    """The English forms that have several translations."""
    german: dict[str, set[str]] = {}
    for english, translation in items:
        german.setdefault(english, set()).add(translation)
    return {english for english, translations in german.items() if len(translations) > 1}


CUED_NOUNS = _twice((n.english[0], n.german[False, "n"]) for n in NOUNS if "she" not in n.classes)
CUED_ADJECTIVES = _twice((a.english, a.german) for a in ADJECTIVES)
CUED_VERBS = _twice([(f"{v.english[0]} {v.particle}", v.infinitive) for v in VERBS])
ORDINARY = [n for n in NOUNS if "she" not in n.classes]


@cache
def nouns(classes: frozenset[str]) -> Pool[Noun]:
    """The nouns a slot admits; in a slot for several classes each class keeps its own ranks."""
    ranked = []
    for name in classes:
        ranked += [(i, n) for i, n in enumerate(n for n in ORDINARY if name in n.classes)]
    order = {noun: i for i, noun in enumerate(NOUNS)}
    best = dict[Noun, int]()
    for rank, noun in ranked:
        best[noun] = min(rank, best.get(noun, rank))
    return Pool(sorted(best, key=lambda noun: (best[noun], order[noun])))


@cache
def adjectives(noun: Noun) -> Pool[Adjective]:
    return Pool(a for a in ADJECTIVES if a.classes & noun.classes and not a.excepted & noun.classes)


@cache
def copula_nouns() -> Pool[Noun]:
    """Subjects of `is old`: no cue follows but the adjective, so no noun that needs one."""
    return Pool(
        n
        for n in NOUNS
        if not n.classes & {"she", "weather"}
        and n.english[0] not in CUED_NOUNS
        and adjectives(n).items
    )


@cache
def subject_verbs(noun: Noun) -> Pool[Verb]:
    return Pool(v for v in VERBS if v.subjects & noun.classes)


@cache
def object_verbs(noun: Noun, preposition: bool) -> Pool[tuple[Verb, int]]:
    """Verbs with the slot that admits the noun, with or without a German preposition."""
    return Pool(
        (verb, i)
        for verb in VERBS
        for i, slot in enumerate(verb.slots)
        if slot.classes & noun.classes and (preposition or not slot.german)
    )


PERSON_VERBS = Pool(v for v in VERBS if "person" in v.subjects)
PERSONS = nouns(frozenset({"person"}))
SHE = Pool(n for n in NOUNS if "she" in n.classes)
PLACES = nouns(frozenset({"place", "area"}))
WEATHER = nouns(frozenset({"weather"}))
NAMES = Pool(forms.lexicon.NAMES.split())
WOMEN = frozenset(forms.lexicon.NAMES.split()[::2])
_OPPOSITES = [frozenset(line.split()) for line in forms.lexicon.OPPOSITES.strip().split("\n")]
TIMES = {tense: Pool(ADVERBS[f"time {tense}"]) for tense in ("past", "present", "future")}
FREQUENCY, PERFECT, MANNER = (Pool(ADVERBS[k]) for k in ("frequency", "perfect", "manner"))
VEHICLES, CITIES = Pool(ADVERBS["vehicle"]), Pool(ADVERBS["city"])

HIS, HER, THEIR = ("his", "sein"), ("her", "ihr"), ("their", "ihr")
PRONOUNS = {  # english subject, object; german n, a, d
    "I": ("I", "me", "ich", "mich", "mir"),
    "he": ("he", "him", "er", "ihn", "ihm"),
    "she": ("she", "her", "sie", "sie", "ihr"),
    "it-m": ("it", "it", "er", "ihn", "ihm"),
    "it-f": ("it", "it", "sie", "sie", "ihr"),
    "it-n": ("it", "it", "es", "es", "ihm"),
    "we": ("we", "us", "wir", "uns", "uns"),
    "they": ("they", "them", "sie", "sie", "ihnen"),
    "du": ("you", "you", "du", "dich", "dir"),
    "ihr": ("you", "you", "ihr", "euch", "euch"),
    "Sie": ("you", "you", "Sie", "Sie", "Ihnen"),
}
_PERSON = {"I": 0, "du": 1, "we": 3, "ihr": 4, "they": 5, "Sie": 5}
_OWNER = {"I": ("my", "mein"), "he": HIS, "she": HER, "we": ("our", "unser"), "they": THEIR,
          "du": ("your", "dein"), "ihr": ("your", "euer"), "Sie": ("your", "Ihr"),
          "it-m": ("its", "sein"), "it-f": ("its", "ihr"), "it-n": ("its", "sein")}  # fmt: skip
REFLEXIVE = ["mich", "dich", "sich", "uns", "euch", "sich"]


def opposed(adjective: str, others: Iterable[str]) -> bool:
    """Whether it repeats or contradicts one of the others."""
    return any(
        adjective == other or any({adjective, other} <= line for line in _OPPOSITES)
        for other in others
    )


def pronoun(d: Draft, name: str, case: str, antecedent: Phrase | None = None) -> Phrase:
    """A personal pronoun; `name` is a row of PRONOUNS."""
    row = PRONOUNS[name]
    key = d.key()
    word = Word(row[2 + "nad".index(case)], key)
    if antecedent:
        d.depend("antecedent", word, antecedent.head)
    return Phrase(
        en=[Word(row[case != "n"], key)],
        de=[word],
        word=word,
        head=antecedent.head if antecedent else word,
        person=_PERSON.get(name, forms.ER),
        be={"I": 0}.get(name, 1 + (name in _PERSON)),
        noun=antecedent.noun if antecedent else None,
        plural=name in ("we", "they", "ihr", "Sie"),
        kind="pronoun",
        adjectives=antecedent.adjectives if antecedent else (),
        owner=_OWNER[name],
    )


def refer(phrase: Phrase) -> str | None:
    """The row of PRONOUNS that takes up a noun phrase; None where careful writers differ."""
    if phrase.plural:
        return "they"
    if phrase.kind == "name":
        return "she" if phrase.head.text in WOMEN else "he"
    noun = phrase.noun
    if noun is None or phrase.kind != "noun":
        return None
    if "person" not in noun.classes:
        return f"it-{noun.gender}"
    return {"m": "he", "f": "she", "n": None}[noun.gender]


def name(d: Draft) -> Phrase:
    text, key = NAMES.draw(d.rng), d.key()
    word = Word(text, key)
    owner = HER if text in WOMEN else HIS
    phrase = Phrase([Word(text, key)], [word], word, word, kind="name", owner=owner)
    d.mentions.append(phrase)
    return phrase


class Determiner(NamedTuple):
    english: str
    german: str  # stem
    endings: dict[tuple[str, str], str]  # of the adjective behind it
    plural: bool = False


THE, THE_PLURAL = Determiner("the", "der", forms.WEAK), Determiner("the", "der", forms.WEAK, True)
A, THIS = Determiner("a", "ein", forms.MIXED), Determiner("this", "dies", forms.WEAK)
MASS, BARE = Determiner("", "", forms.STRONG), Determiner("", "", forms.STRONG, True)
_MANY = Pool([
    Determiner("two", "zwei", forms.STRONG, True),
    Determiner("these", "dies", forms.WEAK, True),
    Determiner("many", "viel", forms.STRONG, True),
    Determiner("three", "drei", forms.STRONG, True),
    Determiner("all", "all", forms.WEAK, True),
])  # fmt: skip
_EVERY = Determiner("every", "jed", forms.WEAK)
_MINE, _OUR = ("my", "mein"), ("our", "unser")


def draw_determiner(d: Draft, noun: Noun, owner: tuple[str, str] | None, bare: bool) -> Determiner:
    """Draws a determiner; `owner` is the possessive of the clause's subject, `bare` plurals go."""
    rng = d.rng
    r = rng.random()
    owned = "unowned" not in noun.classes
    if owned and (("kin" in noun.classes and r < 0.6) or r < 0.1):
        mine = owner if owner and rng.random() < 0.8 else _MINE if rng.random() < 0.7 else _OUR
        many = noun.countable and "one" not in noun.classes and rng.random() < 0.2
        return Determiner(*mine, forms.MIXED, many)
    if not noun.countable:
        return MASS if r > 0.6 else THE
    if r > 0.93:
        return BARE if bare and "person" not in noun.classes else THE
    if r > 0.88:
        return _MANY.draw(rng) if r < 0.92 else _EVERY
    return THE if r < 0.5 else A if r < 0.7 else THE_PLURAL if r < 0.83 else THIS


def here(d: Draft) -> Determiner:
    """A determiner for a place."""
    r = d.rng.random()
    return THE if r < 0.75 else A if r < 0.9 else THIS


def _adjective(d: Draft, noun: Noun, number: tuple[str, str], endings: dict) -> tuple:
    """None or one adjective: (English words, German words, their English forms, the cued word)."""
    if not (d.chance(0.25) and adjectives(noun).items):
        return [], [], (), None
    adjective, key = adjectives(noun).draw(d.rng), d.key()
    d.adjectives.add(adjective.english)
    word = Word(adjective.stem + endings[number], key)
    cued = word if adjective.english in CUED_ADJECTIVES else None
    return [Word(adjective.english, key)], [word], (adjective.english,), cued


def _possessor(d: Draft, noun: Noun) -> tuple[list[Word], list[Word], bool]:
    """The baker's, des Bäckers; or Anna's, Annas, which precedes its noun in German too."""
    if d.rng.random() < 0.4:
        phrase = name(d)
        phrase.en[-1].text += "'s"
        phrase.de[-1].text += "s"
        return phrase.en, phrase.de, True
    phrase = noun_phrase(d, PERSONS.draw(d.rng), "g", determiner=THE)
    phrase.en[-1].text += "'s"
    return phrase.en, phrase.de, False


def noun_phrase(
    d: Draft,
    noun: Noun,
    case: str,
    *,
    owner: tuple[str, str] | None = None,
    determiner: Determiner | None = None,
    negation: int = 0,
    bare: bool = False,
    simple: bool = False,
) -> Phrase:
    """Determiner, adjective and noun. `negation` is the key of a `not` that makes the determiner
    kein; `simple` keeps out adjectives and possessors."""
    possessor: tuple[list[Word], list[Word], bool] | None = None
    chosen = determiner or draw_determiner(d, noun, owner, bare)
    if negation:
        chosen = Determiner("a" if noun.countable else "", "kein", forms.MIXED)
    owned = noun.classes & {"thing", "ride", "kin", "pet", "room", "text"}
    if (
        not determiner
        and not negation
        and not simple
        and chosen is THE
        and owned
        and d.chance(0.15)
    ):
        possessor = _possessor(d, noun)
    plural = chosen.plural
    number = ("p" if plural else noun.gender, case)
    key, noun_key = negation or d.key(), d.key()
    head = Word(noun.german[plural, case], noun_key)
    endings = forms.STRONG if possessor and possessor[2] else chosen.endings
    en, de, drawn, cued = ([], [], (), None) if simple else _adjective(d, noun, number, endings)
    if cued:
        d.depend("cue", cued, head)
    en.append(Word(noun.english[plural], noun_key))
    de.append(head)
    if chosen.german and not (possessor and possessor[2]):
        fixed = chosen.german in ("zwei", "drei")
        text = chosen.german if fixed else forms.determiner(chosen.german, number)
        de.insert(0, Word(text, key))
    if possessor:
        en = possessor[0] + en
        de = possessor[1] + de if possessor[2] else de + possessor[1]
    elif chosen.english:
        vowel = en[0].text[0] in "aeiou"
        en.insert(0, Word("an" if chosen.english == "a" and vowel else chosen.english, key))
    person, be = (forms.SIE, 2) if plural else (forms.ER, 1)
    phrase = Phrase(en, de, head, head, person, be, noun, plural)
    phrase.indefinite = chosen.english in ("a", "", "two", "three", "many")
    phrase.adjectives = drawn
    phrase.closed = possessor is not None
    if plural:
        phrase.owner = THEIR
    elif "person" in noun.classes and noun.gender != "n":
        phrase.owner = HER if noun.gender == "f" else HIS
    d.mentions.append(phrase)
    return phrase


_CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "zu dem": "zum",
                 "zu der": "zur", "bei dem": "beim", "in das": "ins"}  # fmt: skip


def prefix(d: Draft, english: str, german: str, phrase: Phrase) -> Phrase:
    """Puts prepositions before a noun phrase; the article contracts where nothing restricts it."""
    key = d.key() if german else phrase.de[0].key  # `to him`: ihm
    if english:
        phrase.en[:0] = [Word(word, key) for word in english.split()]
    if not german:
        return phrase
    first = phrase.de[0]
    contracted = _CONTRACTIONS.get(f"{german} {first.text}")
    if contracted and len(phrase.de) > 1 and not phrase.tail:
        for word in phrase.en:
            if word.key == key:
                word.key = first.key
        phrase.de[0] = Word(contracted, first.key)
    else:
        phrase.de.insert(0, Word(german, key))
    return phrase
