"""Noun phrases of the grammar corpus, built in both languages at once.

A phrase is a list of `Word`s; words of the two languages that carry the same key are aligned.
"""

from typing import NamedTuple

from t2t_jax.data.grammar import choice
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Sides, Word, below, mark
from t2t_jax.data.grammar.inflection import Noun

HIS, HER, THEIR = ("his", "sein"), ("her", "ihr"), ("their", "ihr")
# Person of a German verb; English subject and object; German n, a, d; possessives.
PRONOUNS = {
    "I": (0, "I me", "ich mich mir", ("my", "mein")),
    "he": (2, "he him", "er ihn ihm", HIS),
    "she": (2, "she her", "sie sie ihr", HER),
    "it-m": (2, "it it", "er ihn ihm", ("its", "sein")),
    "it-f": (2, "it it", "sie sie ihr", ("its", "ihr")),
    "it-n": (2, "it it", "es es ihm", ("its", "sein")),
    "we": (3, "we us", "wir uns uns", ("our", "unser")),
    "they": (5, "they them", "sie sie ihnen", THEIR),
    "du": (1, "you you", "du dich dir", ("your", "dein")),
    "ihr": (4, "you you", "ihr euch euch", ("your", "euer")),
    "Sie": (5, "you you", "Sie Sie Ihnen", ("your", "Ihr")),
}
REFLEXIVE = ["mich", "dich", "sich", "uns", "euch", "sich"]


def pronoun(d: Draft, name: str, case: str, antecedent: Phrase | None = None) -> Phrase:
    """A personal pronoun; `name` is a row of PRONOUNS."""
    person, en, de, owner = PRONOUNS[name]
    key = d.key()
    word = Word(de.split()["nad".index(case)], key)
    english = [Word(en.split()[case != "n"], key)]
    phrase = Phrase(english, [word], word, word, person, kind="pronoun", owner=owner)
    if antecedent:
        d.depend("antecedent", word, antecedent.head)
        phrase.head, phrase.noun = antecedent.head, antecedent.noun
        phrase.adjective = antecedent.adjective
    return phrase


def refer(phrase: Phrase) -> str | None:
    """The row of PRONOUNS that refers to a noun phrase; None where usage varies."""
    if phrase.plural:
        return "they"
    if phrase.kind == "name":
        return "she" if phrase.head.text in choice.WOMEN else "he"
    noun = phrase.noun
    if noun is None or phrase.kind != "noun":
        return None
    if "person" not in noun.classes:
        return f"it-{noun.gender}"
    return {"m": "he", "f": "she", "n": None}[noun.gender]


def name(d: Draft) -> Phrase:
    """A person's first name."""
    text, key = d.draw(forms.NAMES), d.key()
    word = Word(text, key)
    owner = HER if text in choice.WOMEN else HIS
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
_MANY = [
    Determiner("two", "zwei", forms.STRONG, True),
    Determiner("these", "dies", forms.WEAK, True),
    Determiner("many", "viel", forms.STRONG, True),
    Determiner("three", "drei", forms.STRONG, True),
    Determiner("all", "all", forms.WEAK, True),
]
_EVERY = Determiner("every", "jed", forms.WEAK)
_MINE, _OUR = ("my", "mein"), ("our", "unser")


# Probabilities. Those of alternatives are cumulative: `draft.below` looks a draw from [0, 1) up.
_OWNED_KIN, _OWNED = 0.6, 0.1
_OWNED_BY_SUBJECT, _MINE_NOT_OUR, _OWNED_PLURAL = 0.8, 0.7, 0.2
_THE_MASS = 0.6  # rather than no article
_DETERMINERS: tuple[tuple[float, Determiner | list[Determiner]], ...] = (
    (0.5, THE),
    (0.7, A),
    (0.83, THE_PLURAL),
    (0.88, THIS),
    (0.92, _MANY),
    (0.93, _EVERY),
    (1.0, BARE),
)
_PLACE_DETERMINERS = (0.75, THE), (0.9, A), (1.0, THIS)
_ADJECTIVE, _POSSESSOR, _NAMED_POSSESSOR = 0.25, 0.15, 0.4
_POSSESSED = {"thing", "ride", "kin", "pet", "room", "text"}  # classes that may have a possessor


def draw_determiner(d: Draft, noun: Noun, owner: tuple[str, str] | None, bare: bool) -> Determiner:
    """Draws a determiner; `bare` allows a plural without an article.

    The possessive `owner` refers to the clause's subject.
    """
    rng = d.rng
    r = rng.random()
    owned = "unowned" not in noun.classes
    if owned and (("kin" in noun.classes and r < _OWNED_KIN) or r < _OWNED):
        if not owner or rng.random() >= _OWNED_BY_SUBJECT:
            owner = _MINE if rng.random() < _MINE_NOT_OUR else _OUR
        can_be_many = noun.countable and "one" not in noun.classes
        return Determiner(*owner, forms.MIXED, can_be_many and rng.random() < _OWNED_PLURAL)
    if not noun.countable:
        return MASS if r > _THE_MASS else THE
    drawn = below(r, _DETERMINERS)
    if isinstance(drawn, list):
        return d.draw(drawn)
    if drawn is BARE and not (bare and "person" not in noun.classes):
        return THE
    return drawn


def here(d: Draft) -> Determiner:
    """Draws a determiner for a place."""
    return below(d.rng.random(), _PLACE_DETERMINERS)


def _possessor(d: Draft) -> tuple[Sides, bool]:
    """The baker's, des Bäckers; or Anna's, Annas, which precedes its noun in German too (True)."""
    named = d.rng.random() < _NAMED_POSSESSOR
    phrase = name(d) if named else noun_phrase(d, d.draw(choice.PERSONS), "g", determiner=THE)
    phrase.en[-1].text += "'s"
    if named:
        phrase.de[-1].text += "s"
    return (phrase.en, phrase.de), named


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
    """Determiner, adjective and noun.

    Args:
      owner, bare: as in `draw_determiner`.
      determiner: drawn if it is not given.
      negation: the key of a `not` that makes the determiner kein; 0 for none.
      simple: whether there are no adjectives and possessors.
    """
    chosen, possessor = determiner or draw_determiner(d, noun, owner, bare), None
    if negation:
        chosen = Determiner("a" if noun.countable else "", "kein", forms.MIXED)
    elif not determiner and not simple and chosen is THE and noun.classes & _POSSESSED:
        possessor = _possessor(d) if d.chance(_POSSESSOR) else None
    plural = chosen.plural
    number = ("p" if plural else noun.gender, case)
    key, noun_key = negation or d.key(), d.key()
    head = Word(noun.german[plural, case], noun_key)
    en, de = [Word(noun.english[plural], noun_key)], [head]
    described = ""
    if not simple and d.chance(_ADJECTIVE) and choice.adjectives(noun):
        adjective = d.draw(choice.adjectives(noun))
        d.adjectives.add(adjective.english)
        endings = forms.STRONG if possessor and possessor[1] else chosen.endings
        word = Word(adjective.stem + endings[number], d.key())
        if adjective.english in choice.CUED_ADJECTIVES:
            d.depend("cue", word, head)
        described = adjective.english
        en.insert(0, Word(described, word.key))
        de.insert(0, word)
    (owner_en, owner_de), precedes = possessor or (([], []), False)
    article_en, article_de = _article(chosen, number, key, en[0].text)
    en = [*(owner_en or article_en), *en]
    de = [*owner_de, *de] if precedes else [*article_de, *de, *owner_de]
    phrase = Phrase(en, de, head, head, forms.SIE if plural else forms.ER, noun)
    phrase.indefinite = chosen.english in ("a", "", "two", "three", "many")
    phrase.adjective = described
    phrase.closed = possessor is not None
    named = refer(phrase)  # where usage varies, and for things, no possessive is drawn
    phrase.owner = PRONOUNS[named][-1] if named in ("he", "she", "they") else None
    d.mentions.append(phrase)
    return phrase


def _article(chosen: Determiner, number: tuple[str, str], key: int, behind: str) -> Sides:
    """Both sides of a determiner, which stands before the English word `behind`."""
    english = "an" if chosen.english == "a" and behind[0] in "aeiou" else chosen.english
    fixed = chosen.german in ("", "zwei", "drei")
    german = chosen.german if fixed else forms.determiner(chosen.german, number)
    en, de = ([Word(text, key)] if text else [] for text in (english, german))
    return en, de


_CONTRACTIONS = {"in dem": "im", "an dem": "am", "von dem": "vom", "zu dem": "zum",
                 "zu der": "zur", "bei dem": "beim", "in das": "ins"}  # fmt: skip


def prefix(d: Draft, english: str, german: str, phrase: Phrase) -> Phrase:
    """Puts prepositions before a noun phrase, and returns it.

    A German preposition contracts with the article unless a relative clause follows.
    """
    key = d.key() if german else phrase.de[0].key  # `to him`: ihm
    if english:
        phrase.en[:0] = [Word(word, key) for word in english.split()]
        mark("PP", phrase.en)
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
