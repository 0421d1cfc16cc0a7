"""All forms of the words in lexicon.txt; regular words have forms by rule.

Cases are n(ominative), a(ccusative), d(ative), g(enitive); genders are m, f, n. The six finite
forms of a tense are in the order ich, du, er, wir, ihr, sie; Sie has the form of sie.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ER, SIE = 2, 5
CASES = "nadg"
# A verb's flags in the lexicon.
PLACED, MANNERED, LIKED, STATE, DATIVE_LAST, INVOLUNTARY = "pmgstu"
_INSEPARABLE = ("be", "emp", "ent", "er", "ge", "ver", "zer")


@dataclass(frozen=True, eq=False)
class Noun:
    english: tuple[str, str]  # singular, plural
    german: dict[tuple[bool, str], str]  # (plural, case) -> form
    gender: str
    classes: frozenset[str]
    place: tuple[str, str] | None  # English and German preposition for being there
    direction: tuple[str, str]  # German preposition for going there, and its case
    countable: bool


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    german: str
    stem: str  # before an ending
    comparative: tuple[str, str] | None
    classes: frozenset[str]
    excepted: frozenset[str]


@dataclass(frozen=True)
class Slot:
    """A complement of a verb: its prepositions (or ""), its German case, the nouns it admits."""

    english: str
    german: str
    case: str  # a, d, or "" for a fixed phrase (vehicle, city)
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class Verb:
    english: tuple[str, str, str]  # base, past, participle
    third: str  # English -s
    gerund: str
    particle: str  # "up" of "pick up"
    prefix: str  # separable
    base: str  # German infinitive without it
    present: tuple[str, ...]
    past: tuple[str, ...]
    participle: str  # with the prefix
    sein: bool
    reflexive: bool
    subjects: frozenset[str]
    slots: tuple[Slot, ...]
    flags: frozenset[str]

    @property
    def infinitive(self) -> str:
        return self.prefix + self.base


def with_s(word: str, noun: bool = False) -> str:
    """watch -> watches, carry -> carries; go -> goes, but a noun in -o takes -s."""
    if re.search("(s|x|z|ch|sh)$", word) or (word.endswith("o") and not noun):
        return word + "es"
    return re.sub("([^aeiou])y$", r"\1ie", word) + "s"


def _doubled(base: str) -> str:
    """plan -> plann-, put -> putt-: a short stressed vowel before one consonant."""
    if base in ("open", "visit", "listen", "deposit"):
        return base
    return base + base[-1] if re.search("[^aeiou][aeiou][bdgmnpt]$", base) else base


def english_past(base: str) -> str:
    """close -> closed, try -> tried, plan -> planned."""
    return re.sub("([^aeiou])y$", r"\1i", _doubled(base)).removesuffix("e") + "ed"


def gerund(base: str) -> str:
    """write -> writing, put -> putting, see -> seeing."""
    return re.sub("([^e])e$", r"\1", _doubled(base)) + "ing"


def english_comparative(adjective: str) -> str:
    """big -> bigger, happy -> happier, beautiful -> more beautiful."""
    if len(re.findall("[aeiouy]+", adjective.removesuffix("e"))) == 1:
        doubled = re.search("[^aeiou][aeiou][bdgnt]$", adjective)
        return adjective.removesuffix("e") + (adjective[-1] if doubled else "") + "er"
    if adjective.endswith("y"):
        return adjective[:-1] + "ier"
    return "more " + adjective


def _stem(infinitive: str) -> str:
    return infinitive.removesuffix("n").removesuffix("e")


def _needs_e(stem: str) -> bool:
    """arbeit-e-t, öffn-e-t, find-e-st, but lern-t, komm-t."""
    return bool(re.search("([td]|[^aeiouäöühlrmn][mn])$", stem))


def present(infinitive: str, third: str = "") -> tuple[str, ...]:
    """Present tense; `third` is the er-form of a verb that changes its vowel there."""
    stem = _stem(infinitive)
    e = "e" if _needs_e(stem) else ""
    if third and third != stem + e + "t":
        strong = third if stem.endswith("t") else third.removesuffix("t")
        du = strong + ("t" if re.search("[sßzx]$", strong) else "st")
    else:
        third = stem + e + "t"
        du = stem + ("t" if re.search("[sßzx]$", stem) else e + "st")
    first = stem + "e" if third.endswith("t") else third  # ich weiß
    return first, du, third, infinitive, stem + e + "t", infinitive


def preterite(form: str) -> tuple[str, ...]:
    """Preterite from its er-form, weak (-te) or strong."""
    if form.endswith("te"):
        return form, form + "st", form, form + "n", form + "t", form + "n"
    e = "e" if re.search("[tdsßz]$", form) else ""
    t = "e" if re.search("[td]$", form) else ""
    return form, form + e + "st", form, form + "en", form + t + "t", form + "en"


def participle(infinitive: str) -> str:
    """Weak participle without a separable prefix: gekauft, besucht, repariert."""
    stem = _stem(infinitive)
    ge = "" if stem.startswith(_INSEPARABLE) or stem.endswith("ier") else "ge"
    return ge + stem + ("et" if _needs_e(stem) else "t")


def _lexicon() -> dict[str, list[tuple[list[str], list[str]]]]:
    """For every line of each section the classes in its heading, and its columns."""
    sections, heading = dict[str, list[tuple[list[str], list[str]]]](), list[str]()
    for line in Path(__file__).with_name("lexicon.txt").read_text("utf-8").splitlines():
        if line.startswith("== "):
            rows = sections.setdefault(line[3:], [])
        elif line.startswith("["):
            heading = line.strip("[]").split()
        elif line and line[0] != "#":
            rows.append((heading, re.split(r"\s{2,}", line)))
    return sections


def _noun(heading: list[str], columns: list[str]) -> Noun:
    english, _, irregular = columns[0].partition("/")
    article, rest = columns[1].split(" ", 1)
    word, genitive, plural = rest.split(", ")
    gender = {"der": "m", "die": "f", "das": "n"}[article]
    ending = genitive.strip("-")
    oblique = word + ending.removesuffix("s") if re.fullmatch("e?ns?", ending) else word
    many = word + plural[1:] if plural.startswith("-") else plural
    forms = dict.fromkeys([(True, case) for case in CASES], many)
    forms[True, "d"] = many if many[-1] in "ns" else many + "n"
    forms |= {(False, "n"): word, (False, "a"): oblique, (False, "d"): oblique}
    forms[False, "g"] = word + ending
    place, direction, own = None, ("zu", "d"), list[str]()
    for column in columns[2:]:
        if "=" in column:
            before, _, after = column.partition("=")
            german, _, towards = after.partition("/")
            place = before, german
            direction = (towards, "d") if towards else (german, "a")
        else:
            own = column.split()
    return Noun(
        english=(english, irregular or with_s(english, noun=True)),
        german=forms,
        gender=gender,
        classes=frozenset([*heading, *own, english]),
        place=place,
        direction=direction,
        countable=plural != "0",
    )


def _slot(text: str) -> Slot:
    before, _, rest = text.rpartition("+")
    if not before and "=" in rest:  # by=mit, to=nach
        english, german = rest.split("=")
        return Slot(english, german, "", frozenset())
    english, _, german = before.partition("=")
    case, classes = rest.split(":")
    return Slot(english, german, case[0], frozenset(classes.split(",")))


def _verb(columns: list[str]) -> Verb:
    english, _, particle = columns[0].partition("_")
    particle, *irregular = particle.split("/") if particle else [""]
    base, *past = english.split("/") + irregular
    past = past or [english_past(base)]
    frame = " ".join(columns[2:]).split()
    subjects = frame[: frame.index(":")] if ":" in frame else ["person"]
    slots = [word for word in frame if ":" in word[1:] or "=" in word]
    flags = frame[-1][1:] if frame and frame[-1][0] == "-" else ""
    infinitive, *parts = columns[1].split()
    reflexive = infinitive.startswith("sich_")
    prefix, _, bare = infinitive.removeprefix("sich_").rpartition("|")
    weak = _stem(bare) + ("ete" if _needs_e(_stem(bare)) else "te")
    third, past_er, third_form = parts if parts else ["", weak, prefix + participle(bare)]
    return Verb(
        english=(base, past[0], past[-1]),
        third=with_s(base),
        gerund=gerund(base),
        particle=particle,
        prefix=prefix,
        base=bare,
        present=present(bare, third),
        past=preterite(past_er),
        participle=third_form.removeprefix("ist_"),
        sein=third_form.startswith("ist_"),
        reflexive=reflexive,
        subjects=frozenset(subjects),
        slots=tuple(_slot(slot) for slot in slots),
        flags=frozenset(flags),
    )


def _adjective(columns: list[str]) -> Adjective:
    english, german, classes = columns
    form, *irregular = german.split()
    form, _, stem = form.partition(":")
    return Adjective(
        english=english,
        german=form,
        stem=stem or form.removesuffix("e"),
        comparative=(english_comparative(english), irregular[0]) if irregular else None,
        classes=frozenset(c for c in classes.split() if c[0] != "-"),
        excepted=frozenset(c[1:] for c in classes.split() if c[0] == "-"),
    )


def _pairs(section: str) -> dict[str, list[tuple[str, str]]]:
    """Heading -> (English, German) of every line."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for heading, (english, german) in _LEXICON[section]:
        pair = english.replace("_", " "), german.replace("_", " ")
        pairs.setdefault(" ".join(heading), []).append(pair)
    return pairs


_LEXICON = _lexicon()
NOUNS = [_noun(heading, columns) for heading, columns in _LEXICON["nouns"]]
VERBS = [_verb(columns) for _, columns in _LEXICON["verbs"]]
ADJECTIVES = [_adjective(columns) for _, columns in _LEXICON["adjectives"]]
GOVERNING: dict[str, list[Verb]] = {}
for (_kind,), _columns in _LEXICON["governing"]:
    GOVERNING.setdefault(_kind, []).append(_verb(_columns))
ADVERBS, CONJUNCTIONS = _pairs("adverbs"), _pairs("conjunctions")
OPPOSITES = [frozenset(line.split()) for _, (line,) in _LEXICON["opposites"]]
NAMES, SURNAMES = (_LEXICON[section][0][1][0].split() for section in ("names", "surnames"))

# Auxiliaries: present and preterite.
SEIN = "bin bist ist sind seid sind".split(), preterite("war")
HABEN = present("haben", "hat"), preterite("hatte")
WERDEN = (
    "werde wirst wird werden werdet werden".split(),
    "wurde wurdest wurde wurden wurdet wurden".split(),
)
MODALS = {  # English, its past (or none) -> German present, preterite
    ("can", "was able to"): ("kann kannst kann können könnt können", "konnte"),
    ("must", "had to"): ("muss musst muss müssen müsst müssen", "musste"),
    ("want to", "wanted to"): ("will willst will wollen wollt wollen", "wollte"),
    ("should", ""): ("sollte solltest sollte sollten solltet sollten", ""),
    ("is allowed to", "was allowed to"): ("darf darfst darf dürfen dürft dürfen", "durfte"),
}


def _table(**endings: str) -> dict[tuple[str, str], str]:
    """The endings by (gender or p, case), of which every row has four."""
    return {
        (gender, case): "" if ending == "-" else ending
        for gender, row in endings.items()
        for case, ending in zip(CASES, row.split(), strict=True)
    }


DER = _table(m="der den dem des", f="die die der der", n="das das dem des", p="die die den der")
EIN = _table(m="- en em es", f="e e er er", n="- - em es", p="e e en er")
DIESER = _table(m="er en em es", f="e e er er", n="es es em es", p="e e en er")
STRONG = _table(m="er en em en", f="e e er er", n="es es em en", p="e e en er")
WEAK = _table(m="e en en en", f="e e en en", n="e e en en", p="en en en en")
MIXED = {key: STRONG[key] if not EIN[key] else WEAK[key] for key in WEAK}
RELATIVE = DER | {("p", "d"): "denen"}


def determiner(stem: str, key: tuple[str, str]) -> str:
    """The form of a determiner, given its stem, for (gender or p, case)."""
    if stem == "der":
        return DER[key]
    if stem in ("dies", "jed", "all", "viel"):
        return stem + DIESER[key]
    ending = EIN[key]
    return "eur" + ending if stem == "euer" and ending else stem + ending
