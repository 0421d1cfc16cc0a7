"""Adverbials of a clause: of frequency, manner, agent, place and time."""

from dataclasses import dataclass, field

from t2t_jax.data.grammar import choice, phrases
from t2t_jax.data.grammar.draft import Draft, Phrase, Reject, Word, mark
from t2t_jax.data.grammar.inflection import Slot, Verb
from t2t_jax.data.grammar.plans import UNNEGATED, ClauseSpec, Plan
from t2t_jax.data.grammar.verbs import Clause

_WEATHER = (("during", "während"), ("despite", "trotz"), ("because of", "wegen"))
_AGENT, _PERFECT_ADVERB, _CIRCUMSTANCE = 0.45, 0.4, 0.15  # probabilities


@dataclass(slots=True)
class Adverbials:
    """German adverbials that stand in the middle field."""

    often: list[Word] = field(default_factory=list)
    manner: list[Word] = field(default_factory=list)
    time: list[Word] = field(default_factory=list)
    agent: Phrase | None = None
    place: Phrase | None = None


def add_adverbials(
    d: Draft,
    spec: ClauseSpec,
    c: Clause,
    verb: Verb,
    plan: Plan,
    filled: list[tuple[Slot, Phrase]],
) -> Adverbials:
    """Adds the planned adverbials in English order; returns the German ones."""
    out = Adverbials()
    bare = plan.negated or spec.plain or spec.event
    if plan.often or (plan.tense == "perfect" and not bare and d.chance(_PERFECT_ADVERB)):
        pool = choice.FREQUENCY if plan.often else choice.PERFECT
        en, out.often = d.pair(*d.draw(pool))
        c.en_rest[:0] = mark("ADVP", en)
        if en[0].text in ("never", "rarely") and any(w.text in UNNEGATED for w in c.en_rest):
            raise Reject
    if plan.mannered:
        en, out.manner = d.pair(*d.draw(choice.MANNER))
        c.en_rest += mark("ADVP", en)
    if plan.passive:
        # A passive names who does it where that decides a translation.
        cued = verb.english[0] == "eat" and f"eat {verb.particle}" in choice.CUED_VERBS
        if cued or (d.rng.random() < _AGENT and not any(p.tail for _, p in filled)):
            kind = "person" if "person" in verb.subjects else sorted(verb.subjects)[0]
            noun = d.draw(choice.nouns(frozenset({kind})))
            out.agent = phrases.prefix(d, "by", "von", phrases.noun_phrase(d, noun, "d"))
            c.en_rest += out.agent.en
    if plan.placed:
        noun = d.draw(choice.PLACES)
        assert noun.place
        place = phrases.noun_phrase(d, noun, "d", determiner=phrases.here(d))
        phrases.prefix(d, *noun.place, place)
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


def _time(d: Draft, past: bool, plan: Plan) -> tuple[list[Word], list[Word]]:
    """A time adverbial that agrees with the tense, or a circumstance: during the storm."""
    if plan.tense != "future" and d.rng.random() < _CIRCUMSTANCE:
        weather = phrases.noun_phrase(d, d.draw(choice.WEATHER), "g", determiner=phrases.THE)
        phrases.prefix(d, *d.rng.choice(_WEATHER), weather)
        return weather.en, weather.de
    tense = "future" if plan.tense == "future" else "past" if past else "present"
    pair = d.draw(choice.TIMES[tense])
    if plan.negated and pair[0].startswith("every"):
        raise Reject
    en, de = d.pair(*pair)
    return mark("ADVP", en), de
