"""Sentences of the grammar corpus: their constructions, and pairs with annotations."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from t2t_jax.data.grammar import choice, clauses, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.clauses import clause, copula
from t2t_jax.data.grammar.draft import COMMA, Draft, Phrase, Reject, Sides, Word, below, mark
from t2t_jax.data.grammar.grades import NORMAL, Grade
from t2t_jax.data.grammar.plans import ClauseSpec
from t2t_jax.data.grammar.verbs import Clause, english, last, second


class Dependency(NamedTuple):
    """The target word at `position` depends on the target word at `head` (indices into `words`).

    The kinds are: subject (a finite verb and the word that it agrees with), prefix (a separable
    prefix and its verb), auxiliary (a participle or infinitive and its finite verb), relative (a
    relative pronoun and its noun), antecedent (a pronoun and its noun), conjunction (a final verb
    and the conjunction that requires it), cue (an ambiguous word and the word that decides its
    translation).
    """

    kind: str
    position: int
    head: int


class Pair(NamedTuple):
    """A sentence and its translation, with gold annotations over the `words` of both sides."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # (source word, target word), sorted
    dependencies: tuple[Dependency, ...]
    dependency: int  # the longest |position - head|, in target words; 0 if there is none
    depth: int  # how deeply clauses are nested; a main clause alone has 0
    tree: str = ""  # of the source, as `trees.write` writes it; punctuation marks are words


def words(text: str) -> list[str]:
    """The words of a sentence, without punctuation; annotations are indices into them."""
    return [word.strip(",.?!") for word in text.split()]


def _text(phrase: list[Word], end: str) -> tuple[str, dict[Word, int]]:
    """The text of words and a final mark, and the position of every word."""
    texts, places = list[str](), dict[Word, int]()
    for word in phrase:
        if word is COMMA:
            if not texts[-1].endswith(","):
                texts[-1] += ","
            continue
        places[word] = len(texts)
        texts.append(word.text)
    texts[-1] = texts[-1].removesuffix(",") + end
    texts[0] = texts[0][0].upper() + texts[0][1:]
    return " ".join(texts), places


def _tree(phrase: list[Word], end: str) -> str:
    """The tree of a sentence as text; words have no parts of speech, but all have the label XX."""
    parts = ["(SQ" if end == "?" else "(S"]
    for i, word in enumerate(phrase):
        if word is COMMA:
            continue
        if i and phrase[i - 1] is COMMA:
            parts.append("(, ,)")
        text = word.text if i else word.text[0].upper() + word.text[1:]
        parts += [f"({label}" for label in word.opens]
        parts.append(f"(XX {text}" + ")" * (1 + word.closes))
    return " ".join([*parts, f"(. {end}))"])


def _pair(d: Draft, en: list[Word], de: list[Word], end: str) -> Pair:
    source, sources = _text(en, end)
    target, places = _text(de, end)
    aligned = ((i, j) for x, i in sources.items() for y, j in places.items() if x.key == y.key)
    dependencies = tuple(
        Dependency(kind, places[word], places[head])
        for kind, word, head in d.dependencies
        if word in places and head in places
    )
    longest = max((abs(x.position - x.head) for x in dependencies), default=0)
    alignment = tuple(sorted(aligned))
    return Pair(source, target, alignment, dependencies, longest, d.depth, _tree(en, end))


_PLACED = [v for v in forms.VERBS if "p" in v.flags and "person" in v.subjects]
_EVENTS = [v for v in choice.PERSON_VERBS if not v.flags & {"s", "u"}]

Sentence = tuple[list[Word], list[Word], str]  # both sides, and the final mark


# Probabilities. Those of alternatives are cumulative: `draft.below` looks a draw from [0, 1) up.
_PAST_REPORT, _PAST_QUESTION, _PAST, _PAST_COORDINATION = 0.35, 0.4, 0.45, 0.5
_COPULAR_STATEMENT, _COPULAR_SUBORDINATE, _SUBORDINATE_FIRST = 0.12, 0.2, 0.45
_PRONOUN_IS_SUBJECT = {"person": 0.7, "other": 0.4}
_PRONOUN_IS_COPULAR = {"person": 0.4, "other": 1.0}  # where it is the subject
_REFERS_IN_JOINED, _REFERS_IN_REPORT, _REFERS_IN_COORDINATION = 0.5, 0.4, 0.75
_CONJUNCTION_KINDS = (0.5, "any"), (0.68, "action"), (0.76, "earlier"), (1.0, "same time")
_THAT, _AND = 0.75, 0.65  # rather than whether, but
_PURPOSES = (0.55, "tries to"), (0.8, "in order to"), (1.0, "without")
_PURPOSE_OPENERS = {"in order to": ("in order", "um"), "without": ("without", "ohne")}
_SHE_RELATIVE, _SHE_ACTS = 0.4, 0.6
_QUESTIONS = (
    (0.5, "address"), (0.62, "why"), (0.68, "when"), (0.74, "where"), (1.0, "whether")
)  # fmt: skip
_WHY_ADDRESS, _PLAIN_ADDRESS = 0.3, 0.5


def _subordinate(d: Draft, c: Clause, english_word: str, german_word: str) -> Sides:
    """Both sides of a subordinate clause behind its conjunction."""
    en, de = d.pair(english_word, german_word)
    d.depend("conjunction", c.finite, de[0])
    return mark("SBAR", en + mark("S", english(c))), de + last(c)


def _clause(
    d: Draft, spec: ClauseSpec, refers: bool, copular: bool = True, copulas: float = 0
) -> Clause:
    """A clause; `refers` asks for a pronoun (see `_with_pronoun`).

    `copulas` is the share of copulas among clauses without one.
    """
    c = _with_pronoun(d, spec, copular) if refers else None
    if c is None and copulas and d.rng.random() < copulas:
        c = copula(d, spec.past, None, spec.level)
    return c or clause(d, spec)


def _statement(d: Draft) -> Sentence:
    past = d.rng.random() < _PAST
    if d.rng.random() < _COPULAR_STATEMENT:
        c = copula(d, past, None, 0)
    else:
        c = clause(d, ClauseSpec(past, 0, top=True))
    return english(c), second(c), "."


def _antecedent(d: Draft) -> Phrase | None:
    """A person or thing mentioned so far that a pronoun refers to without ambiguity, if any."""
    rivals: dict[str, list[Phrase]] = {}
    for phrase in d.mentions:
        noun = phrase.noun
        human = phrase.kind == "name" or (noun and "person" in noun.classes)
        kind = "they" if phrase.plural else "person" if human else "it"
        rivals.setdefault(kind, []).append(phrase)
    clear = [group[0] for group in rivals.values() if len(group) == 1 and phrases.refer(group[0])]
    return d.rng.choice(clear) if clear else None


def _with_pronoun(d: Draft, spec: ClauseSpec, copular: bool = True) -> Clause | None:
    """A clause (with `copular`, perhaps a copula) with a pronoun for an antecedent, if any."""
    antecedent = _antecedent(d)
    if antecedent is None:
        return None
    name, noun = phrases.refer(antecedent), antecedent.noun
    assert name
    human = noun is None or "person" in noun.classes
    kind = "person" if human else "other"
    cued = noun is not None and noun.english[0] in choice.CUED_NOUNS
    if d.rng.random() < _PRONOUN_IS_SUBJECT[kind]:
        subject = phrases.pronoun(d, name, "n", antecedent)
        if copular and noun and not cued and d.rng.random() < _PRONOUN_IS_COPULAR[kind]:
            return copula(d, spec.past, subject, spec.level)
        return clause(d, spec, subject=subject)
    if noun is None:
        return None
    verb, i = d.draw(choice.object_verbs(noun, preposition=human))
    pronoun = phrases.pronoun(d, name, verb.slots[i].case, antecedent)
    return clause(d, spec, verb=verb, complements={i: pronoun})


def _joined(d: Draft) -> Sentence:
    """A main and a subordinate clause, in either order."""
    past = d.rng.random() < _PAST
    kind = below(d.rng.random(), _CONJUNCTION_KINDS)
    now = "past" if past else "present"
    conjunction = d.draw(forms.CONJUNCTIONS[now if kind == "same time" else kind])
    event = kind in ("action", "earlier")
    tense = "" if kind == "any" else now
    if kind == "earlier":
        tense = "pluperfect" if past else "perfect"
    main = ClauseSpec(past, 0, event=event)
    subordinate = ClauseSpec(past, 1, tense=tense, event=event)
    copulas = 0 if event else _COPULAR_SUBORDINATE
    refers = d.rng.random() < _REFERS_IN_JOINED * d.grade.refer
    if d.rng.random() < _SUBORDINATE_FIRST:
        c = _clause(d, subordinate, False, copulas=copulas)
        en, de = _subordinate(d, c, *conjunction)
        m = _clause(d, main, refers, copular=False)
        return [*en, COMMA, *english(m)], second(m, [*de, COMMA]), "."
    m = clause(d, replace(main, top=not event))
    en, de = english(m), second(m)
    c = _clause(d, subordinate, refers, not event, copulas)
    sub_en, sub_de = _subordinate(d, c, *conjunction)
    comma = [COMMA] if conjunction[0] in ("although", "while") else []
    return [*en, *comma, *sub_en], [*de, COMMA, *sub_de], "."


def _matrix(d: Draft, kind: str, past: bool) -> Clause:
    """A main clause that governs another: says, tries."""
    verb = d.draw(forms.GOVERNING[kind])
    subject = clauses.subject_phrase(d, None, past, 0)
    spec = ClauseSpec(past, 0, tense="past" if past else "present", plain=True)
    return clause(d, spec, subject=subject, verb=verb)


def _report(d: Draft) -> Sentence:
    """Says that, asks whether."""
    past = d.rng.random() < _PAST_REPORT
    kind = "that" if d.rng.random() < _THAT else "whether"
    m = _matrix(d, kind, past)
    refers = d.rng.random() < _REFERS_IN_REPORT * d.grade.refer
    c = _clause(d, ClauseSpec(past, 1), refers)
    sub_en, sub_de = _subordinate(d, c, kind, "dass" if kind == "that" else "ob")
    m.en_rest += sub_en
    return english(m), [*second(m), COMMA, *sub_de], "."


def _purpose(d: Draft) -> Sentence:
    """Infinitives: tries to, in order to, without -ing."""
    past = d.rng.random() < _PAST
    kind = below(d.rng.random(), _PURPOSES)
    verb = d.draw(_EVENTS)
    opener_en, opener_de = list[Word](), list[Word]()
    if kind == "tries to":
        m = _matrix(d, "to", past)
    else:
        subject = clauses.subject_phrase(d, None, past, 0)
        spec = ClauseSpec(past, 0, "past" if past else "present", event=True, relatives=False)
        m = clause(d, spec, subject=subject, verb=d.draw(_EVENTS))
        opener_en, opener_de = d.pair(*_PURPOSE_OPENERS[kind])
    spec = ClauseSpec(past, 1, mode="ing" if kind == "without" else "to")
    c = clause(d, spec, subject=m.subject, verb=verb)
    infinitive_en = mark("S", mark("VP", c.en_rest))
    if opener_en:
        en = english(m) + mark("SBAR", opener_en + infinitive_en)
    else:
        m.en_rest += infinitive_en
        en = english(m)
    infinitive = opener_de + c.clitic + c.middle + c.right + c.extra
    comma = [COMMA] if infinitive != c.right else []
    return en, [*second(m), *comma, *infinitive], "."


def _coordination(d: Draft) -> Sentence:
    """Two main clauses."""
    past = d.rng.random() < _PAST_COORDINATION
    a = clause(d, ClauseSpec(past, 0, top=True))
    en, de = mark("S", english(a)), second(a)
    refers = d.rng.random() < _REFERS_IN_COORDINATION * d.grade.refer
    b = _clause(d, ClauseSpec(past, 0), refers)
    and_en, and_de = d.pair(*(("and", "und") if d.rng.random() < _AND else ("but", "aber")))
    return [*en, COMMA, *and_en, *mark("S", english(b))], [*de, COMMA, *and_de, *second(b)], "."


def _feminine(d: Draft) -> Sentence:
    """The teacher ... her: only the pronoun tells that the teacher is a woman."""
    past = d.rng.random() < _PAST
    article = d.rng.choice((phrases.THE, phrases.A))
    subject = phrases.noun_phrase(d, d.draw(choice.SHE), "n", determiner=article)
    if d.rng.random() < _SHE_RELATIVE:
        clauses.relative(d, subject, past, 1)
    verb = d.draw(choice.PERSON_VERBS)
    m = clause(d, ClauseSpec(past, 0), subject=subject, verb=verb)
    en, de = english(m), second(m)
    humans = [p for p in d.mentions if p.kind == "name" or (p.noun and "person" in p.noun.classes)]
    her = next((w for w in en if w.text == "her"), None)
    if her and len(humans) <= 2:
        if any(p is not subject and p.head not in m.middle for p in humans):
            raise Reject
        cue = next(w for w in de if w.key == her.key)
        d.depend("cue", subject.head, cue)
        return en, de, "."
    if len(humans) > 1 or her:
        raise Reject
    pronoun = phrases.pronoun(d, "she", "n", subject)
    if d.rng.random() < _SHE_ACTS:
        c = clause(d, ClauseSpec(past, 1), subject=pronoun)
    else:
        c = copula(d, past, pronoun, 1)
    d.depend("cue", subject.head, pronoun.word)
    sub_en, sub_de = _subordinate(d, c, "because", "weil")
    return [*en, *sub_en], [*de, COMMA, *sub_de], "."


def _question(d: Draft) -> Sentence:
    """Yes or no, why, when, where."""
    past = d.rng.random() < _PAST_QUESTION
    kind = below(d.rng.random(), _QUESTIONS)
    if kind == "address":
        return _question_to_you(d, past)
    opener_en, opener_de = _question_word(d, kind)
    where = kind == "where"
    spec = ClauseSpec(past, 0, ask=True, event=kind == "when", plain=where)
    c = clause(d, spec, verb=d.draw(_PLACED) if where else None)
    return opener_en + english(c, ask=True), second(c, opener_de), "?"


def _question_word(d: Draft, english_word: str) -> Sides:
    """Both sides of why, when or where; empty for other questions."""
    german_word = {"why": "warum", "when": "wann", "where": "wo"}.get(english_word)
    if german_word is None:
        return [], []
    en, de = d.pair(english_word, german_word)
    return mark("WHADVP", en), de


def _question_to_you(d: Draft, past: bool) -> Sentence:
    """A question whose `you` is translated by the form of address at the end."""
    who = d.rng.choice(("du", "Sie", "ihr"))
    opener_en, opener_de = _question_word(d, "why" if d.rng.random() < _WHY_ADDRESS else "")
    subject = phrases.pronoun(d, who, "n")
    plain = d.rng.random() < _PLAIN_ADDRESS
    c = clause(d, ClauseSpec(past, 0, ask=True, plain=plain), subject=subject)
    call_en, call_de, decisive = _address(d, who)
    d.depend("cue", subject.word, decisive)
    en, de = opener_en + english(c, ask=True), second(c, opener_de)
    return [*en, COMMA, *call_en], [*de, COMMA, *call_de], "?"


def _address(d: Draft, who: str) -> tuple[list[Word], list[Word], Word]:
    """The form of address that tells du, ihr and Sie apart, and its deciding German word."""
    if who == "du":
        phrase = phrases.name(d)
        return phrase.en, phrase.de, phrase.word
    if who == "ihr":
        en, de = d.pair(*d.rng.choice(_GROUPS))
        return mark("NP", en), de, de[-1]
    title = d.pair(*d.rng.choice(_TITLES))
    text = d.draw(forms.SURNAMES)
    surname = d.pair(text, text)
    return mark("NP", title[0] + surname[0]), title[1] + surname[1], title[1][0]


_GROUPS = ("children", "Kinder"), ("boys", "Jungs"), ("my friends", "meine Freunde")
_TITLES = ("Mr", "Herr"), ("Mrs", "Frau")


CONSTRUCTIONS: dict[str, Callable[[Draft], Sentence]] = {
    f.__name__[1:]: f
    for f in (_statement, _joined, _report, _purpose, _coordination, _feminine, _question)
}


def draw(rng: random.Random, grade: Grade = NORMAL) -> Pair:
    while True:
        d = Draft(rng, grade)
        r, chosen = rng.random(), "statement"  # a sum of shares may round to less than 1
        for name, share in grade.constructions.items():
            r -= share
            if r < 0:
                chosen = name
                break
        try:
            sides = CONSTRUCTIONS[chosen](d)
        except Reject:
            continue
        ambiguous = any(kind == "cue" for kind, _, _ in d.dependencies)
        if ambiguous and grade.cued < 1 and rng.random() >= grade.cued:
            continue
        heads = {p.noun.english[0] if p.noun else p.head.text for p in d.mentions}
        if len(heads) == len(d.mentions):  # no noun or name occurs twice
            return _pair(d, *sides)
