"""Clauses of the grammar corpus: a verb, its complements and adverbials, relative clauses."""

from dataclasses import dataclass, field

from t2t_jax.data.grammar import choice, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Pool, Reject, Word, below
from t2t_jax.data.grammar.inflection import (
    DATIVE_LAST,
    INVOLUNTARY,
    LIKED,
    MANNERED,
    PLACED,
    STATE,
    Adjective,
    Noun,
    Slot,
    Verb,
)
from t2t_jax.data.grammar.verbs import BE, Chain, Clause, chain, english, infinitive, last, whole

_VERBS = Pool(forms.VERBS)
_WEATHER = (("during", "während"), ("despite", "trotz"), ("because of", "wegen"))
_UNNEGATED = frozenset(("every", "all", "many", "two", "three", "a", "an"))  # beside not, never

# Probabilities. Those of alternatives are cumulative: `draft.below` looks a draw from [0, 1) up.
_PAST_MODAL, _PAST_PROGRESSIVE = 0.1, 0.16
_PRESENT_TENSES = (("modal", 0.12), ("perfect", 0.1), ("future", 0.08))  # not cumulative
_PROGRESSIVE, _FOND = 0.08, 0.18  # of what is left
_PASSIVE, _AGENT = 0.12, 0.45
_NEGATED, _KEIN = 0.09, 0.5  # kein, where the object could take it
_OFTEN, _PERFECT_ADVERB = 0.07, 0.4
_TIMED_MAIN, _TIMED, _CIRCUMSTANCE = 0.36, 0.1, 0.15
_IN_PLACE, _IN_MANNER, _FRONTED = 0.2, 0.13, 0.5
_HUMAN_SUBJECT = 0.8  # where the verb admits others
_SUBJECTS = (0.12, "name"), (0.28, "pronoun"), (1.0, "noun")
_RELATIVE_OF_SUBJECT, _RELATIVE_OF_MAIN_COMPLEMENT, _RELATIVE_OF_COMPLEMENT = 0.1, 0.2, 0.08
_SUBJECT_RELATIVE = {"person": 0.65, "other": 0.3}  # the relative pronoun is the subject
_COPULAR_RELATIVE, _NAMED_COMPLEMENT = 0.2, 0.1


@dataclass(frozen=True, slots=True)
class ClauseSpec:
    """What a clause has to be; all else is drawn.

    Attributes:
      past: whether the sentence is in the past tense.
      level: how deeply the clause is nested; 0 for a main clause.
      tense: as `verbs.Chain` names it; drawn if empty.
      ask: whether it is a question.
      top: whether an adverbial may open it.
      plain: whether it has neither adverbials nor negation.
      event: whether it is plain and its verb names no state.
      relatives: whether its complements may have relative clauses.
      mode: `to` or `ing` for an infinitive.
    """

    past: bool
    level: int
    tense: str = ""
    ask: bool = False
    top: bool = False
    plain: bool = False
    event: bool = False
    relatives: bool = True
    mode: str = ""


@dataclass(slots=True)
class Plan:
    """What a clause will have beside its verb and complements."""

    tense: str
    passive: bool = False
    negated: bool = False
    often: bool = False
    timed: bool = False
    placed: bool = False
    mannered: bool = False
    fronted: bool = False  # the place, or else the time

    def trailing(self) -> bool:
        """Whether an adverbial ends the English clause, to which a relative clause would attach."""
        return self.mannered or self.timed + self.placed > self.fronted


@dataclass(slots=True)
class _Adverbials:
    """German adverbials that stand in the middle field."""

    often: list[Word] = field(default_factory=list)
    manner: list[Word] = field(default_factory=list)
    time: list[Word] = field(default_factory=list)
    agent: Phrase | None = None
    place: Phrase | None = None


def _tense(d: Draft, spec: ClauseSpec, verb: Verb, passive: bool, animate: bool) -> str:
    r = d.rng.random()
    involuntary = INVOLUNTARY in verb.flags
    if STATE in verb.flags:
        return "past" if spec.past else "present"
    if involuntary and r < _PRESENT_TENSES[0][1]:
        r = 0.5  # no modal
    if spec.past:
        if r < _PAST_MODAL:
            return "past" if spec.ask or not animate else "past modal"
        simple = r >= _PAST_PROGRESSIVE or passive or spec.ask or involuntary
        return "past" if simple else "past progressive"
    for tense, share in _PRESENT_TENSES:
        r -= share
        if r < 0:
            return tense
    if passive or involuntary:
        return "present"
    if r < _PROGRESSIVE:
        return "progressive"
    return "fond" if r < _FOND and LIKED in verb.flags and animate else "present"


def _plan(d: Draft, spec: ClauseSpec, verb: Verb, subject: Phrase, plan: Plan) -> Plan:
    """Draws adverbials and negation that agree with the verb, its tense and each other."""
    flags, tense = verb.flags, plan.tense
    if spec.plain or spec.event:
        return plan
    if (
        not plan.passive
        and tense in ("past", "present", "perfect")
        and subject.en[0].text not in _UNNEGATED
    ):
        plan.negated = d.rng.random() < _NEGATED
    if STATE in flags:
        return plan
    if tense in ("past", "present") and not plan.passive and not plan.negated:
        plan.often = d.chance(_OFTEN)
    if not plan.often and tense in ("past", "present", "future", "past modal"):
        timed = d.chance(_TIMED_MAIN if spec.top else _TIMED)
        plan.timed = timed and not (INVOLUNTARY in flags and tense == "present") and not d.timed
        d.timed |= plan.timed
    if not plan.negated and not plan.passive and tense != "fond":
        plan.placed = PLACED in flags and d.chance(_IN_PLACE)
        plan.mannered = MANNERED in flags and not plan.often and d.chance(_IN_MANNER)
    plan.fronted = spec.top and (plan.timed or plan.placed) and d.rng.random() < _FRONTED
    return plan


def subject_phrase(
    d: Draft, noun: Noun | None, past: bool, level: int, relatives: bool = True
) -> Phrase:
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
    if (
        relatives
        and not phrase.closed
        and level < d.grade.limit
        and d.rng.random() < _RELATIVE_OF_SUBJECT * d.grade.nest
    ):
        relative(d, phrase, past, level + 1)
    return phrase


def relative(d: Draft, phrase: Phrase, past: bool, level: int) -> None:
    """Adds a relative clause to a noun phrase; its pronoun is the subject or a complement."""
    noun = phrase.noun
    assert noun
    person, key = "person" in noun.classes, d.key()
    if d.rng.random() < _SUBJECT_RELATIVE["person" if person else "other"]:
        subject = _relative_pronoun(d, phrase, "n", "who" if person else "that", key)
        if d.rng.random() < _COPULAR_RELATIVE and choice.adjectives(noun).items:
            c = copula(d, past, subject, level)
        else:
            c = clause(d, ClauseSpec(past, level), subject=subject)
        phrase.en += english(c)
        phrase.tail = last(c)
        return
    verb, i = d.draw(choice.object_verbs(noun, True))
    slot = verb.slots[i]
    german, case = _government(slot, noun)
    dative = case == "d" and not german and len(verb.slots) > 1  # to whom the man gives the book
    before = "to" if dative else slot.english
    text = "whom" if person else "which" if before else "that"
    pronoun = _relative_pronoun(d, phrase, case, text, key)
    preposition = d.key() if german else key
    c = clause(d, ClauseSpec(past, level), verb=verb, complements={i: pronoun})
    phrase.en += [Word(before, preposition)] * bool(before) + pronoun.en + english(c)
    phrase.tail = [Word(german, preposition)] * bool(german) + pronoun.de + last(c)


def _relative_pronoun(d: Draft, phrase: Phrase, case: str, text: str, key: int) -> Phrase:
    """The relative pronoun of a noun phrase, `text` in English."""
    noun = phrase.noun
    assert noun
    word = Word(forms.RELATIVE["p" if phrase.plural else noun.gender, case], key)
    d.depend("relative", word, phrase.head)
    return Phrase(
        en=[Word(text, key)],
        de=[word],
        word=word,
        head=phrase.head,
        person=phrase.person,
        be=phrase.be,
        noun=noun,
        plural=phrase.plural,
        kind="relative",
        owner=phrase.owner,
        adjectives=phrase.adjectives,
    )


def _government(slot: Slot, noun: Noun | None) -> tuple[str, str]:
    """The German preposition (or "") and the case that a complement stands in."""
    return noun.direction if noun and slot.german == "hin" else (slot.german, slot.case)


def _complement(
    d: Draft, slot: Slot, owner: tuple[str, str] | None, negated: bool, negation: int
) -> tuple[Phrase, str]:
    """A new complement without prepositions, and its German preposition.

    Args:
      owner: the possessive that refers to the clause's subject.
      negated: whether the clause is negated.
      negation: the key of `not` if the complement takes kein, otherwise 0.
    """
    if not slot.case:
        pool = choice.VEHICLES if slot.german == "mit" else choice.CITIES
        en, de = d.pair(*d.draw(pool))
        return Phrase(en, de, de[-1], de[-1], kind="fixed", closed=True), slot.german
    if "person" in slot.classes and not negation and d.rng.random() < _NAMED_COMPLEMENT:
        phrase = phrases.name(d)
        phrase.closed = True
        return phrase, slot.german
    noun = d.draw(choice.nouns(slot.classes))
    german, case = _government(slot, noun)
    determiner = None
    if noun.place and german:
        determiner = phrases.here(d)
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
    swapped = _dative_comes_last(verb, slots, complements)
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


def _dative_comes_last(
    verb: Verb, slots: list[tuple[int, Slot]], complements: dict[int, Phrase]
) -> bool:
    """Whether English says `gives the book to the man`."""
    if len(slots) < 2 or slots[0][1].case != "d" or slots[0][1].german:
        return False
    return DATIVE_LAST in verb.flags or (1 in complements and complements[1].kind == "pronoun")


def _draw_relative(d: Draft, spec: ClauseSpec, plan: Plan, phrase: Phrase) -> bool:
    """Whether the last complement has a relative clause."""
    if not spec.relatives or plan.trailing() or plan.negated or phrase.closed:
        return False
    share = _RELATIVE_OF_COMPLEMENT if spec.level else _RELATIVE_OF_MAIN_COMPLEMENT
    return spec.level < d.grade.limit and d.rng.random() < share * d.grade.nest


def _cues(
    d: Draft, verb: Verb, c: Clause, filled: list[tuple[Slot, Phrase]], passive: bool
) -> None:
    """Notes what decides the translation of words that have several."""
    for phrase in [c.subject] + [p for _, p in filled]:
        if phrase.kind == "noun" and phrase.noun and phrase.noun.english[0] in choice.CUED_NOUNS:
            d.depend("cue", phrase.head, c.main)
    name = f"{verb.english[0]} {verb.particle}"
    if name in choice.CUED_VERBS and verb.base != "gehen":
        first = filled[0][1] if filled and verb.english[0] != "eat" and not passive else c.subject
        d.depend("cue", c.main, first.head)


def _time(d: Draft, past: bool, plan: Plan) -> tuple[list[Word], list[Word]]:
    """A time adverbial that agrees with the tense, or a circumstance: during the storm."""
    if plan.tense == "future":
        return d.pair(*d.draw(choice.TIMES["future"]))
    if d.rng.random() < _CIRCUMSTANCE:
        weather = phrases.noun_phrase(d, d.draw(choice.WEATHER), "g", determiner=phrases.THE)
        phrases.prefix(d, *d.rng.choice(_WEATHER), weather)
        return weather.en, weather.de
    pair = d.draw(choice.TIMES["past" if past else "present"])
    if plan.negated and pair[0].startswith("every"):
        raise Reject
    return d.pair(*pair)


def _place(d: Draft) -> Phrase:
    """An adverbial of place."""
    noun = d.draw(choice.PLACES)
    assert noun.place
    place = phrases.noun_phrase(d, noun, "d", determiner=phrases.here(d))
    return phrases.prefix(d, *noun.place, place)


def clause(
    d: Draft,
    spec: ClauseSpec,
    *,
    subject: Phrase | None = None,
    verb: Verb | None = None,
    complements: dict[int, Phrase] | None = None,
) -> Clause:
    """A clause around a verb.

    Args:
      subject, verb: drawn if they are None.
      complements: by the index of their slot; the others are drawn.

    Raises:
      Reject: the verb is used already, or the words drawn do not go together.
    """
    d.depth = max(d.depth, spec.level)
    complements = complements or {}
    verb = verb or _draw_verb(d, subject)
    if verb.english[0] in d.verbs or (spec.event and STATE in verb.flags):
        raise Reject
    d.verbs.add(verb.english[0])
    passive = subject is None and not complements and _can_be_passive(verb) and d.chance(_PASSIVE)
    subject = subject or _draw_subject(d, spec, verb, passive)
    kinds = subject.noun.classes if subject.noun else {"person"}
    animate = not passive and bool({"person", "animal"} & kinds)
    tense = "infinitive" if spec.mode else spec.tense
    tense = tense or _tense(d, spec, verb, passive, animate)
    plan = _plan(d, spec, verb, subject, Plan(tense, passive))
    if spec.mode:
        c = infinitive(d, verb, subject, ing=spec.mode == "ing")
    else:
        do = spec.ask or plan.negated
        c = chain(d, verb, subject, Chain(tense, do, spec.ask, passive, lifeless=not animate))
    filled, kein = _complements(d, spec, c, verb, plan, complements)
    _cues(d, verb, c, filled, passive)
    if verb.particle in ("up", "on") and 0 in complements and complements[0].kind == "pronoun":
        particle = next(word for word in c.en_rest if word.text == verb.particle)
        c.en_rest.remove(particle)
        c.en_rest.append(particle)  # picks it up
    adverbials = _adverbials(d, spec, c, verb, plan, filled)
    _order(c, filled, plan, kein, adverbials)
    return c


def _draw_verb(d: Draft, subject: Phrase | None) -> Verb:
    if subject is None:
        return d.draw(_VERBS)
    return d.draw(choice.subject_verbs(subject.noun) if subject.noun else choice.PERSON_VERBS)


def _can_be_passive(verb: Verb) -> bool:
    """Whether a verb has a direct object, and is neither a state nor involuntary."""
    if not verb.slots or verb.flags & {STATE, INVOLUNTARY}:
        return False
    return verb.slots[0].case == "a" and not verb.slots[0].german


def _draw_subject(d: Draft, spec: ClauseSpec, verb: Verb, passive: bool) -> Phrase:
    classes = verb.slots[0].classes if passive else verb.subjects
    human = (
        not passive
        and "person" in classes
        and (len(classes) == 1 or d.rng.random() < _HUMAN_SUBJECT)
    )
    noun = None if human else d.draw(choice.nouns(classes))
    return subject_phrase(d, noun, spec.past, spec.level)


def _adverbials(
    d: Draft,
    spec: ClauseSpec,
    c: Clause,
    verb: Verb,
    plan: Plan,
    filled: list[tuple[Slot, Phrase]],
) -> _Adverbials:
    """Adds the planned adverbials in English order; returns the German ones."""
    out = _Adverbials()
    bare = plan.negated or spec.plain or spec.event
    if plan.often or (plan.tense == "perfect" and not bare and d.chance(_PERFECT_ADVERB)):
        pool = choice.FREQUENCY if plan.often else choice.PERFECT
        en, out.often = d.pair(*d.draw(pool))
        c.en_rest[:0] = en
        if en[0].text in ("never", "rarely") and any(w.text in _UNNEGATED for w in c.en_rest):
            raise Reject
    if plan.mannered:
        en, out.manner = d.pair(*d.draw(choice.MANNER))
        c.en_rest += en
    if plan.passive and _has_agent(d, verb, filled):
        out.agent = _agent(d, verb)
        c.en_rest += out.agent.en
    if plan.placed:
        place = _place(d)
        if plan.fronted:
            c.front_en, c.front_de = place.en, place.de
        else:
            out.place = place
            c.en_rest += place.en
    if plan.timed:
        en, de = _time(d, spec.past, plan)
        if plan.fronted and not plan.placed:
            c.front_en, c.front_de = en, de
        else:
            out.time = de
            c.en_rest += en
    return out


def _has_agent(d: Draft, verb: Verb, filled: list[tuple[Slot, Phrase]]) -> bool:
    """Whether a passive names who does it, as it must where that decides a translation."""
    cued = f"{verb.english[0]} {verb.particle}" in choice.CUED_VERBS and verb.english[0] == "eat"
    return cued or (d.rng.random() < _AGENT and not any(p.tail for _, p in filled))


def _agent(d: Draft, verb: Verb) -> Phrase:
    kind = "person" if "person" in verb.subjects else sorted(verb.subjects)[0]
    noun = d.draw(choice.nouns(frozenset({kind})))
    return phrases.prefix(d, "by", "von", phrases.noun_phrase(d, noun, "d"))


def _order(
    c: Clause, filled: list[tuple[Slot, Phrase]], plan: Plan, kein: bool, x: _Adverbials
) -> None:
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
        groups = [*datives, *definite, x.time, [] if kein else [Word("nicht", key)]]
    elif x.often:
        early = [p for p in datives + definite if not p.indefinite and not p.tail]
        late = [p for p in datives + definite if p not in early]
        groups = [*early, x.often, *late, x.manner]
    else:
        groups = [x.time, *datives, c.fond, *definite, x.manner]
    groups += [p for p in (x.agent, x.place) if p]
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
    """A subject, a form of be, and an adjective with its degree, or compared.

    Raises:
      Reject: the words drawn do not go together.
    """
    d.depth = max(d.depth, level)
    if subject is None:
        subject = subject_phrase(d, d.draw(choice.copula_nouns()), past, level)
    noun = subject.noun
    if noun is None or "weather" in noun.classes:  # heavy rain, but no rain is heavy
        raise Reject
    adjective = d.draw(choice.adjectives(noun))
    if adjective.english in d.adjectives or choice.opposed(adjective.english, subject.adjectives):
        raise Reject
    d.adjectives.add(adjective.english)
    key, adjective_key = d.key(), d.key()
    finite = Word(forms.SEIN[past][subject.person], key)
    auxiliary = Word(BE["past" if past else "present"][subject.be], key)
    c = Clause(subject, [auxiliary], [], finite, finite.text, [])
    d.depend("subject", finite, subject.word)
    r = d.rng.random()
    degree_en, degree_de = d.pair(*_DEGREES[int(r / _DEGREE)]) if r < _ANY_DEGREE else ([], [])
    text_en, text_de, than_en = adjective.english, adjective.german, list[Word]()
    if r > _COMPARED and adjective.comparative and subject.kind == "noun":
        than_en, c.extra = _than(d, noun, adjective)
        text_en, text_de = adjective.comparative
    word = Word(text_de, adjective_key)
    if adjective.english in choice.CUED_ADJECTIVES:
        d.depend("cue", word, subject.head)
    c.en_rest = [*degree_en, *(Word(text, adjective_key) for text in text_en.split()), *than_en]
    c.middle = [*degree_de, word]
    return c


def _than(d: Draft, noun: Noun, adjective: Adjective) -> tuple[list[Word], list[Word]]:
    """What a noun is compared with: than the house, als das Haus."""
    other = d.draw(choice.copula_nouns())
    if not other.classes & noun.classes & adjective.classes:
        raise Reject
    phrase = phrases.noun_phrase(d, other, "n", simple=True)
    than = phrases.prefix(d, "than", "als", phrase)
    return than.en, than.de
