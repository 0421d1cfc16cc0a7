"""Contrastive sets in the manner of LingEval97 (Sennrich 2017, "How Grammatical is Character-level
Neural Machine Translation?"): a translation of the grammar, and the same with one error.

A model is right if it finds the translation likelier than its contrastive version.
"""

import math
import random
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.grades import NORMAL, Grade
from t2t_jax.data.grammar.sentences import Dependency, Pair, draw, words

DISTANCES = (1, 2), (3, 4), (5, 6), (7, 9), (10, math.inf)  # of the two words that must agree
TYPES = {  # named as in LingEval97 where it has them
    "subj_verb_agreement": "the finite verb has the other number",
    "subj_adequacy": "the same where the subject is sie, whose number the source tells",
    "auxiliary": "haben for sein, or sein for haben",
    "verb_particle": "another separable prefix, with which the verb does not exist",
    "pronoun_gender": "a pronoun for `it` has another gender than its antecedent",
    "np_agreement": "the definite article of a singular noun has another gender",
    "polarity_particle_nicht_del": "nicht is left out",
    "polarity_particle_kein_del": "ein for kein",
    "polarity_particle_kein_ins": "kein for ein",
    "omission_adjective": "an attributive adjective is left out",
}
_DRAWS = 1000  # for each item of a cell; cells of rare sentences stay smaller


def contrastive_set(
    seed: int = 0, grade: Grade = NORMAL, count: int = 100, known: Container[str] = ()
) -> list[dict[str, Any]]:
    """Returns a set in the format of LingEval97: source, reference, and errors.

    Each type has `count` errors, or `count` at each of `DISTANCES`, unless such sentences are rare.
    A sentence has one error. The sentences are as long and as deep as in training, and none has
    one of the sources `known`, such as the training set's.
    """
    rng = random.Random(f"{seed} contrastive")
    cells, seen, items = Counter[tuple[str, int]](), set[str](), list[dict[str, Any]]()
    for _ in range(_DRAWS * count):
        pair = draw(rng, grade)
        errors = list(_errors(pair, rng))
        rng.shuffle(errors)
        longest = max(pair.source.count(" "), pair.target.count(" ")) + 1
        open_ = [e for e in errors if cells[_cell(e)] < count]
        if pair.source in seen or pair.source in known or longest > grade.max_words or not open_:
            continue
        seen.add(pair.source)
        error = min(open_, key=lambda e: cells[_cell(e)])
        cells[_cell(error)] += 1
        items.append({"source": pair.source, "reference": pair.target, "errors": [error]})
        if len(cells) == _CELLS and min(cells.values()) == count:
            break
    return items


def _cell(error: Mapping[str, Any]) -> tuple[str, int]:
    """The type of an error, and the index of its distance, or -1."""
    kind, distance = error["type"], error.get("distance", 0)
    if kind not in _DISTANT:
        return kind, -1
    return kind, next(i for i, (_, last) in enumerate(DISTANCES) if distance <= last)


_DISTANT = {"subj_verb_agreement", "auxiliary", "verb_particle", "pronoun_gender"}
_CELLS = len(_DISTANT) * len(DISTANCES) + len(TYPES) - len(_DISTANT)


# The type of an error, the place of the wrong word, what can stand there, and the distance in words
# to the word that it depends on, or 0.
_Place = tuple[str, int, set[str], int]


def _errors(pair: Pair, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Every error that a translation can be given, in the format of LingEval97."""
    texts = words(pair.target)
    bound = {d.position for d in pair.dependencies if d.kind in ("relative", "prefix")}
    free = [i for i in range(len(texts)) if i not in bound]
    errors = [x for d in pair.dependencies for x in _dependent(pair, d, texts)]
    for kind, i, others, distance in errors + [x for j in free for x in _local(texts, j)]:
        if others:
            text = _replaced(pair.target, i, rng.choice(sorted(others)))
            known = {"distance": distance} if distance else {}
            yield {"type": kind, "contrastive": text, **known}


def _dependent(pair: Pair, d: Dependency, texts: Sequence[str]) -> Iterator[_Place]:
    """Errors in a dependency."""
    distance = abs(d.position - d.head)
    word, head = texts[d.position], texts[d.head]
    if d.kind == "subject":
        kind = "subj_adequacy" if head.lower() == "sie" else "subj_verb_agreement"
        other = _NUMBERS.get(word.lower(), set())
        unique = len(other) == 1 and word.lower() not in other
        yield kind, d.position, other if unique else set(), distance
    elif d.kind == "prefix":
        # Prefixes with which no verb of this finite form exists.
        others = _PREFIXES - _PREFIXES_OF.get(head.lower(), _PREFIXES)
        yield "verb_particle", d.position, others, distance
    elif d.kind == "auxiliary" and word != "worden":
        yield "auxiliary", d.head, _AUXILIARIES.get(head.lower(), set()), distance
    elif d.kind == "antecedent":
        sources = words(pair.source)
        if any(sources[i].lower() == "it" for i, j in pair.alignment if j == d.position):
            yield "pronoun_gender", d.position, _GENDERS.get(word.lower(), set()), distance


def _local(texts: Sequence[str], i: int) -> Iterator[_Place]:
    """Errors in a word or a noun phrase."""
    word = texts[i].lower()
    noun = next((j for j in (i + 1, i + 2) if j < len(texts) and texts[j] in _NOUNS), None)
    if noun == i + 2 and texts[i + 1] not in _ADJECTIVES:
        noun = None
    if word == "nicht":
        yield "polarity_particle_nicht_del", i, {""}, 0
    if noun is None:
        return
    if word in _ARTICLES:
        yield "np_agreement", i, _other_articles(word, texts[noun]), noun - i
    keys = [key for key in _NOUNS[texts[noun]] if forms.EIN[key] == word.removeprefix("kein")]
    singular = keys and all(gender != "p" for gender, _ in keys) and texts[noun] not in _MASSES
    if word in _NO and singular:
        yield "polarity_particle_kein_del", i, {word[1:]}, 0
    if "k" + word in _NO:
        yield "polarity_particle_kein_ins", i, {"k" + word}, 0
    if i and texts[i] in _ADJECTIVES and noun == i + 1:
        yield "omission_adjective", i, {""}, 0


def _replaced(text: str, i: int, other: str) -> str:
    """A text with another word at i, or none; punctuation and capitals stay as they were."""
    tokens = text.split()
    word = words(tokens[i])[0]
    mark = tokens[i].removeprefix(word)
    if other:
        tokens[i] = (other[0].upper() + other[1:] if word[0].isupper() else other) + mark
        return " ".join(tokens)
    del tokens[i]
    if mark and not tokens[i - 1].endswith(mark):
        tokens[i - 1] += mark
    return " ".join(tokens)


def _other_articles(article: str, noun: str) -> set[str]:
    """Definite articles of another gender in the same case that no form of the noun can have."""
    keys = [key for key in _NOUNS[noun] if forms.DER[key] == article]
    if not keys or any(gender == "p" for gender, _ in keys):
        return set()
    others = {forms.DER[g, case] for gender, case in keys for g in "mfn" if g != gender}
    return others - {forms.DER[key] for key in _NOUNS[noun]}


def _by_form(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Each first word with all of its second words, in lower case."""
    found: dict[str, set[str]] = {}
    for form, other in pairs:
        found.setdefault(form.lower(), set()).add(other)
    return found


def _paradigms() -> Iterator[Sequence[str]]:
    """The six forms of every tense of every verb, also joined with a separable prefix."""
    yield from (*forms.SEIN, *forms.HABEN, *forms.WERDEN)
    for present, past in forms.MODALS.values():
        yield from ([present.split()] + [forms.preterite(past)] * bool(past))
    for verb in _VERBS:
        for tense in (verb.present, verb.past):
            yield tense
            yield [verb.prefix + form for form in tense]


_VERBS = [*forms.VERBS, *(verb for verbs in forms.GOVERNING.values() for verb in verbs)]
_ENDS = ((forms.ER, forms.SIE), (forms.SIE, forms.ER))
_NUMBERS = _by_form((tense[i], tense[j]) for tense in _paradigms() for i, j in _ENDS)
_HABEN, _SEIN = ([*present, *past] for present, past in (forms.HABEN, forms.SEIN))
_AUXILIARIES = _by_form(zip(_HABEN + _SEIN, _SEIN + _HABEN, strict=True))
_PREFIXES = {verb.prefix for verb in _VERBS} - {""}
_PREFIXES_OF = {
    form: {other.prefix for other in _VERBS if other.base == verb.base}
    for verb in _VERBS
    for form in (*verb.present, *verb.past)
}
_GENDERS = {"er": {"sie", "es"}, "ihn": {"sie", "es"}, "es": {"sie"}, "sie": {"es"},
            "ihm": {"ihr"}, "ihr": {"ihm"}}  # fmt: skip
_NOUNS: dict[str, set[tuple[str, str]]] = {}
for _noun in forms.NOUNS:
    for (_plural, _case), _text in _noun.german.items():
        if _noun.countable or not _plural:
            _NOUNS.setdefault(_text, set()).add(("p" if _plural else _noun.gender, _case))
_MASSES = {text for noun in forms.NOUNS if not noun.countable for text in noun.german.values()}
_ADJECTIVES = {a.stem + e for a in forms.ADJECTIVES for e in ("e", "er", "en", "es", "em")}
_ARTICLES = set(forms.DER.values())
_NO = {"kein" + ending for ending in forms.EIN.values()}
