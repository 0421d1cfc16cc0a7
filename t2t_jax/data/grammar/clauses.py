"""Clauses of the grammar corpus: a verb, its complements and adverbials, relative clauses."""

from dataclasses import dataclass

from t2t_jax.data.grammar import choice, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Pool, Reject, Word
from t2t_jax.data.grammar.inflection import Noun, Slot, Verb
from t2t_jax.data.grammar.verbs import BE, Clause, chain, english, infinitive, last, whole

_VERBS = Pool(forms.VERBS)
_WEATHER = (("during", "während"), ("despite", "trotz"), ("because of", "wegen"))
_UNNEGATED = frozenset(("every", "all", "many", "two", "three", "a", "an"))  # beside not, never


@dataclass(slots=True)
class Plan:
    """What a clause will have besides verb and complements."""

    tense: str
    negated: bool = False
    often: bool = False
    timed: bool = False
    placed: bool = False
    mannered: bool = False
    fronted: bool = False  # the place, or else the time

    def trailing(self) -> bool:
        """Whether an adverbial ends the English clause: a relative clause would take it up."""
        return self.mannered or self.timed + self.placed > self.fronted


def _tense(d: Draft, verb: Verb, past: bool, ask: bool, passive: bool, animate: bool) -> str:
    r = d.rng.random()
    flags = verb.flags
    if "s" in flags:
        return "past" if past else "present"
    if "u" in flags and r < 0.12:
        r = 0.5
    if past:
        if r < 0.1:
            return "past" if ask or not animate else "past modal"
        return (
            "past progressive"
            if r < 0.16 and not passive and not ask and "u" not in flags
            else "past"
        )
    for tense, share in (("modal", 0.12), ("perfect", 0.1), ("future", 0.08)):
        r -= share
        if r < 0:
            return tense
    if passive or "u" in flags:
        return "present"
    if r < 0.08:
        return "progressive"
    return "fond" if r < 0.18 and "g" in flags and animate else "present"


def _plan(
    d: Draft, verb: Verb, subject: Phrase, tense: str, passive: bool, plain: bool, top: bool
) -> Plan:
    """Draws adverbials and negation that go with the verb, its tense and each other."""
    plan = Plan(tense)
    flags, simple = verb.flags, tense in ("past", "present", "infinitive")
    if plain:
        return plan
    if (
        not passive
        and tense in ("past", "present", "perfect")
        and subject.en[0].text not in _UNNEGATED
    ):
        plan.negated = d.rng.random() < 0.09
    if "s" in flags:
        return plan
    if simple and tense != "infinitive" and not passive and not plan.negated:
        plan.often = d.chance(0.07)
    if not plan.often and tense in ("past", "present", "future", "past modal"):
        plan.timed = d.chance(0.36 if top else 0.1) and not ("u" in flags and tense == "present")
        plan.timed &= not d.timed
        d.timed |= plan.timed
    if not plan.negated and not passive and tense != "fond":
        plan.placed = "p" in flags and d.chance(0.2)
        plan.mannered = "m" in flags and not plan.often and d.chance(0.13)
    plan.fronted = top and (plan.timed or plan.placed) and d.rng.random() < 0.5
    return plan


def subject_phrase(d: Draft, noun: Noun | None, past: bool, level: int, rc: bool = True) -> Phrase:
    """A fresh subject: a noun phrase, or for persons (`noun` None) also a name or pronoun."""
    if noun is None:
        r = d.rng.random()
        if r < 0.12:
            return phrases.name(d)
        if r < 0.28:
            names = ("I", "we") if level or d.mentions else ("I", "he", "she", "we", "they")
            return phrases.pronoun(d, d.rng.choice(names), "n")
        noun = choice.PERSONS.draw(d.rng)
    phrase = phrases.noun_phrase(d, noun, "n")
    if rc and not phrase.closed and level < d.limit and d.rng.random() < 0.1 * d.nest:
        relative(d, phrase, past, level + 1)
    return phrase


def relative(d: Draft, phrase: Phrase, past: bool, level: int) -> None:
    """Hangs a relative clause on a noun phrase; the pronoun is its subject or a complement."""
    noun = phrase.noun
    assert noun
    gender = "p" if phrase.plural else noun.gender
    person = "person" in noun.classes
    key = d.key()

    def link(case: str, text: str) -> Phrase:
        word = Word(forms.RELATIVE[gender, case], key)
        d.depend("relative", word, phrase.head)
        return Phrase([Word(text, key)], [word], word, phrase.head, phrase.person, phrase.be,
                      noun, phrase.plural, "relative", phrase.owner,
                      adjectives=phrase.adjectives)  # fmt: skip

    if d.rng.random() < (0.65 if person else 0.3):
        subject = link("n", "who" if person else "that")
        if d.rng.random() < 0.2 and choice.adjectives(noun).items:
            c = copula(d, past, subject, level)
        else:
            c = clause(d, past, level, subject=subject)
        phrase.en += english(c)
        phrase.tail = last(c)
        return
    verb, i = choice.object_verbs(noun, True).draw(d.rng)
    slot = verb.slots[i]
    german, case = _government(slot, noun)
    dative = case == "d" and not german and len(verb.slots) > 1  # to whom the man gives the book
    before = "to" if dative else slot.english
    pronoun = link(case, "whom" if person else "which" if before else "that")
    preposition = d.key() if german else key
    c = clause(d, past, level, verb=verb, given={i: pronoun})
    phrase.en += [Word(before, preposition)] * bool(before) + pronoun.en + english(c)
    phrase.tail = [Word(german, preposition)] * bool(german) + pronoun.de + last(c)


def _government(slot: Slot, noun: Noun | None) -> tuple[str, str]:
    """The German preposition (or none) and the case that a complement stands in."""
    return noun.direction if noun and slot.german == "hin" else (slot.german, slot.case)


def _complement(
    d: Draft, slot: Slot, owner: tuple[str, str] | None, negated: bool, negation: int
) -> tuple[Phrase, str]:
    """A fresh complement without prepositions, and its German preposition."""
    if not slot.case:
        en, de = d.pair(*(choice.VEHICLES if slot.german == "mit" else choice.CITIES).draw(d.rng))
        return Phrase(en, de, de[-1], de[-1], kind="fixed", closed=True), slot.german
    if "person" in slot.classes and not negation and d.rng.random() < 0.1:
        phrase = phrases.name(d)
        phrase.closed = True
        return phrase, slot.german
    noun = choice.nouns(slot.classes).draw(d.rng)
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
    d: Draft, c: Clause, verb: Verb, slots: list[tuple[int, Slot]], given: dict[int, Phrase],
    plan: Plan, past: bool, level: int, rc: bool,
) -> tuple[list[tuple[Slot, Phrase]], bool]:  # fmt: skip
    """Adds the complements in English order; returns them, and whether a kein negates."""
    swapped = len(slots) > 1 and slots[0][1].case == "d" and not slots[0][1].german and (
        "t" in verb.flags or (1 in given and given[1].kind == "pronoun")
    )  # fmt: skip
    order = slots[::-1] if swapped else slots
    negation = d.key()
    kein = False
    filled: list[tuple[Slot, Phrase]] = []
    for position, (i, slot) in enumerate(order):
        phrase = given.get(i)
        german = _government(slot, phrase.noun)[0] if phrase else slot.german
        if phrase is None:
            direct = slot.case == "a" and not german
            none = plan.negated and direct and d.rng.random() < 0.5
            kein |= none
            phrase, german = _complement(
                d, slot, c.subject.owner, plan.negated, negation if none else 0
            )
            if (
                rc and position == len(order) - 1 and not plan.trailing() and not plan.negated
                and not phrase.closed and level < d.limit
                and d.rng.random() < (0.2 if level == 0 else 0.08) * d.nest
            ):  # fmt: skip
                relative(d, phrase, past, level + 1)
        filled.append((slot, phrase))
        if phrase.kind != "relative":
            before = "to" if swapped and i == 0 else slot.english
            phrases.prefix(d, before, german, phrase)
            c.en_rest += phrase.en
    if plan.negated:
        c.en_aux.insert(1, Word("not", negation))
    return filled, kein


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
        return d.pair(*choice.TIMES["future"].draw(d.rng))
    if d.rng.random() < 0.15:
        weather = phrases.noun_phrase(d, choice.WEATHER.draw(d.rng), "g", determiner=phrases.THE)
        phrases.prefix(d, *d.rng.choice(_WEATHER), weather)
        return weather.en, weather.de
    pair = choice.TIMES["past" if past else "present"].draw(d.rng)
    if plan.negated and pair[0].startswith("every"):
        raise Reject
    return d.pair(*pair)


def _place(d: Draft) -> Phrase:
    noun = choice.PLACES.draw(d.rng)
    assert noun.place
    place = phrases.noun_phrase(d, noun, "d", determiner=phrases.here(d))
    return phrases.prefix(d, *noun.place, place)


def clause(
    d: Draft, past: bool, level: int, *, subject: Phrase | None = None, verb: Verb | None = None,
    given: dict[int, Phrase] | None = None, tense: str = "", ask: bool = False, top: bool = False,
    plain: bool = False, event: bool = False, rc: bool = True,
    mode: str = "",
) -> Clause:  # fmt: skip
    """A clause around a verb, `level` clauses deep.

    `given` fills complements beforehand, with relative or personal pronouns; `top` allows an
    adverbial in front; `plain` keeps adverbials and negation out, `event` also states; `rc`
    allows relative clauses on complements; `mode` to or ing makes it an infinitive.
    """
    d.depth = max(d.depth, level)
    rng, given = d.rng, given or {}
    if verb is None:
        noun = subject.noun if subject else None
        pool = choice.subject_verbs(noun) if noun else choice.PERSON_VERBS if subject else _VERBS
        verb = pool.draw(rng)
    if verb.english[0] in d.verbs or (event and "s" in verb.flags):
        raise Reject
    d.verbs.add(verb.english[0])
    slots = list(enumerate(verb.slots))
    passive = (
        subject is None and not given and len(slots) > 0 and slots[0][1].case == "a"
        and not slots[0][1].german and not verb.flags & {"s", "u"} and d.chance(0.12)
    )  # fmt: skip
    if subject is None:
        classes = slots[0][1].classes if passive else verb.subjects
        human = not passive and "person" in classes and (len(classes) == 1 or rng.random() < 0.8)
        noun = None if human else choice.nouns(classes).draw(rng)
        subject = subject_phrase(d, noun, past, level)
    slots = slots[1:] if passive else slots
    kinds = subject.noun.classes if subject.noun else {"person"}
    animate = not passive and bool({"person", "animal"} & kinds)
    if mode:
        tense = "infinitive"
    tense = tense or _tense(d, verb, past, ask, passive, animate)
    plan = _plan(d, verb, subject, tense, passive, plain or event, top)
    if mode:
        c = infinitive(d, verb, subject, ing=mode == "ing")
    else:
        c = chain(d, verb, subject, tense, do=ask or plan.negated, ask=ask, passive=passive,
                  lifeless=not animate)  # fmt: skip
    filled, kein = _complements(d, c, verb, slots, given, plan, past, level, rc)
    _cues(d, verb, c, filled, passive)
    if verb.particle in ("up", "on") and 0 in given and given[0].kind == "pronoun":
        particle = next(word for word in c.en_rest if word.text == verb.particle)
        c.en_rest.remove(particle)
        c.en_rest.append(particle)  # picks it up

    often, manner, time = list[Word](), list[Word](), list[Word]()
    place = agent = None
    if plan.often or (
        tense == "perfect" and not (plan.negated or plain or event) and d.chance(0.4)
    ):
        en, often = d.pair(*(choice.FREQUENCY if plan.often else choice.PERFECT).draw(rng))
        c.en_rest[:0] = en
        if en[0].text in ("never", "rarely") and any(w.text in _UNNEGATED for w in c.en_rest):
            raise Reject
    if plan.mannered:
        en, manner = d.pair(*choice.MANNER.draw(rng))
        c.en_rest += en
    cued = f"{verb.english[0]} {verb.particle}" in choice.CUED_VERBS and verb.english[0] == "eat"
    if passive and (cued or (rng.random() < 0.45 and not any(p.tail for _, p in filled))):
        kind = "person" if "person" in verb.subjects else sorted(verb.subjects)[0]
        doer = choice.nouns(frozenset({kind})).draw(rng)
        agent = phrases.prefix(d, "by", "von", phrases.noun_phrase(d, doer, "d"))
        c.en_rest += agent.en
    if plan.placed:
        place = _place(d)
        if plan.fronted:
            c.front_en, c.front_de, place = place.en, place.de, None
        else:
            c.en_rest += place.en
    if plan.timed:
        en, time = _time(d, past, plan)
        if plan.fronted and not plan.placed:
            c.front_en, c.front_de, time = en, time, []
        else:
            c.en_rest += en
    _order(c, filled, plan, kein, time, often, manner, agent, place)
    return c


def _order(
    c: Clause, filled: list[tuple[Slot, Phrase]], plan: Plan, kein: bool, time: list[Word],
    often: list[Word], manner: list[Word], agent: Phrase | None, place: Phrase | None,
) -> None:  # fmt: skip
    """The German middle field: pronouns, time, definite objects, frequency, manner, place,
    indefinite objects, phrases with a preposition. Objects with a relative clause stay behind the
    frequency, so that the clause, at the end of the field, moves behind the closing verbs."""
    fresh = [(slot, p) for slot, p in filled if p.kind != "relative"]
    bare = [(s, p) for s, p in fresh if p.kind != "pronoun" and s.case and not s.german]
    datives = [p for s, p in bare if s.case == "d"]
    definite = [p for s, p in bare if s.case == "a" and not p.indefinite and not kein]
    indefinite = [p for s, p in bare if s.case == "a" and (p.indefinite or kein)]
    oblique = [p for s, p in fresh if not s.case or s.german]
    groups: list[Phrase | list[Word]]
    if plan.negated:
        key = c.en_aux[1].key  # of the `not` behind the English auxiliary
        groups = [*datives, *definite, time, [] if kein else [Word("nicht", key)]]
    elif often:
        early = [p for p in datives + definite if not p.indefinite and not p.tail]
        late = [p for p in datives + definite if p not in early]
        groups = [*early, often, *late, manner]
    else:
        groups = [time, *datives, c.fond, *definite, manner]
    groups += [p for p in (agent, place) if p]
    groups = [g for g in [*groups, *indefinite, *oblique] if g]
    c.light = [word for s, p in fresh if p.kind == "pronoun" and not s.german for word in p.de]
    for g in groups:
        c.middle += whole(g) if isinstance(g, Phrase) else g
    final = groups[-1] if groups else None
    if isinstance(final, Phrase) and final.tail:
        c.extra = c.middle[-len(final.tail) - 2 :]
        del c.middle[-len(final.tail) - 2 :]


_DEGREES = (("very", "sehr"), ("too", "zu"), ("rather", "ziemlich"), ("not", "nicht"))


def copula(d: Draft, past: bool, subject: Phrase | None, level: int) -> Clause:
    """A subject, a form of be, and an adjective with its degree, or compared."""
    d.depth = max(d.depth, level)
    if subject is None:
        noun = choice.copula_nouns().draw(d.rng)
        subject = subject_phrase(d, noun, past, level)
    noun_ = subject.noun
    if noun_ is None or "weather" in noun_.classes:  # heavy rain, but no rain is heavy
        raise Reject
    adjective = choice.adjectives(noun_).draw(d.rng)
    if adjective.english in d.adjectives or choice.opposed(adjective.english, subject.adjectives):
        raise Reject
    d.adjectives.add(adjective.english)
    key, adjective_key = d.key(), d.key()
    finite = Word(forms.SEIN[past][subject.person], key)
    c = Clause(
        subject,
        [Word(BE["past" if past else "present"][subject.be], key)],
        [],
        finite,
        finite.text,
        [],
    )
    d.depend("subject", finite, subject.word)
    word, compared = Word(adjective.german, adjective_key), adjective.english
    r = d.rng.random()
    degree = d.pair(*_DEGREES[int(r / 0.12)]) if r < 0.48 else ([], [])
    if r > 0.9 and adjective.comparative and subject.kind == "noun":
        other = choice.copula_nouns().draw(d.rng)
        if not other.classes & noun_.classes & adjective.classes:
            raise Reject
        than = phrases.prefix(d, "than", "als", phrases.noun_phrase(d, other, "n", simple=True))
        compared, word.text = adjective.comparative
        c.extra = than.de
    if adjective.english in choice.CUED_ADJECTIVES:
        d.depend("cue", word, subject.head)
    c.en_rest = degree[0] + [Word(text, adjective_key) for text in compared.split()]
    c.en_rest += than.en if c.extra else []
    c.middle = [*degree[1], word]
    return c
