"""Verb forms of the grammar corpus: one English chain of verbs and its German counterpart."""

from dataclasses import dataclass, field

from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import COMMA, Draft, Phrase, Pool, Reject, Word
from t2t_jax.data.grammar.inflection import Verb
from t2t_jax.data.grammar.phrases import REFLEXIVE

BE = {"present": ("am", "is", "are"), "past": ("was", "was", "were")}
_MODALS = Pool(forms.MODALS)


@dataclass(slots=True)
class Clause:
    """Both sides of a clause before word order.

    German: `finite` stands second, or joined with its prefix (`final`) at the end; `clitic` is the
    reflexive, `middle` the middle field, `right` the closing verbs, `extra` what follows them.
    """

    subject: Phrase
    en_aux: list[Word]
    en_rest: list[Word]
    finite: Word
    final: str  # empty for an infinitive
    right: list[Word]
    separated: list[Word] = field(default_factory=list)  # prefix
    clitic: list[Word] = field(default_factory=list)
    fond: list[Word] = field(default_factory=list)  # gern
    light: list[Word] = field(default_factory=list)  # pronouns as objects
    middle: list[Word] = field(default_factory=list)
    extra: list[Word] = field(default_factory=list)
    front_en: list[Word] = field(default_factory=list)  # an adverbial that opens the clause
    front_de: list[Word] = field(default_factory=list)

    @property
    def main(self) -> Word:
        """The German word that carries the verb's meaning."""
        return self.right[0] if self.right and self.final else self.finite


def _modal(d: Draft, subject: Phrase, past: bool, do: bool, only: int) -> tuple:
    """English auxiliaries, English words that go with them, German finite form."""
    now, then = modal = _MODALS.draw(d.rng)
    if (past and not then) or (only and now not in ("can", "must", "should")):
        raise Reject
    row, preterite = forms.MODALS[modal]
    third, who = subject.be == 1, subject.person
    finite = forms.preterite(preterite)[who] if past else row.split()[who]
    first, *rest = (then if past else now).split()
    if first in ("is", "was"):
        return [BE["past" if past else "present"][subject.be]], rest, finite
    if first in ("want", "wanted", "had"):
        if do:
            base = "have" if first == "had" else "want"
            return ["did" if past else "does" if third else "do"], [base, *rest], finite
        return [], ["wants" if first == "want" and third else first, *rest], finite
    return [first], rest, finite


def chain(
    d: Draft, verb: Verb, subject: Phrase, tense: str, *, do: bool = False, ask: bool = False,
    passive: bool = False, lifeless: bool = False,
) -> Clause:  # fmt: skip
    """The verbs of a finite clause.

    `tense`: [past ]progressive, present, past, perfect, pluperfect, future, [past ]modal, or fond
    for `likes to`, which German says with the adverb gern. `do` asks for an English auxiliary;
    past questions (`ask`) take the perfect in German.
    """
    who, third, past = subject.person, subject.be == 1, "past" in tense
    base, preterite, participle = verb.english
    have = forms.SEIN if verb.sein or passive else forms.HABEN
    en, perfect_en = [base], [participle]
    de, perfect_de = [verb.infinitive], [verb.participle]
    if passive:
        en, perfect_en = ["be", participle], ["been", participle]
        de, perfect_de = [verb.participle, "werden"], [verb.participle, "worden"]
    is_ = BE["past" if past else "present"][subject.be]
    lead: list[str] = []  # English words aligned with the German finite verb
    aux: list[str] = []
    if tense == "future":
        aux, finite, right = ["will"], forms.WERDEN[0][who], de
    elif tense in ("perfect", "pluperfect"):
        aux = ["had" if tense == "pluperfect" else "has" if third else "have"]
        en, finite, right = perfect_en, have[tense == "pluperfect"][who], perfect_de
    elif "modal" in tense:
        (aux, lead, finite), right = _modal(d, subject, past, do, lifeless), de
    elif passive:
        aux, en = [is_], [participle]
        finite, right = forms.WERDEN[past][who], [verb.participle]
    else:
        finite, right = (verb.past if past else verb.present)[who], []
        if do and "progressive" not in tense:
            aux = ["did" if past else "does" if third else "do"]
        if "progressive" in tense:
            aux, en = [is_], [verb.gerund]
        elif tense == "fond":
            lead = ["likes" if third and not do else "like", "to"]
        elif not do:
            if base == preterite and not past and not third:
                raise Reject  # `they put` would be read as a past
            en = [preterite if past else verb.third if third else base]
    if ask and past and "modal" not in tense:
        finite, right = have[0][who], perfect_de
    key, aux_key = d.key(), d.key()
    lead_key = aux_key
    if not right:
        aux_key = key
    c = Clause(
        subject,
        en_aux=[Word(text, aux_key) for text in aux],
        en_rest=[Word(text, lead_key) for text in lead]
        + [Word(text, aux_key) for text in en[:-1]]
        + [Word(en[-1], key)],
        finite=Word(finite, aux_key),
        final=finite if right else verb.prefix + finite,
        right=[Word(text, aux_key if i else key) for i, text in enumerate(right)],
    )
    if tense == "fond":
        c.fond = [Word("gern", lead_key)]
    if verb.prefix and not right:
        c.separated = [Word(verb.prefix, key)]
    _finish(c, verb, key)
    d.depend("subject", c.finite, subject.word)
    for word in c.separated:
        d.depend("prefix", word, c.finite)
    for word in c.right:
        d.depend("auxiliary", word, c.finite)
    return c


def infinitive(d: Draft, verb: Verb, subject: Phrase, ing: bool = False) -> Clause:
    """A zu-infinitive whose understood subject is `subject`; English `to`, or a gerund."""
    key, to = d.key(), d.key()
    en = [Word(verb.gerund, key)] if ing else [Word("to", to), Word(verb.english[0], key)]
    right = [Word("zu", key if ing else to), Word(verb.infinitive, key)]
    if verb.prefix:
        right = [Word(verb.zu, key)]
        en[0].key = key
    c = Clause(subject, [], en, right[-1], "", right)
    _finish(c, verb, key)
    return c


def _finish(c: Clause, verb: Verb, key: int) -> None:
    if verb.particle:
        c.en_rest.append(Word(verb.particle, key))
    if verb.reflexive:
        c.clitic = [Word(REFLEXIVE[c.subject.person], key)]


def whole(phrase: Phrase) -> list[Word]:
    """The German phrase with its relative clause in place."""
    return phrase.de + ([COMMA, *phrase.tail, COMMA] if phrase.tail else [])


def english(c: Clause, ask: bool = False) -> list[Word]:
    """English order; a question puts its auxiliary first."""
    if ask:
        return c.en_aux[:1] + c.subject.en + c.en_aux[1:] + c.en_rest
    comma = [COMMA] if len(c.front_en) > 1 else []
    return c.front_en + comma + c.subject.en + c.en_aux + c.en_rest


def second(c: Clause, front: list[Word] | None = None) -> list[Word]:
    """Verb second: behind `front` (empty: a question), the fronted adverbial or the subject.

    Behind the verb a pronoun precedes a subject that is a noun, but for sie, which would be read
    as the subject.
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
    """Verb last, as a conjunction or relative pronoun demands."""
    c.finite.text = c.final
    subject = whole(c.subject)
    heavy = c.subject.kind not in ("pronoun", "relative")
    opening = c.clitic + subject if heavy else subject + c.clitic
    return [*opening, *c.light, *c.middle, *c.right, c.finite, *c.extra]
