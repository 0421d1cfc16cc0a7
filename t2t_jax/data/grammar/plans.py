"""What a clause has to be, and what is drawn for it beside its verb and complements."""

from dataclasses import dataclass

from t2t_jax.data.grammar.draft import Draft, Phrase
from t2t_jax.data.grammar.inflection import INVOLUNTARY, LIKED, MANNERED, PLACED, STATE, Verb

UNNEGATED = frozenset(("every", "all", "many", "two", "three", "a", "an"))  # beside not, never

# Probabilities.
_PAST_MODAL, _PAST_PROGRESSIVE = 0.1, 0.16  # cumulative
_PRESENT_TENSES = (("modal", 0.12), ("perfect", 0.1), ("future", 0.08))  # not cumulative
_PROGRESSIVE, _FOND = 0.08, 0.18  # cumulative, of what is left
_NEGATED = 0.09
_OFTEN = 0.07
_TIMED_MAIN, _TIMED = 0.36, 0.1
_IN_PLACE, _IN_MANNER, _FRONTED = 0.2, 0.13, 0.5


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


def draw_tense(d: Draft, spec: ClauseSpec, verb: Verb, passive: bool, animate: bool) -> str:
    """Draws the tense of a finite clause, as `verbs.Chain` names it."""
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


def draw_plan(d: Draft, spec: ClauseSpec, verb: Verb, subject: Phrase, plan: Plan) -> Plan:
    """Draws adverbials and negation that agree with the verb, its tense and each other."""
    flags, tense = verb.flags, plan.tense
    if spec.plain or spec.event:
        return plan
    if (
        not plan.passive
        and tense in ("past", "present", "perfect")
        and subject.en[0].text not in UNNEGATED
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
