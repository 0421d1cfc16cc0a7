"""What a clause has to be, and what is drawn for it beside its verb and complements: adverbials."""

from dataclasses import dataclass

from t2t_jax.data.grammar import choice, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.draft import Draft, Phrase, Reject, Sides, mark
from t2t_jax.data.grammar.inflection import INVOLUNTARY, STATE, Slot, Verb
from t2t_jax.data.grammar.verbs import Clause, Plan

UNNEGATED = frozenset(("every", "all", "many", "two", "three", "a", "an"))  # beside not, never

# Probabilities.
_PAST_MODAL, _PAST_PROGRESSIVE = 0.1, 0.16  # cumulative
_PRESENT_TENSES = (("modal", 0.12), ("perfect", 0.1), ("future", 0.08))  # not cumulative
_PROGRESSIVE, _FOND = 0.08, 0.18  # cumulative, of what is left
_NEGATED = 0.09
_OFTEN = 0.07
_TIMED_MAIN, _TIMED = 0.36, 0.1
_IN_PLACE, _IN_MANNER, _FRONTED = 0.2, 0.13, 0.5
_AGENT, _PERFECT_ADVERB, _CIRCUMSTANCE = 0.45, 0.4, 0.15

_WEATHER = (("during", "während"), ("despite", "trotz"), ("because of", "wegen"))


@dataclass(frozen=True, slots=True)
class ClauseSpec:
    """What a clause has to be; all else is drawn."""

    past: bool  # whether the sentence is in the past tense
    level: int  # how deeply the clause is nested; 0 for a main clause
    tense: str = ""  # as `verbs.Plan` names it; drawn if empty
    ask: bool = False  # whether it is a question
    top: bool = False  # whether an adverbial may open it
    plain: bool = False  # whether it has neither adverbials nor negation
    event: bool = False  # whether it is plain and its verb names no state
    relatives: bool = True  # whether its complements may have relative clauses
    mode: str = ""  # `to` or `ing` for an infinitive


def draw_tense(d: Draft, spec: ClauseSpec, verb: Verb, passive: bool, animate: bool) -> str:
    """Draws the tense of a finite clause, as `verbs.Plan` names it."""
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
    return "fond" if r < _FOND and forms.LIKED in verb.flags and animate else "present"


def draw_plan(d: Draft, spec: ClauseSpec, verb: Verb, subject: Phrase, plan: Plan) -> Plan:
    """Draws adverbials and negation that agree with the verb, its tense and each other."""
    flags, tense = verb.flags, plan.tense
    if spec.plain or spec.event:
        return plan
    negatable = subject.en[0].text not in UNNEGATED and not plan.passive
    if negatable and tense in ("past", "present", "perfect"):
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
        plan.placed = forms.PLACED in flags and d.chance(_IN_PLACE)
        plan.mannered = forms.MANNERED in flags and not plan.often and d.chance(_IN_MANNER)
    plan.fronted = spec.top and (plan.timed or plan.placed) and d.rng.random() < _FRONTED
    return plan


def add_adverbials(
    d: Draft, spec: ClauseSpec, c: Clause, verb: Verb, plan: Plan, filled: list[tuple[Slot, Phrase]]
) -> None:
    """Adds the planned adverbials to a clause, in English order."""
    bare = plan.negated or spec.plain or spec.event
    if plan.often or (plan.tense == "perfect" and not bare and d.chance(_PERFECT_ADVERB)):
        en, c.often = d.pair(*d.draw(forms.ADVERBS["frequency" if plan.often else "perfect"]))
        c.en_rest[:0] = mark("ADVP", en)
        if en[0].text in ("never", "rarely") and any(w.text in UNNEGATED for w in c.en_rest):
            raise Reject
    if plan.mannered:
        en, c.manner = d.pair(*d.draw(forms.ADVERBS["manner"]))
        c.en_rest += mark("ADVP", en)
    if plan.passive:
        # A passive names who does it where that decides a translation.
        cued = verb.english[0] == "eat" and f"eat {verb.particle}" in choice.CUED_VERBS
        if cued or (d.rng.random() < _AGENT and not any(p.tail for _, p in filled)):
            kind = "person" if "person" in verb.subjects else sorted(verb.subjects)[0]
            noun = d.draw(choice.nouns(frozenset({kind})))
            c.agent = phrases.prefix(d, "by", "von", phrases.noun_phrase(d, noun, "d"))
            c.en_rest += c.agent.en
    if plan.placed:
        noun = d.draw(choice.PLACES)
        assert noun.place
        place = phrases.noun_phrase(d, noun, "d", determiner=phrases.here(d))
        phrases.prefix(d, *noun.place, place)
        if plan.fronted:
            c.front_en, c.front_de = place.en, place.de
        else:
            c.place = place
            c.en_rest += place.en
    if plan.timed:
        en, de = _time(d, spec.past, plan)
        if plan.fronted and not plan.placed:
            c.front_en, c.front_de = en, de
        else:
            c.time = de
            c.en_rest += en


def _time(d: Draft, past: bool, plan: Plan) -> Sides:
    """A time adverbial that agrees with the tense, or a circumstance: during the storm."""
    if plan.tense != "future" and d.rng.random() < _CIRCUMSTANCE:
        weather = phrases.noun_phrase(d, d.draw(choice.WEATHER), "g", determiner=phrases.THE)
        phrases.prefix(d, *d.rng.choice(_WEATHER), weather)
        return weather.en, weather.de
    tense = "future" if plan.tense == "future" else "past" if past else "present"
    pair = d.draw(forms.ADVERBS[f"time {tense}"])
    if plan.negated and pair[0].startswith("every"):
        raise Reject
    en, de = d.pair(*pair)
    return mark("ADVP", en), de
