"""The lists that words are drawn from, by what they are combined with; ambiguous words."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.inflection import ADJECTIVES, NOUNS, VERBS, Adjective, Noun, Verb


def _twice(items: Iterable[tuple[str, str]]) -> set[str]:
    """The ambiguous English words: those with several translations."""
    translations = Counter(english for english, _ in set(items))
    return {english for english, count in translations.items() if count > 1}


CUED_NOUNS = _twice((n.english[0], n.german[False, "n"]) for n in NOUNS if "she" not in n.classes)
CUED_ADJECTIVES = _twice((a.english, a.german) for a in ADJECTIVES)
CUED_VERBS = _twice([(f"{v.english[0]} {v.particle}", v.infinitive) for v in VERBS])
ORDINARY = [n for n in NOUNS if "she" not in n.classes]


@cache
def nouns(classes: frozenset[str]) -> list[Noun]:
    """The nouns that a slot admits; a noun of several classes has the best of its ranks in them."""
    lists = [[n for n in ORDINARY if name in n.classes] for name in classes]

    def rank(noun: Noun) -> int:
        return min(members.index(noun) for members in lists if noun in members)

    return sorted((n for n in ORDINARY if n.classes & classes), key=rank)


@cache
def adjectives(noun: Noun) -> list[Adjective]:
    return [a for a in ADJECTIVES if a.classes & noun.classes and not a.excepted & noun.classes]


@cache
def subject_verbs(noun: Noun) -> list[Verb]:
    return [v for v in VERBS if v.subjects & noun.classes]


@cache
def object_verbs(noun: Noun, preposition: bool) -> list[tuple[Verb, int]]:
    """Verbs and the slots that admit a noun; `preposition` allows a German one in the slot."""
    return [
        (verb, i)
        for verb in VERBS
        for i, slot in enumerate(verb.slots)
        if slot.classes & noun.classes and (preposition or not slot.german)
    ]


# Subjects of `is old`: no ambiguous nouns, as no other word would decide their translation.
COPULA_NOUNS = [
    n
    for n in ORDINARY
    if "weather" not in n.classes and n.english[0] not in CUED_NOUNS and adjectives(n)
]
PERSON_VERBS = [v for v in VERBS if "person" in v.subjects]
PERSONS = nouns(frozenset({"person"}))
SHE = [n for n in NOUNS if "she" in n.classes]
PLACES = nouns(frozenset({"place", "area"}))
WEATHER = nouns(frozenset({"weather"}))
WOMEN = frozenset(forms.NAMES[::2])
