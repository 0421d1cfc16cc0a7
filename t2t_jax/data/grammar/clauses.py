"""Clauses of the grammar corpus: a verb, its complements, relative clauses, word order."""

from dataclasses import replace
from typing import Any

from t2t_jax.data.grammar import choice, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Reject, Word, below, mark
from t2t_jax.data.grammar.inflection import DATIVE_LAST, INVOLUNTARY, STATE, Noun, Slot, Verb
from t2t_jax.data.grammar.plans import ClauseSpec, add_adverbials, draw_plan, draw_tense
from t2t_jax.data.grammar.verbs import BE, Clause, Plan, chain, english, infinitive, last, whole

# Probabilities. Those of alternatives are cumulative: `draft.below` looks a draw from [0, 1) up.
_PASSIVE, _KEIN = 0.12, 0.5  # kein, where the object could take it
_HUMAN_SUBJECT = 0.8  # where the verb admits others
_SUBJECTS = (0.12, "name"), (0.28, "pronoun"), (1.0, "noun")
_RELATIVE_OF_SUBJECT, _RELATIVE_OF_MAIN_COMPLEMENT, _RELATIVE_OF_COMPLEMENT = 0.1, 0.2, 0.08
_SUBJECT_RELATIVE = {"person": 0.65, "other": 0.3}  # the relative pronoun is the subject
_COPULAR_RELATIVE, _NAMED_COMPLEMENT = 0.2, 0.1


def subject_phrase(d: Draft, noun: Noun | None, past: bool, level: int) -> Phrase:
    """A new subject: a noun phrase, or for persons (`noun` None) also a name or pronoun."""
    if noun is None:
        kind = below(d.rng.random(), _SUBJECTS)
        if kind == "name":
            return phrases.name(d)
        if kind == "pronoun":
            names = ("I", "we") if level or d.mentions else ("I", "he", "she", "we", "they")
            return phrases.pronoun(d, d.rng.choice(names), "n")
        noun = d.draw(choice.PERSONS)
    phrase = phrases.noun_phrase(d, noun, "n")
    may_nest = not phrase.closed and level < d.grade.limit
    if may_nest and d.rng.random() < _RELATIVE_OF_SUBJECT * d.grade.nest:
        relative(d, phrase, past, level + 1)
    return phrase


def relative(d: Draft, phrase: Phrase, past: bool, level: int) -> None:
    """Adds a relative clause to a noun phrase; its pronoun is the subject or a complement."""
    noun = phrase.noun
    assert noun
    person, key = "person" in noun.classes, d.key()
    if d.rng.random() < _SUBJECT_RELATIVE["person" if person else "other"]:
        subject = _relative_pronoun(d, phrase, "n", "who" if person else "that", key)
        if d.rng.random() < _COPULAR_RELATIVE and choice.adjectives(noun):
            c = copula(d, past, subject, level)
        else:
            c = clause(d, ClauseSpec(past, level), subject=subject)
        opening_en, opening_de, clause_en = subject.en, list[Word](), english(c)[1:]
    else:
        verb, i = d.draw(choice.object_verbs(noun, True))
        slot = verb.slots[i]
        german, case = _government(slot, noun)
        dative = case == "d" and not german and len(verb.slots) > 1  # to whom he gives the book
        before = "to" if dative else slot.english
        text = "whom" if person else "which" if before else "that"
        pronoun = _relative_pronoun(d, phrase, case, text, key)
        preposition = d.key() if german else key
        c = clause(d, ClauseSpec(past, level), verb=verb, complements={i: pronoun})
        opening_en, clause_en = pronoun.en, english(c)
        if before:
            opening_en = mark("WHPP", [Word(before, preposition), *pronoun.en])
        opening_de = [Word(german, preposition)] * bool(german) + pronoun.de
    phrase.en += mark("SBAR", opening_en + mark("S", clause_en))
    mark("NP", phrase.en)
    phrase.tail = opening_de + last(c)


def _relative_pronoun(d: Draft, phrase: Phrase, case: str, text: str, key: int) -> Phrase:
    """The relative pronoun of a noun phrase, `text` in English."""
    noun = phrase.noun
    assert noun
    word = Word(forms.RELATIVE["p" if phrase.plural else noun.gender, case], key)
    d.depend("relative", word, phrase.head)
    own: Any = dict(indefinite=False, tail=[], closed=False)
    return replace(phrase, en=[Word(text, key)], de=[word], word=word, kind="relative", **own)


def _government(slot: Slot, noun: Noun | None) -> tuple[str, str]:
    """The German preposition (or "") and the case that a complement stands in."""
    return noun.direction if noun and slot.german == "hin" else (slot.german, slot.case)


def _complement(
    d: Draft, slot: Slot, owner: tuple[str, str] | None, negated: bool, negation: int
) -> tuple[Phrase, str]:
    """A new complement without prepositions, and its German preposition.

    `owner` is the possessive of the clause's subject, `negated` says whether the clause is, and
    `negation` is the key of `not` if the complement takes kein, otherwise 0.
    """
    if not slot.case:
        en, de = d.pair(*d.draw(forms.ADVERBS["vehicle" if slot.german == "mit" else "city"]))
        return Phrase(en, de, de[-1], de[-1], kind="fixed", closed=True), slot.german
    if "person" in slot.classes and not negation and d.rng.random() < _NAMED_COMPLEMENT:
        phrase = phrases.name(d)
        phrase.closed = True
        return phrase, slot.german
    noun = d.draw(choice.nouns(slot.classes))
    german, case = _government(slot, noun)
    determiner = phrases.here(d) if noun.place and german else None
    if negated and not negation:
        determiner = phrases.THE
    phrase = phrases.noun_phrase(
        d, noun, case, owner=owner, determiner=determiner, negation=negation, bare=True
    )
    return phrase, german


def _complements(
    d: Draft, spec: ClauseSpec, c: Clause, verb: Verb, plan: Plan, complements: dict[int, Phrase]
) -> tuple[list[tuple[Slot, Phrase]], bool]:
    """Adds the complements in English order; returns them, and whether a kein negates."""
    slots = list(enumerate(verb.slots))[plan.passive :]
    # English says `gives the book to the man` with some verbs, and with a pronoun.
    dative = len(slots) == 2 and slots[0][1].case == "d" and not slots[0][1].german
    pronoun = 1 in complements and complements[1].kind == "pronoun"
    swapped = dative and (DATIVE_LAST in verb.flags or pronoun)
    negation = d.key()
    kein = False
    filled: list[tuple[Slot, Phrase]] = []
    for i, slot in slots[::-1] if swapped else slots:
        phrase = complements.get(i)
        german = _government(slot, phrase.noun)[0] if phrase else slot.german
        if phrase is None:
            direct = slot.case == "a" and not german
            takes_kein = plan.negated and direct and d.rng.random() < _KEIN
            kein |= takes_kein
            key = negation if takes_kein else 0
            phrase, german = _complement(d, slot, c.subject.owner, plan.negated, key)
            if len(filled) == len(slots) - 1 and _draw_relative(d, spec, plan, phrase):
                relative(d, phrase, spec.past, spec.level + 1)
        filled.append((slot, phrase))
        if phrase.kind != "relative":
            before = "to" if swapped and i == 0 else slot.english
            phrases.prefix(d, before, german, phrase)
            c.en_rest += phrase.en
    if plan.negated:
        c.en_aux.insert(1, Word("not", negation))
    return filled, kein


def _draw_relative(d: Draft, spec: ClauseSpec, plan: Plan, phrase: Phrase) -> bool:
    """Whether the last complement has a relative clause."""
    # To an adverbial that ends the English clause, the relative clause would attach.
    trailing = plan.mannered or plan.timed + plan.placed > plan.fronted
    if not spec.relatives or trailing or plan.negated or phrase.closed:
        return False
    share = _RELATIVE_OF_COMPLEMENT if spec.level else _RELATIVE_OF_MAIN_COMPLEMENT
    return spec.level < d.grade.limit and d.rng.random() < share * d.grade.nest


def _cues(d: Draft, verb: Verb, c: Clause, filled: list[tuple[Slot, Phrase]], plan: Plan) -> None:
    """Notes what decides the translation of words that have several."""
    main = c.right[0] if c.right and c.final else c.finite  # which carries the verb's meaning
    for phrase in [c.subject] + [p for _, p in filled]:
        if phrase.kind == "noun" and phrase.noun and phrase.noun.english[0] in choice.CUED_NOUNS:
            d.depend("cue", phrase.head, main)
    name = f"{verb.english[0]} {verb.particle}"
    if name in choice.CUED_VERBS and verb.base != "gehen":
        by_subject = verb.english[0] == "eat" or plan.passive or not filled
        d.depend("cue", main, (c.subject if by_subject else filled[0][1]).head)


def clause(
    d: Draft,
    spec: ClauseSpec,
    *,
    subject: Phrase | None = None,
    verb: Verb | None = None,
    complements: dict[int, Phrase] | None = None,
) -> Clause:
    """A clause around a verb; subject, verb and complements (by slot) are drawn if not given."""
    d.depth = max(d.depth, spec.level)
    complements = complements or {}
    if verb is None:
        noun = subject and subject.noun
        usual = choice.PERSON_VERBS if subject else forms.VERBS
        verb = d.draw(choice.subject_verbs(noun) if noun else usual)
    if verb.english[0] in d.verbs or (spec.event and STATE in verb.flags):
        raise Reject
    d.verbs.add(verb.english[0])
    direct = bool(verb.slots) and verb.slots[0].case == "a" and not verb.slots[0].german
    willed = not verb.flags & {STATE, INVOLUNTARY}
    passive = not (subject or complements) and direct and willed and d.chance(_PASSIVE)
    subject = subject or _draw_subject(d, spec, verb, passive)
    kinds = subject.noun.classes if subject.noun else {"person"}
    animate = not passive and bool({"person", "animal"} & kinds)
    tense = "infinitive" if spec.mode else spec.tense
    tense = tense or draw_tense(d, spec, verb, passive, animate)
    plan = draw_plan(d, spec, verb, subject, Plan(tense, passive, spec.ask, not animate))
    if spec.mode:
        c = infinitive(d, verb, subject, ing=spec.mode == "ing")
    else:
        c = chain(d, verb, subject, plan)
    filled, kein = _complements(d, spec, c, verb, plan, complements)
    _cues(d, verb, c, filled, plan)
    if verb.particle in ("up", "on") and 0 in complements and complements[0].kind == "pronoun":
        particle = next(word for word in c.en_rest if word.text == verb.particle)
        c.en_rest.remove(particle)
        c.en_rest.append(particle)  # picks it up
    add_adverbials(d, spec, c, verb, plan, filled)
    if c.en_aux:
        mark("VP", c.en_rest)
    _order(c, filled, plan, kein)
    return c


def _draw_subject(d: Draft, spec: ClauseSpec, verb: Verb, passive: bool) -> Phrase:
    classes = verb.slots[0].classes if passive else verb.subjects
    human = not passive and "person" in classes
    if human and len(classes) > 1:
        human = d.rng.random() < _HUMAN_SUBJECT
    noun = None if human else d.draw(choice.nouns(classes))
    return subject_phrase(d, noun, spec.past, spec.level)


def _order(c: Clause, filled: list[tuple[Slot, Phrase]], plan: Plan, kein: bool) -> None:
    """Orders the German middle field.

    The order is: pronouns, time, definite objects, frequency, manner, place, indefinite objects,
    phrases with a preposition. Objects with a relative clause stand behind the frequency, so that
    the relative clause, at the end of the field, moves behind the closing verbs.
    """
    fresh = [(slot, p) for slot, p in filled if p.kind != "relative"]
    bare = [(s, p) for s, p in fresh if p.kind != "pronoun" and s.case and not s.german]
    datives = [p for s, p in bare if s.case == "d"]
    definite = [p for s, p in bare if s.case == "a" and not p.indefinite and not kein]
    indefinite = [p for s, p in bare if s.case == "a" and (p.indefinite or kein)]
    oblique = [p for s, p in fresh if not s.case or s.german]
    groups: list[Phrase | list[Word]]
    if plan.negated:
        key = c.en_aux[1].key  # of the `not` behind the English auxiliary
        groups = [*datives, *definite, c.time, [] if kein else [Word("nicht", key)]]
    elif c.often:
        early = [p for p in datives + definite if not p.indefinite and not p.tail]
        late = [p for p in datives + definite if p not in early]
        groups = [*early, c.often, *late, c.manner]
    else:
        groups = [c.time, *datives, c.fond, *definite, c.manner]
    groups += [p for p in (c.agent, c.place) if p]
    groups = [g for g in [*groups, *indefinite, *oblique] if g]
    c.light = [word for s, p in fresh if p.kind == "pronoun" and not s.german for word in p.de]
    for g in groups:
        c.middle += whole(g) if isinstance(g, Phrase) else g
    final = groups[-1] if groups else None
    if isinstance(final, Phrase) and final.tail:
        c.extra = c.middle[-len(final.tail) - 2 :]
        del c.middle[-len(final.tail) - 2 :]


# Each degree has one of these shares; what is above `_COMPARED` is a comparison.
_DEGREES = (("very", "sehr"), ("too", "zu"), ("rather", "ziemlich"), ("not", "nicht"))
_DEGREE, _ANY_DEGREE, _COMPARED = 0.12, 0.48, 0.9


def copula(d: Draft, past: bool, subject: Phrase | None, level: int) -> Clause:
    """A subject, a form of be, and an adjective with its degree, or compared."""
    d.depth = max(d.depth, level)
    if subject is None:
        subject = subject_phrase(d, d.draw(choice.COPULA_NOUNS), past, level)
    noun = subject.noun
    if noun is None or "weather" in noun.classes:  # heavy rain, but no rain is heavy
        raise Reject
    adjective = d.draw(choice.adjectives(noun))
    opposed = any({adjective.english, subject.adjective} <= line for line in forms.OPPOSITES)
    if opposed or adjective.english in d.adjectives:
        raise Reject
    d.adjectives.add(adjective.english)
    key, adjective_key = d.key(), d.key()
    finite = Word(forms.SEIN[past][subject.person], key)
    auxiliary = Word(BE[past][subject.be], key)
    c = Clause(subject, [auxiliary], [], finite, finite.text, [])
    d.depend("subject", finite, subject.word)
    r = d.rng.random()
    degree_en, degree_de = d.pair(*_DEGREES[int(r / _DEGREE)]) if r < _ANY_DEGREE else ([], [])
    text_en, text_de, than_en = adjective.english, adjective.german, list[Word]()
    if r > _COMPARED and adjective.comparative and subject.kind == "noun":
        other = d.draw(choice.COPULA_NOUNS)
        if not other.classes & noun.classes & adjective.classes:
            raise Reject
        than = phrases.noun_phrase(d, other, "n", simple=True)
        phrases.prefix(d, "than", "als", than)
        than_en, c.extra = than.en, than.de
        text_en, text_de = adjective.comparative
    word = Word(text_de, adjective_key)
    if adjective.english in choice.CUED_ADJECTIVES:
        d.depend("cue", word, subject.head)
    adjective_en = [Word(text, adjective_key) for text in text_en.split()]
    c.en_rest = mark("ADJP", [*degree_en, *adjective_en, *than_en])
    c.middle = [*degree_de, word]
    return c
