"""Verb chains of the grammar corpus in both languages, and the word order of clauses."""

from dataclasses import dataclass, field
from typing import NamedTuple

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import COMMA, Draft, Phrase, Reject, Word, mark
from t2t_jax.data.grammar.inflection import Verb
from t2t_jax.data.grammar.phrases import REFLEXIVE

BE = ("am", "is", "are"), ("was", "was", "were")  # present and past


@dataclass(slots=True)
class Clause:
    """The parts of a clause in both languages, before they are put in order."""

    subject: Phrase
    en_aux: list[Word]
    en_rest: list[Word]
    finite: Word  # the German finite verb, which stands second or last
    final: str  # its text if it stands last, joined with its prefix; empty for an infinitive
    right: list[Word]  # the German verbs that close the clause
    separated: list[Word] = field(default_factory=list)  # a separable prefix
    clitic: list[Word] = field(default_factory=list)  # a reflexive pronoun
    fond: list[Word] = field(default_factory=list)  # gern
    light: list[Word] = field(default_factory=list)  # pronouns as objects
    often: list[Word] = field(default_factory=list)  # adverbials in the middle field:
    manner: list[Word] = field(default_factory=list)
    time: list[Word] = field(default_factory=list)
    agent: Phrase | None = None
    place: Phrase | None = None
    middle: list[Word] = field(default_factory=list)  # the middle field, in order
    extra: list[Word] = field(default_factory=list)  # words behind the closing verbs
    front_en: list[Word] = field(default_factory=list)  # an adverbial that opens the clause
    front_de: list[Word] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """What a clause has beside its subject, verb and complements.

    The tense is [past ]progressive, present, past, perfect, pluperfect, future, [past ]modal, or
    fond for `likes to`, which German says with the adverb gern.
    """

    tense: str
    passive: bool
    ask: bool  # whether it is a question, in which German prefers the perfect to the past
    lifeless: bool  # whether the subject is no person or animal, which few modals take
    negated: bool = False
    often: bool = False
    timed: bool = False
    placed: bool = False
    mannered: bool = False
    fronted: bool = False  # the place, or else the time

    @property
    def past(self) -> bool:
        return "past" in self.tense

    @property
    def do(self) -> bool:
        """Whether English needs an auxiliary."""
        return self.ask or self.negated


class _Forms(NamedTuple):
    """The forms of a chain of verbs, as text."""

    aux: list[str]  # English auxiliaries
    lead: list[str]  # English words behind them that are aligned with the German finite verb
    en: list[str]  # the other English verbs
    finite: str
    right: list[str]  # the German verbs that close the clause


def _do(subject: Phrase, past: bool) -> str:
    return "did" if past else "does" if subject.be == 1 else "do"


def _modal(d: Draft, subject: Phrase, how: Plan, en: list[str], de: list[str]) -> _Forms:
    now, then = modal = d.draw([*forms.MODALS])
    if (how.past and not then) or (how.lifeless and now not in ("can", "must", "should")):
        raise Reject
    row, preterite = forms.MODALS[modal]
    who = subject.person
    finite = forms.preterite(preterite)[who] if how.past else row.split()[who]
    first, *rest = (then if how.past else now).split()
    if first in ("is", "was"):
        first = BE[how.past][subject.be]
    elif first in ("want", "wanted", "had"):
        if how.do:
            base = "have" if first == "had" else "want"
            return _Forms([_do(subject, how.past)], [base, *rest], en, finite, de)
        lead = "wants" if first == "want" and subject.be == 1 else first
        return _Forms([], [lead, *rest], en, finite, de)
    return _Forms([first], rest, en, finite, de)


def _simple(verb: Verb, subject: Phrase, how: Plan) -> _Forms:
    """The simple tenses of the active, the progressive and `likes to`."""
    third, past = subject.be == 1, how.past
    base, preterite, _ = verb.english
    finite = (verb.past if past else verb.present)[subject.person]
    if "progressive" in how.tense:
        return _Forms([BE[past][subject.be]], [], [verb.gerund], finite, [])
    aux = [_do(subject, past)] if how.do else []
    if how.tense == "fond":
        like = "likes" if third and not how.do else "like"
        return _Forms(aux, [like, "to"], [base], finite, [])
    if how.do:
        return _Forms(aux, [], [base], finite, [])
    if base == preterite and not past and not third:
        raise Reject  # `they put` would be read as a past
    en = preterite if past else verb.third if third else base
    return _Forms(aux, [], [en], finite, [])


def _forms(d: Draft, verb: Verb, subject: Phrase, how: Plan) -> _Forms:
    who, third, tense = subject.person, subject.be == 1, how.tense
    base, _, participle = verb.english
    have = forms.SEIN if verb.sein or how.passive else forms.HABEN
    en, perfect_en = [base], [participle]
    de, perfect_de = [verb.infinitive], [verb.participle]
    if how.passive:
        en, perfect_en = ["be", participle], ["been", participle]
        de, perfect_de = [verb.participle, "werden"], [verb.participle, "worden"]
    if tense == "future":
        return _Forms(["will"], [], en, forms.WERDEN[0][who], de)
    if tense in ("perfect", "pluperfect"):
        aux = "had" if tense == "pluperfect" else "has" if third else "have"
        return _Forms([aux], [], perfect_en, have[tense == "pluperfect"][who], perfect_de)
    if "modal" in tense:
        return _modal(d, subject, how, en, de)
    if how.passive:
        be, finite = BE[how.past][subject.be], forms.WERDEN[how.past][who]
        out = _Forms([be], [], [participle], finite, [verb.participle])
    else:
        out = _simple(verb, subject, how)
    if how.ask and how.past:
        out = out._replace(finite=have[0][who], right=perfect_de)
    return out


def chain(d: Draft, verb: Verb, subject: Phrase, how: Plan) -> Clause:
    """A clause of a subject and the verbs that `how` describes."""
    x = _forms(d, verb, subject, how)
    key, lead_key = d.key(), d.key()
    aux_key = lead_key if x.right else key
    c = Clause(
        subject,
        en_aux=[Word(text, aux_key) for text in x.aux],
        en_rest=[Word(text, lead_key) for text in x.lead]
        + [Word(text, aux_key) for text in x.en[:-1]]
        + [Word(x.en[-1], key)],
        finite=Word(x.finite, aux_key),
        final=x.finite if x.right else verb.prefix + x.finite,
        right=[Word(text, aux_key if i else key) for i, text in enumerate(x.right)],
    )
    if how.tense == "fond":
        c.fond = [Word("gern", lead_key)]
    if verb.prefix and not x.right:
        c.separated = [Word(verb.prefix, key)]
    _finish(c, verb, key)
    d.depend("subject", c.finite, subject.word)
    for word in c.separated:
        d.depend("prefix", word, c.finite)
    for word in c.right:
        d.depend("auxiliary", word, c.finite)
    return c


def infinitive(d: Draft, verb: Verb, subject: Phrase, ing: bool = False) -> Clause:
    """A zu-infinitive whose implicit subject is `subject`; in English with `to`, or a gerund."""
    key, to = d.key(), d.key()
    en = [Word(verb.gerund, key)] if ing else [Word("to", to), Word(verb.english[0], key)]
    right = [Word("zu", key if ing else to), Word(verb.infinitive, key)]
    if verb.prefix:
        right = [Word(verb.prefix + "zu" + verb.base, key)]  # one word
        en[0].key = key
    c = Clause(subject, [], en, right[-1], "", right)
    _finish(c, verb, key)
    return c


def _finish(c: Clause, verb: Verb, key: int) -> None:
    """Adds an English particle and a German reflexive."""
    if verb.particle:
        c.en_rest += mark("PRT", [Word(verb.particle, key)])
    if verb.reflexive:
        c.clitic = [Word(REFLEXIVE[c.subject.person], key)]


def whole(phrase: Phrase) -> list[Word]:
    """The German phrase with its relative clause directly behind it."""
    return phrase.de + ([COMMA, *phrase.tail, COMMA] if phrase.tail else [])


def english(c: Clause, ask: bool = False) -> list[Word]:
    """The clause in English order; the auxiliary of a question comes first."""
    if ask:
        return c.en_aux[:1] + c.subject.en + c.en_aux[1:] + c.en_rest
    comma = [COMMA] if len(c.front_en) > 1 else []
    return c.front_en + comma + c.subject.en + mark("VP", c.en_aux + c.en_rest)


def second(c: Clause, front: list[Word] | None = None) -> list[Word]:
    """The clause in German order with the finite verb second.

    The verb stands behind `front` if it is given (empty for a question), otherwise behind the
    fronted adverbial or the subject. Behind the verb, a pronoun precedes a noun as the subject,
    except sie, which would be read as the subject.
    """
    closing = c.separated + c.right + c.extra
    subject = whole(c.subject)
    if front is None and not c.front_de:
        return [*subject, c.finite, *c.clitic, *c.light, *c.middle, *closing]
    opening = [*(c.front_de if front is None else front), c.finite]
    sie = any(word.text == "sie" for word in c.light)
    if c.subject.kind == "pronoun" or (sie and not c.clitic):
        return [*opening, *subject, *c.clitic, *c.light, *c.middle, *closing]
    return [*opening, *c.clitic, *c.light, *subject, *c.middle, *closing]


def last(c: Clause) -> list[Word]:
    """The clause in German order with the finite verb last, behind a conjunction or pronoun."""
    c.finite.text = c.final
    subject = whole(c.subject)
    heavy = c.subject.kind not in ("pronoun", "relative")
    opening = c.clitic + subject if heavy else subject + c.clitic
    return [*opening, *c.light, *c.middle, *c.right, c.finite, *c.extra]
