"""Noun phrases of the grammar corpus, built in both languages at once.

A phrase is a list of `Word`s; words of the two languages that carry the same key are aligned.
"""

from typing import NamedTuple

from t2t_jax.data.grammar import choice
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Pool, Word
from t2t_jax.data.grammar.inflection import Noun

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
        return "she" if phrase.head.text in choice.WOMEN else "he"
    noun = phrase.noun
    if noun is None or phrase.kind != "noun":
        return None
    if "person" not in noun.classes:
        return f"it-{noun.gender}"
    return {"m": "he", "f": "she", "n": None}[noun.gender]


def name(d: Draft) -> Phrase:
    text, key = choice.NAMES.draw(d.rng), d.key()
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
    if not (d.chance(0.25) and choice.adjectives(noun).items):
        return [], [], (), None
    adjective, key = choice.adjectives(noun).draw(d.rng), d.key()
    d.adjectives.add(adjective.english)
    word = Word(adjective.stem + endings[number], key)
    cued = word if adjective.english in choice.CUED_ADJECTIVES else None
    return [Word(adjective.english, key)], [word], (adjective.english,), cued


def _possessor(d: Draft, noun: Noun) -> tuple[list[Word], list[Word], bool]:
    """The baker's, des Bäckers; or Anna's, Annas, which precedes its noun in German too."""
    if d.rng.random() < 0.4:
        phrase = name(d)
        phrase.en[-1].text += "'s"
        phrase.de[-1].text += "s"
        return phrase.en, phrase.de, True
    phrase = noun_phrase(d, choice.PERSONS.draw(d.rng), "g", determiner=THE)
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
