"""Sentences of the grammar corpus, and the corpus that is drawn from them."""

import random
from collections.abc import Callable
from typing import NamedTuple

from t2t_jax.data.grammar import choice, clauses, phrases
from t2t_jax.data.grammar import inflection as forms
from t2t_jax.data.grammar.clauses import clause, copula
from t2t_jax.data.grammar.draft import COMMA, Draft, Phrase, Pool, Reject, Word
from t2t_jax.data.grammar.verbs import Clause, english, last, second

MAX_WORDS = 22  # of a training sentence, on either side
MAX_DEPTH = 2  # of clauses in a training sentence


class Dependency(NamedTuple):
    """The target word at `position` hangs on the target word at `head` (indices into `words`).

    `kind`: subject (finite verb on the word that it agrees with), prefix (separable prefix on its
    verb), auxiliary (participle or infinitive on its finite verb), relative (relative pronoun on
    its noun), antecedent (pronoun on its noun), conjunction (final verb on the word that sends it
    there), cue (a word with several translations on the word that decides).
    """

    kind: str
    position: int
    head: int


class Pair(NamedTuple):
    """A sentence and its translation, with gold structure over `words` of either side."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]  # (source word, target word), sorted
    dependencies: tuple[Dependency, ...]
    dependency: int  # the longest |position - head|, in target words; 0 if there is none
    depth: int  # how deeply clauses are nested; a main clause alone has 0


def words(text: str) -> list[str]:
    """The words of a sentence: split at spaces, punctuation taken off. Indices count these."""
    return [word.strip(",.?!") for word in text.split()]


def _text(phrase: list[Word], end: str) -> tuple[str, dict[int, list[int]], dict[Word, int]]:
    """The text, the positions of every key, and of every word."""
    texts: list[str] = []
    keys: dict[int, list[int]] = {}
    places: dict[Word, int] = {}
    for word in phrase:
        if word is COMMA:
            if not texts[-1].endswith(","):
                texts[-1] += ","
            continue
        keys.setdefault(word.key, []).append(len(texts))
        places[word] = len(texts)
        texts.append(word.text)
    texts[-1] = texts[-1].removesuffix(",") + end
    texts[0] = texts[0][0].upper() + texts[0][1:]
    return " ".join(texts), keys, places


def _pair(d: Draft, en: list[Word], de: list[Word], end: str) -> Pair:
    source, en_keys, _ = _text(en, end)
    target, de_keys, places = _text(de, end)
    alignment = sorted(
        (i, j) for key, at in en_keys.items() for i in at for j in de_keys.get(key, ())
    )
    dependencies = tuple(
        Dependency(kind, places[word], places[head])
        for kind, word, head in d.dependencies
        if word in places and head in places
    )
    longest = max((abs(x.position - x.head) for x in dependencies), default=0)
    return Pair(source, target, tuple(alignment), dependencies, longest, d.depth)


_GOVERNING = {kind: Pool(verbs) for kind, verbs in forms.GOVERNING.items()}
_CONJUNCTIONS = {kind: Pool(pairs) for kind, pairs in forms.CONJUNCTIONS.items()}
_PLACED = Pool(v for v in forms.VERBS if "p" in v.flags and "person" in v.subjects)
_EVENTS = Pool(v for v in choice.PERSON_VERBS.items if not v.flags & {"s", "u"})

Sides = tuple[list[Word], list[Word], str]


def _subordinate(d: Draft, c: Clause, english_word: str, german_word: str) -> tuple[list, list]:
    en, de = d.pair(english_word, german_word)
    d.depend("conjunction", c.finite, de[0])
    return en + english(c), de + last(c)


def _statement(d: Draft) -> Sides:
    past = d.rng.random() < 0.45
    c = copula(d, past, None, 0) if d.rng.random() < 0.12 else clause(d, past, 0, top=True)
    return english(c), second(c), "."


def _antecedent(d: Draft) -> Phrase | None:
    """Someone or something mentioned so far that a pronoun takes up without ambiguity."""
    rivals: dict[str, list[Phrase]] = {}
    for phrase in d.mentions:
        noun = phrase.noun
        human = phrase.kind == "name" or (noun and "person" in noun.classes)
        kind = "they" if phrase.plural else "person" if human else "it"
        rivals.setdefault(kind, []).append(phrase)
    found = [group[0] for group in rivals.values() if len(group) == 1 and phrases.refer(group[0])]
    return d.rng.choice(found) if found else None


def _with_pronoun(
    d: Draft, past: bool, level: int, *, tense: str = "", event: bool = False, copular: bool = True
) -> Clause | None:
    """A clause with a pronoun for an antecedent in an earlier clause; None if there is none."""
    antecedent = _antecedent(d)
    if antecedent is None:
        return None
    name, noun = phrases.refer(antecedent), antecedent.noun
    assert name
    human = noun is None or "person" in noun.classes
    cued = noun is not None and noun.english[0] in choice.CUED_NOUNS
    if d.rng.random() < (0.7 if human else 0.4):
        subject = phrases.pronoun(d, name, "n", antecedent)
        if copular and noun and not cued and d.rng.random() < (0.4 if human else 1.0):
            return copula(d, past, subject, level)
        return clause(d, past, level, subject=subject, tense=tense, event=event)
    if noun is None:
        return None
    verb, i = choice.object_verbs(noun, preposition=human).draw(d.rng)
    pronoun = phrases.pronoun(d, name, verb.slots[i].case, antecedent)
    return clause(d, past, level, verb=verb, given={i: pronoun}, tense=tense, event=event)


def _joined(d: Draft) -> Sides:
    """A main and a subordinate clause, in either order."""
    past = d.rng.random() < 0.45
    now = "past" if past else "present"
    r = d.rng.random()
    kind = "any" if r < 0.5 else "action" if r < 0.68 else "earlier" if r < 0.76 else now
    conjunction = _CONJUNCTIONS[kind].draw(d.rng)
    event = kind in ("action", "earlier")
    tense = "" if kind == "any" else now
    if kind == "earlier":
        tense = "pluperfect" if past else "perfect"
    pronominal = d.rng.random() < 0.5

    def subordinate(refers: bool) -> tuple[list[Word], list[Word]]:
        c = None
        if refers:
            c = _with_pronoun(d, past, 1, tense=tense, event=event, copular=not event)
        if c is None and not event and d.rng.random() < 0.2:
            c = copula(d, past, None, 1)
        c = c or clause(d, past, 1, tense=tense, event=event)
        return _subordinate(d, c, *conjunction)

    if d.rng.random() < 0.45:
        en, de = subordinate(False)
        m = None
        if pronominal:
            m = _with_pronoun(d, past, 0, event=event, copular=False)
        m = m or clause(d, past, 0, event=event)
        return [*en, COMMA, *english(m)], second(m, [*de, COMMA]), "."
    m = clause(d, past, 0, top=not event, event=event)
    en, de = english(m), second(m)
    sub_en, sub_de = subordinate(pronominal)
    comma = [COMMA] if conjunction[0] in ("although", "while") else []
    return [*en, *comma, *sub_en], [*de, COMMA, *sub_de], "."


def _matrix(d: Draft, kind: str, past: bool) -> Clause:
    """A main clause that governs another: says, tries."""
    verb = _GOVERNING[kind].draw(d.rng)
    subject = clauses.subject_phrase(d, None, past, 0)
    tense = "past" if past else "present"
    return clause(d, past, 0, subject=subject, verb=verb, tense=tense, plain=True)


def _report(d: Draft) -> Sides:
    past = d.rng.random() < 0.35
    kind = "that" if d.rng.random() < 0.75 else "whether"
    m = _matrix(d, kind, past)
    en, de = english(m), second(m)
    c = None
    if d.rng.random() < 0.4:
        c = _with_pronoun(d, past, 1)
    c = c or clause(d, past, 1)
    sub_en, sub_de = _subordinate(d, c, kind, "dass" if kind == "that" else "ob")
    return [*en, *sub_en], [*de, COMMA, *sub_de], "."


def _purpose(d: Draft) -> Sides:
    """Infinitives: tries to, in order to, without -ing."""
    past = d.rng.random() < 0.45
    r = d.rng.random()
    verb = _EVENTS.draw(d.rng)
    if r < 0.55:
        m = _matrix(d, "to", past)
        opener: tuple[list[Word], list[Word]] = ([], [])
    else:
        subject = clauses.subject_phrase(d, None, past, 0)
        tense = "past" if past else "present"
        doing = _EVENTS.draw(d.rng)
        m = clause(d, past, 0, subject=subject, verb=doing, tense=tense, event=True, rc=False)
        opener = d.pair("in order", "um") if r < 0.8 else d.pair("without", "ohne")
    ing = "ing" if r >= 0.8 else "to"
    en, de = english(m), second(m)
    c = clause(d, past, 1, subject=m.subject, verb=verb, mode=ing)
    bare = not opener[1] and not c.clitic + c.middle + c.extra
    inf_de = opener[1] + c.clitic + c.middle + c.right + c.extra
    return [*en, *opener[0], *c.en_rest], [*de, *([] if bare else [COMMA]), *inf_de], "."


def _coordination(d: Draft) -> Sides:
    past = d.rng.random() < 0.5
    a = clause(d, past, 0, top=True)
    en, de = english(a), second(a)
    b = _with_pronoun(d, past, 0) if d.rng.random() < 0.75 else None
    b = b or clause(d, past, 0)
    and_en, and_de = d.pair(*(("and", "und") if d.rng.random() < 0.65 else ("but", "aber")))
    return [*en, COMMA, *and_en, *english(b)], [*de, COMMA, *and_de, *second(b)], "."


def _feminine(d: Draft) -> Sides:
    """The teacher ... her: only the pronoun tells that the teacher is a woman."""
    past = d.rng.random() < 0.45
    article = d.rng.choice((phrases.THE, phrases.A))
    subject = phrases.noun_phrase(d, choice.SHE.draw(d.rng), "n", determiner=article)
    if d.rng.random() < 0.4:
        clauses.relative(d, subject, past, 1)
    m = clause(d, past, 0, subject=subject, verb=choice.PERSON_VERBS.draw(d.rng))
    en, de = english(m), second(m)
    humans = [
        p for p in d.mentions if p.kind == "name" or "person" in getattr(p.noun, "classes", ())
    ]
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
    c = clause(d, past, 1, subject=pronoun) if d.rng.random() < 0.6 else copula(d, past, pronoun, 1)
    d.depend("cue", subject.head, pronoun.word)
    sub_en, sub_de = _subordinate(d, c, "because", "weil")
    return [*en, *sub_en], [*de, COMMA, *sub_de], "."


def _question(d: Draft) -> Sides:
    """Yes or no, why, when, where; whom `you` means shows only in the address at the end."""
    past = d.rng.random() < 0.4
    r = d.rng.random()
    opener: tuple[list[Word], list[Word]] = ([], [])
    if r < 0.5:
        who = d.rng.choice(("du", "Sie", "ihr"))
        if d.rng.random() < 0.3:
            opener = d.pair("why", "warum")
        subject = phrases.pronoun(d, who, "n")
        c = clause(d, past, 0, subject=subject, ask=True, plain=d.rng.random() < 0.5)
        call_en, call_de, decisive = _address(d, who)
        d.depend("cue", subject.word, decisive)
        en, de = opener[0] + english(c, ask=True), second(c, opener[1])
        return [*en, COMMA, *call_en], [*de, COMMA, *call_de], "?"
    if r < 0.62:
        opener = d.pair("why", "warum")
        c = clause(d, past, 0, ask=True)
    elif r < 0.68:
        opener = d.pair("when", "wann")
        c = clause(d, past, 0, ask=True, event=True)
    elif r < 0.74:
        opener = d.pair("where", "wo")
        c = clause(d, past, 0, ask=True, verb=_PLACED.draw(d.rng), plain=True)
    else:
        c = clause(d, past, 0, ask=True)
    return opener[0] + english(c, ask=True), second(c, opener[1]), "?"


def _address(d: Draft, who: str) -> tuple[list[Word], list[Word], Word]:
    """The vocative that tells du, ihr and Sie apart, and its deciding German word."""
    if who == "du":
        phrase = phrases.name(d)
        return phrase.en, phrase.de, phrase.word
    if who == "ihr":
        en, de = d.pair(
            *d.rng.choice(
                (("children", "Kinder"), ("boys", "Jungs"), ("my friends", "meine Freunde"))
            )
        )
        return en, de, de[-1]
    title = d.pair(*d.rng.choice((("Mr", "Herr"), ("Mrs", "Frau"))))
    text = Pool(forms.lexicon.SURNAMES.split()).draw(d.rng)
    surname = d.pair(text, text)
    return title[0] + surname[0], title[1] + surname[1], title[1][0]


CONSTRUCTIONS: list[tuple[float, Callable[[Draft], Sides]]] = [
    (0.34, _statement),
    (0.22, _joined),
    (0.11, _report),
    (0.09, _purpose),
    (0.10, _coordination),
    (0.04, _feminine),
    (0.10, _question),
]


def draw(rng: random.Random, limit: int = MAX_DEPTH, rich: float = 1.0, nest: float = 1.0) -> Pair:
    """One sentence pair of depth at most `limit`; `rich` multiplies the chance of adjectives and
    adverbials, `nest` that of relative clauses."""
    while True:
        d = Draft(rng, limit=limit, rich=rich, nest=nest)
        construction = _construction(rng.random())
        try:
            sides = construction(d)
        except Reject:
            continue
        heads = {p.noun.english[0] if p.noun else p.head.text for p in d.mentions}
        if len(heads) == len(d.mentions):  # nobody and nothing is named twice
            return _pair(d, *sides)


def _construction(r: float) -> Callable[[Draft], Sides]:
    for share, construction in CONSTRUCTIONS:
        r -= share
        if r < 0:
            return construction
    return CONSTRUCTIONS[0][1]


def generate(
    seed: int = 0,
    train: int = 60_000,
    dev: int = 1_000,
    test: int = 1_000,
    long: int = 500,
    deep: int = 500,
) -> dict[str, list[Pair]]:
    """The splits train, dev, test, test_long and test_deep, of these sizes; all sources differ.

    Train, dev and test have at most MAX_WORDS words a side and depth MAX_DEPTH. test_long has more
    than MAX_WORDS words on both sides at no greater depth; test_deep has depth MAX_DEPTH + 1 or
    more within MAX_WORDS words. The same arguments give the same bytes everywhere.
    """
    seen = set[str]()

    def collect(
        count: int, name: str, wanted: Callable[[Pair, int, int], bool], **how
    ) -> list[Pair]:
        rng = random.Random(f"{seed} {name}")
        pairs: list[Pair] = []
        while len(pairs) < count:
            pair = draw(rng, **how)
            lengths = pair.source.count(" ") + 1, pair.target.count(" ") + 1
            if pair.source not in seen and wanted(pair, min(lengths), max(lengths)):
                seen.add(pair.source)
                pairs.append(pair)
        return pairs

    usual = collect(train + dev + test, "usual", lambda _, low, high: high <= MAX_WORDS)
    random.Random(f"{seed} split").shuffle(usual)
    return {
        "train": usual[dev + test :],
        "dev": usual[:dev],
        "test": usual[dev : dev + test],
        "test_long": collect(
            long, "long", lambda _, low, high: low > MAX_WORDS, rich=2.0, nest=4.0
        ),
        "test_deep": collect(
            deep,
            "deep",
            lambda pair, low, high: pair.depth > MAX_DEPTH and high <= MAX_WORDS,
            limit=MAX_DEPTH + 2,
            rich=0.3,
            nest=8.0,
        ),
    }
