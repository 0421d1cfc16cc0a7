"""The built-in corpus agrees with hand-written German in forms, sentences and word order."""

import functools
import hashlib
import random
import re
import typing
from dataclasses import replace

import pytest

from experiments import grades
from t2t_jax.config import Data
from t2t_jax.data import trees
from t2t_jax.data.grammar import (
    GRADES,
    NORMAL,
    Pair,
    draw,
    generate,
    inflection,
    phrases,
    sentences,
    words,
)
from t2t_jax.data.grammar.clauses import clause, relative
from t2t_jax.data.grammar.draft import Draft, Phrase, Reject
from t2t_jax.data.grammar.phrases import MASS, THE, THE_PLURAL, A, noun_phrase, prefix, pronoun
from t2t_jax.data.grammar.plans import ClauseSpec
from t2t_jax.data.grammar.verbs import english, last, second
from tests.process import python

SMALL = {"train": 6000, "dev": 150, "test": 130, "long": 40, "deep": 30}
PLAIN = replace(NORMAL, rich=0, nest=0)


@functools.cache
def corpus_of(grade: str) -> dict[str, list[Pair]]:
    return generate(3, GRADES[grade], **SMALL)


@pytest.fixture(params=GRADES)
def grade(request) -> str:
    return request.param


@pytest.fixture
def corpus(grade) -> dict[str, list[Pair]]:
    return corpus_of(grade)


@pytest.fixture
def pairs(corpus) -> list[Pair]:
    return [pair for split in corpus.values() for pair in split]


# Words and phrases


def noun(english_name: str, german: str = "") -> inflection.Noun:
    nouns = [n for n in inflection.NOUNS if n.english[0] == english_name]
    return next(n for n in nouns if not german or n.german[False, "n"] == german)


def verb(infinitive: str) -> inflection.Verb:
    return next(v for v in inflection.VERBS if v.infinitive == infinitive)


DECLENSIONS = """
baker    der Bäcker, den Bäcker, dem Bäcker, des Bäckers, die Bäcker, den Bäckern
student  der Student, den Studenten, dem Studenten, des Studenten, die Studenten, den Studenten
neighbour der Nachbar, den Nachbarn, dem Nachbarn, des Nachbarn, die Nachbarn, den Nachbarn
guest    der Gast, den Gast, dem Gast, des Gastes, die Gäste, den Gästen
woman    die Frau, die Frau, der Frau, der Frau, die Frauen, den Frauen
daughter die Tochter, die Tochter, der Tochter, der Tochter, die Töchter, den Töchtern
child    das Kind, das Kind, dem Kind, des Kindes, die Kinder, den Kindern
girl     das Mädchen, das Mädchen, dem Mädchen, des Mädchens, die Mädchen, den Mädchen
photo    das Foto, das Foto, dem Foto, des Fotos, die Fotos, den Fotos
garden   der Garten, den Garten, dem Garten, des Gartens, die Gärten, den Gärten
museum   das Museum, das Museum, dem Museum, des Museums, die Museen, den Museen
bus      der Bus, den Bus, dem Bus, des Busses, die Busse, den Bussen
letter/Buchstabe der Buchstabe, den Buchstaben, dem Buchstaben, des Buchstabens, die Buchstaben, den Buchstaben
""".strip().splitlines()  # noqa: E501


@pytest.mark.parametrize("line", DECLENSIONS)
def test_nouns_are_declined(line):
    name, forms = line.split(" ", 1)
    expected = [form.strip() for form in forms.split(",")]
    keys = [(THE, c) for c in "nadg"] + [(THE_PLURAL, c) for c in "nd"]
    forms = []
    for determiner, case in keys:
        d = Draft(random.Random(0), PLAIN)
        phrase = noun_phrase(d, noun(*name.split("/")), case, determiner=determiner)
        forms.append(" ".join(word.text for word in phrase.de))
    assert forms == expected


ADJECTIVES = """
der alte Hund, den alten Hund, dem alten Hund, des alten Hundes
ein alter Hund, einen alten Hund, einem alten Hund, eines alten Hundes
die alte Katze, die alte Katze, der alten Katze, der alten Katze
eine alte Katze, eine alte Katze, einer alten Katze, einer alten Katze
das alte Pferd, das alte Pferd, dem alten Pferd, des alten Pferdes
ein altes Pferd, ein altes Pferd, einem alten Pferd, eines alten Pferdes
die alten Pferde, die alten Pferde, den alten Pferden, der alten Pferde
alte Pferde, alte Pferde, alten Pferden, alter Pferde
kalte Milch, kalte Milch, kalter Milch, kalter Milch
kaltes Wasser, kaltes Wasser, kaltem Wasser, kalten Wassers
kalter Kaffee, kalten Kaffee, kaltem Kaffee, kalten Kaffees
""".strip().splitlines()


@pytest.mark.parametrize("line", ADJECTIVES)
def test_adjectives_have_the_right_endings(line):
    expected = line.split(", ")
    first = expected[0].split()
    target = next(
        n for n in inflection.NOUNS if first[-1] in (n.german[False, "n"], n.german[True, "n"])
    )
    plural = target.german[False, "n"] != first[-1]
    determiner = {"alte": phrases.BARE, "ein": A, "eine": A}.get(first[0], THE)
    if plural and determiner is THE:
        determiner = THE_PLURAL
    if first[0].startswith("kalt"):
        determiner = MASS
    stem = "alt" if "alt" in line else "kalt"
    for case, text in zip("nadg", expected, strict=True):
        for seed in range(400):  # until the draw has the adjective
            phrase = noun_phrase(Draft(random.Random(seed)), target, case, determiner=determiner)
            german = " ".join(word.text for word in phrase.de)
            if f"{stem}e" in german:
                break
        assert german == text


PRESENT = """
kaufen: kaufe kaufst kauft kaufen kauft kaufen; kaufte kauftest kaufte kauften kauftet kauften; gekauft
arbeiten: arbeite arbeitest arbeitet arbeiten arbeitet arbeiten; arbeitete arbeitetest arbeitete arbeiteten arbeitetet arbeiteten; gearbeitet
lesen: lese liest liest lesen lest lesen; las lasest las lasen last lasen; gelesen
finden: finde findest findet finden findet finden; fand fandest fand fanden fandet fanden; gefunden
einladen: lade lädst lädt laden ladet laden; lud ludest lud luden ludet luden; eingeladen
essen: esse isst isst essen esst essen; aß aßest aß aßen aßt aßen; gegessen
bringen: bringe bringst bringt bringen bringt bringen; brachte brachtest brachte brachten brachtet brachten; gebracht
besuchen: besuche besuchst besucht besuchen besucht besuchen; besuchte besuchtest besuchte besuchten besuchtet besuchten; besucht
reparieren: repariere reparierst repariert reparieren repariert reparieren; reparierte repariertest reparierte reparierten repariertet reparierten; repariert
vorbereiten: bereite bereitest bereitet bereiten bereitet bereiten; bereitete bereitetest bereitete bereiteten bereitetet bereiteten; vorbereitet
aufmachen: mache machst macht machen macht machen; machte machtest machte machten machtet machten; aufgemacht
anzünden: zünde zündest zündet zünden zündet zünden; zündete zündetest zündete zündeten zündetet zündeten; angezündet
lernen: lerne lernst lernt lernen lernt lernen; lernte lerntest lernte lernten lerntet lernten; gelernt
""".strip().splitlines()  # noqa: E501


@pytest.mark.parametrize("line", PRESENT)
def test_verbs_are_conjugated(line):
    name, forms = line.split(": ")
    present, past, participle = forms.split("; ")
    conjugated = verb(name)
    assert list(conjugated.present) == present.split()
    assert list(conjugated.past) == past.split()
    assert conjugated.participle == participle


# Sentences of known derivations


def subject(d: Draft, text: str) -> Phrase:
    """`baker`, `a baker`, `bakers`, or a pronoun of PRONOUNS after `=`."""
    if text.startswith("="):
        return pronoun(d, text[1:], "n")
    return thing(d, text, "n")


def thing(d: Draft, text: str, case: str) -> Phrase:
    determiner = A if text.startswith(("a ", "an ")) else THE
    name = text.split(" ")[-1]
    for n in inflection.NOUNS:
        if name == n.english[1] != n.english[0]:
            return noun_phrase(d, n, case, determiner=THE_PLURAL)
    return noun_phrase(d, noun(name), case, determiner=determiner)


def derive(text: str, seed: int = 0):
    """`subject | infinitive | complements | tense[,ask]` -> a clause without adjectives."""
    who, infinitive, complements, tense = (part.strip() for part in text.split("|"))
    d = Draft(random.Random(seed), PLAIN)
    v = verb(infinitive)
    filled = {}
    for i, name in enumerate(filter(None, complements.split(", "))):
        slot = v.slots[i]
        if slot.case == "":
            en, de = d.pair(*name.split("/"))
            filled[i] = Phrase(en, de, de[-1], de[-1], kind="fixed")
        elif name.startswith("="):
            filled[i] = pronoun(d, name[1:], slot.case)
        else:
            case = "d" if name == "station" else slot.case  # zum Bahnhof, but in die Küche
            filled[i] = thing(d, name, case)
    s = subject(d, who)
    spec = ClauseSpec("past" in tense, 0, tense=tense.split(",")[0], ask="ask" in tense, event=True)
    return clause(d, spec, subject=s, verb=v, complements=filled)


def plain(side) -> str:
    return " ".join(word.text for word in side)


MAIN = """
baker | verkaufen | cake | past = the baker sold the cake = der Bäcker verkaufte den Kuchen
baker | aufmachen | door | present = the baker opens the door = der Bäcker macht die Tür auf
bakers | aufmachen | a window | past = the bakers opened a window = die Bäcker machten ein Fenster auf
student | anrufen | boy | perfect = the student has called the boy = der Student hat den Jungen angerufen
train | abfahren | | perfect = the train has left = der Zug ist abgefahren
woman | helfen | neighbour | modal = the woman can help the neighbour = die Frau kann dem Nachbarn helfen
man | geben | child, apple | past = the man gave the child the apple = der Mann gab dem Kind den Apfel
teacher | erklären | pupil, question | present = the teacher explains the question to the pupil = der Lehrer erklärt dem Schüler die Frage
man | geben | child, =it-m | past = the man gave it to the child = der Mann gab ihn dem Kind
girl | warten | bus | future = the girl will wait for the bus = das Mädchen wird auf den Bus warten
man | stellen | vase, table | past = the man put the vase on the table = der Mann stellte die Vase auf den Tisch
man | legen | book, table | past = the man put the book on the table = der Mann legte das Buch auf den Tisch
dog | fressen | meat | present = the dog eats the meat = der Hund frisst das Fleisch
king | essen | meat | past = the king ate the meat = der König aß das Fleisch
=I | freuen | party | present = I look forward to the party = ich freue mich auf das Fest
=we | erinnern | concert | past = we remembered the concert = wir erinnerten uns an das Konzert
boy | gehen | kitchen | past = the boy went to the kitchen = der Junge ging in die Küche
boy | gehen | station | past = the boy went to the station = der Junge ging zum Bahnhof
boy | gehen | market | past = the boy went to the market = der Junge ging auf den Markt
=she | fahren | train/dem Zug, school | present = she goes by train to the school = sie fährt mit dem Zug in die Schule
cook | abholen | =they | present = the cook picks them up = der Koch holt sie ab
prince | warten | =he | past = the prince waited for him = der Prinz wartete auf ihn
cook | suchen | =they | present = the cook looks for them = der Koch sucht sie
uncle | angeln | river | present = the uncle fishes at the river = der Onkel angelt am Fluss
uncle | ausruhen | | perfect = the uncle has rested = der Onkel hat sich ausgeruht
pupil | zuhören | teacher | pluperfect = the pupil had listened to the teacher = der Schüler hatte dem Lehrer zugehört
bakers | arbeiten | | past progressive = the bakers were working = die Bäcker arbeiteten
women | verkaufen | eggs | fond = the women like to sell the eggs = die Frauen verkaufen gern die Eier
""".strip().splitlines()  # noqa: E501
QUESTIONS = """
=du | kaufen | car | present,ask = do you buy the car = kaufst du das Auto
=Sie | lesen | book | past,ask = did you read the book = haben Sie das Buch gelesen
=ihr | einladen | king | present,ask = do you invite the king = ladet ihr den König ein
=du | einladen | king | present,ask = do you invite the king = lädst du den König ein
train | ankommen | | past,ask = did the train arrive = ist der Zug angekommen
uncle | beeilen | | present,ask = does the uncle hurry = beeilt sich der Onkel
""".strip().splitlines()
FINAL = """
baker | aufmachen | door | present = der Bäcker die Tür aufmacht
student | anrufen | boy | perfect = der Student den Jungen angerufen hat
uncle | beeilen | | present = sich der Onkel beeilt
=he | freuen | party | past = er sich auf das Fest freute
woman | helfen | neighbour | modal = die Frau dem Nachbarn helfen kann
train | abfahren | | past = der Zug abfuhr
man | geben | child, =it-f | future = der Mann sie dem Kind geben wird
""".strip().splitlines()


@pytest.mark.parametrize("line", MAIN)
def test_a_main_clause_is_translated(line):
    derivation, source, target = line.split(" = ")
    seeds = range(40 if "modal" in derivation else 1)  # which modal is drawn
    clauses = [derive(derivation, seed) for seed in seeds]
    assert (source, target) in [(plain(english(c)), plain(second(c))) for c in clauses]


@pytest.mark.parametrize("line", QUESTIONS)
def test_a_question_is_translated(line):
    derivation, source, target = line.split(" = ")
    c = derive(derivation)
    assert (plain(english(c, ask=True)), plain(second(c, []))) == (source, target)


@pytest.mark.parametrize("line", FINAL)
def test_a_subordinate_clause_has_its_verb_last(line):
    derivation, target = line.split(" = ")
    seeds = range(40 if "modal" in derivation else 1)
    assert target in [plain(last(derive(derivation, seed))) for seed in seeds]


def test_fronting_inverts_subject_and_verb():
    c = derive("baker | aufmachen | door | past")
    d = Draft(random.Random(0))
    c.front_en, c.front_de = d.pair("yesterday", "gestern")
    assert plain(english(c)) == "yesterday the baker opened the door"
    assert plain(second(c)) == "gestern machte der Bäcker die Tür auf"


def test_the_article_contracts_unless_a_relative_clause_restricts_it():
    d = Draft(random.Random(0), PLAIN)
    phrase = prefix(d, "in", "in", noun_phrase(d, noun("house"), "d", determiner=THE))
    assert plain(phrase.de) == "im Haus"
    phrase = noun_phrase(d, noun("house"), "d", determiner=THE)
    phrase.tail = [phrase.head]
    assert plain(prefix(d, "in", "in", phrase).de) == "in dem Haus"


@pytest.mark.parametrize(
    ("name", "opening"),
    [("man", {"der", "den", "dem", "an den", "auf den", "über den", "von dem"}),
     ("daughter", {"die", "der", "an die", "auf die", "über die", "von der"}),
     ("children", {"die", "denen", "an die", "auf die", "über die", "von denen"})],
)  # fmt: skip
def test_relative_pronouns_agree_with_their_noun(name, opening):
    seen: set[str] = set()
    for seed in range(300):
        d = Draft(random.Random(seed), PLAIN)
        phrase = thing(d, name, "n")
        try:
            relative(d, phrase, past=False, level=1)
        except Reject:
            continue
        text = plain(phrase.tail)
        match = re.match(r"((an|auf|über|von) )?(de[rnm]|denen|die|das)\b", text)
        assert match, text
        seen.add(match[0])
    assert seen == opening


# The corpus as a whole


def test_splits_have_their_sizes_and_are_disjoint(corpus, pairs):
    assert [len(split) for split in corpus.values()] == list(SMALL.values())
    assert list(corpus) == ["train", "dev", "test", "test_long", "test_deep"]
    assert len({pair.source for pair in pairs}) == len(pairs)


def test_a_source_has_one_translation(grade):
    rng = random.Random(5)
    seen: dict[str, str] = {}
    for _ in range(4_000):
        pair = draw(rng, GRADES[grade])
        assert seen.setdefault(pair.source, pair.target) == pair.target


def digest(pairs: dict[str, list[Pair]]) -> str:
    return hashlib.sha256(repr(pairs).encode()).hexdigest()


def test_the_corpus_is_a_function_of_its_seed_in_any_process():
    sizes = {"train": 300, "dev": 20, "test": 10, "long": 5, "deep": 4}
    code = (
        "import hashlib; from t2t_jax.data.grammar import generate;"
        f"print(hashlib.sha256(repr(generate(7, **{sizes})).encode()).hexdigest())"
    )
    expected = digest(generate(7, **sizes))
    assert python(code, PYTHONHASHSEED="22").strip() == expected
    assert digest(generate(8, **sizes)) != expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("easy", "0339fb799dab358e4fd4437dbc43a5fd79888846620005a840edda59418bedb5"),
        ("normal", "f22f9a616b41228f7b31021dadd2ee80abb87a61376daf2e0f72e98977a28d4b"),
        ("hard", "ba0fe00f7739564dc0a7e2b3e64a04d6dfa98b0beabc4397d7fce3129e8fd52f"),
    ],
)
def test_a_grade_keeps_its_bytes(name, expected):
    """Stored runs were trained on these corpora."""
    corpus = corpus_of(name)
    pairs = {split: [p._replace(tree="") for p in pairs] for split, pairs in corpus.items()}
    text = repr(pairs).replace(", tree=''", "")  # it is no part of the parallel corpus
    assert hashlib.sha256(text.encode()).hexdigest() == expected


def test_the_config_has_the_grades_and_their_default():
    assert typing.get_args(typing.get_type_hints(Data)["grade"]) == tuple(GRADES)
    assert GRADES[Data().grade] is NORMAL


def test_grades_differ_in_length_depth_vocabulary_and_ambiguity():
    easy, normal, hard = (grades.measure(corpus_of(name)["train"]) for name in GRADES)
    for name in ("source_words", "target_words", "target_types", "perplexity", "depth",
                 "ambiguous", "dependent"):  # fmt: skip
        low, middle, high = (getattr(m, name) for m in (easy, normal, hard))
        assert 1.05 * low < middle < high / 1.05, name
    assert easy.source_types < 0.6 * normal.source_types


@pytest.mark.parametrize(
    ("field", "values", "name", "ratio"),
    [
        ("vocabulary", (0.3, 1.0), "source_types", 1.5),
        ("flatness", (3, 30), "perplexity", 1.08),
        ("rich", (0.0, 2.0), "source_words", 1.2),
        ("nest", (0.0, 4.0), "depth", 1.5),
        ("refer", (0.0, 1.3), "dependent", 1.5),
        ("cued", (0.2, 1.0), "ambiguous", 3.0),
    ],
)
def test_a_field_of_a_grade_changes_what_it_says(field, values, name, ratio):
    measures = []
    for value in values:
        rng, changed = random.Random(8), replace(NORMAL, **{field: value})
        measures.append(getattr(grades.measure([draw(rng, changed) for _ in range(1500)]), name))
    assert measures[1] > ratio * measures[0]


def test_the_shares_of_constructions_are_complete(grade):
    shares = GRADES[grade].constructions
    assert list(shares) == list(sentences.CONSTRUCTIONS)
    assert sum(shares.values()) == pytest.approx(1)


def test_further_training_pairs_change_no_others(grade):
    sizes = {"train": 100, "dev": 20, "test": 10, "long": 5, "deep": 4}
    none, some, many = (generate(7, GRADES[grade], **sizes, more=n) for n in (0, 30, 70))
    assert many["train"][:130] == some["train"]
    assert some["train"][:100] == none["train"]
    sources = [pair.source for split in many.values() for pair in split]
    assert len(set(sources)) == len(sources) == sum(sizes.values()) + 70
    assert many | {"train": none["train"]} == none


def test_splits_keep_to_the_length_and_depth_of_their_grade(corpus, grade):
    limit, most = GRADES[grade].limit, GRADES[grade].max_words
    usual = corpus["train"] + corpus["dev"] + corpus["test"]
    assert max(p.depth for p in usual) == limit
    for side in ("source", "target"):
        assert max(len(words(getattr(p, side))) for p in usual) == most
        assert min(len(words(getattr(p, side))) for p in corpus["test_long"]) > most
        assert max(len(words(getattr(p, side))) for p in corpus["test_deep"]) <= most
    assert max(p.depth for p in corpus["test_long"]) <= limit
    assert min(p.depth for p in corpus["test_deep"]) > limit
    for p in corpus["test_deep"]:  # every level opens with a comma in German
        assert p.target.count(",") >= p.depth


def test_sentences_are_well_formed_text(pairs):
    for p in pairs:
        for text in (p.source, p.target):
            assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zäöüßÄÖÜ']*(,? [A-Za-zäöüßÄÖÜ']+)*[.?]", text), text
        assert p.source[-1] == p.target[-1]
        assert not re.search(r"\b(\w+ \w+) \1\b", p.target), p.target
        assert words(p.target) == re.findall(r"[\w']+", p.target)


TREES = """
(S (NP (NP A girl) (SBAR (WHNP who) (S (VP does not (VP work))))) (VP knows (NP two tired fathers)) .)
(S (ADVP Yesterday) (NP the friend) (VP received (NP (NP the invitations) (SBAR (WHNP that) (S (NP Maria) (VP brought (NP her tired students)))))) .)
(S (SBAR While (S (NP meat) (VP is (VP eaten (PP by (NP the young horse)))))) , (NP we) (VP write (NP a diary)) .)
(S (S (ADVP Yesterday) (NP the small pupils) (VP read (NP a cheap diary))) , and (S (NP the writer) (VP (ADVP rarely) thanked (NP them))) .)
(S (NP They) (VP think (SBAR that (S (NP Karl) (VP reads (NP the story))))) .)
(S (NP A young woman) (VP sees (NP (NP Maria's) old newspaper)) .)
(SQ (WHADVP Why) do (NP you) (VP know (NP villages)) , (NP children) ?)
""".strip().splitlines()  # noqa: E501


def test_the_tree_of_a_sentence_is_that_of_its_derivation():
    rng = random.Random(1)
    drawn = {re.sub(r"\((?:XX|,|\.) (\S+?)\)", r"\1", draw(rng).tree) for _ in range(25)}
    assert drawn >= set(TREES)


def test_trees_have_the_words_of_their_sentences(pairs):
    for p in pairs:
        (tree,) = trees.parse(p.tree, "here")
        text = " ".join(word for _, word in trees.leaves(tree))
        assert re.sub(r" ([,.?])", r"\1", text) == p.source
        assert trees.rebuild(trees.linearise(tree), trees.leaves(tree)) == (tree, True)


def test_alignments_and_dependencies_are_in_range(pairs):
    for p in pairs:
        source, target = words(p.source), words(p.target)
        assert list(p.alignment) == sorted(set(p.alignment))
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in p.alignment)
        assert all(0 <= x.position < len(target) > x.head >= 0 for x in p.dependencies)
        assert p.dependency == max((abs(x.position - x.head) for x in p.dependencies), default=0)
        unaligned = set(range(len(source))) - {i for i, _ in p.alignment}
        # the article of "the baker's car" may stay alone, nothing else of the source
        assert not unaligned, (p, [source[i] for i in unaligned])


DICTIONARY = {
    "baker": "Bäcker Bäckers", "bakers": "Bäcker Bäckern", "king": "König Königs",
    "kings": "Könige Königen", "dog": "Hund Hundes", "dogs": "Hunde Hunden", "cat": "Katze",
    "cats": "Katzen", "house": "Haus Hauses", "book": "Buch Buches", "books": "Bücher Büchern",
    "door": "Tür", "doors": "Türen", "bread": "Brot", "kitchen": "Küche", "vase": "Vase",
    "women": "Frauen", "woman": "Frau", "children": "Kinder Kindern", "storm": "Sturm Sturms",
    "apple": "Apfel", "apples": "Äpfel Äpfeln", "coat": "Mantel", "suitcase": "Koffer",
    "garden": "Garten", "money": "Geld", "student": "Student Studenten Studentin",
    "teacher": "Lehrer Lehrers Lehrerin", "doctor": "Arzt Arztes Ärztin", "milk": "Milch",
    "key": "Schlüssel Taste", "bank": "Bank Ufer", "letter": "Brief Buchstabe Buchstaben",
    "bat": "Schläger Fledermaus", "plant": "Pflanze Fabrik", "match": "Spiel Streichholz",
    "yesterday": "gestern", "tomorrow": "morgen", "often": "oft",
    "although": "obwohl", "very": "sehr", "already": "schon", "never": "nie",
    "friendly": "freundlich", "not": "nicht kein",
}  # fmt: skip


def test_words_are_aligned_with_their_dictionary_translation(pairs, grade):
    seen = set()
    for p in pairs:
        source, target = words(p.source), words(p.target)
        for i, word in enumerate(source):
            key = word.lower().removesuffix("'s")
            if key not in DICTIONARY:
                continue
            partners = [target[j] for a, j in p.alignment if a == i]
            stems = DICTIONARY[key].split()
            exact = stems[0][0].isupper()
            good = (
                (lambda w, s=stems: w in s) if exact
                else (lambda w, s=stems: w.lower().startswith(tuple(s)))
            )  # fmt: skip
            assert any(map(good, partners)), (p, word, partners)
            seen.add(key)
    assert len(seen) > (30 if grade == "easy" else 40)  # easy has fewer words


GENDERS = {  # four cases of the singular, plural, dative plural
    "m": ["Mann Mann Mann Mannes Männer Männern", "Hund Hund Hund Hundes Hunde Hunden",
          "Student Studenten Studenten Studenten Studenten Studenten",
          "Junge Jungen Jungen Jungen Jungen Jungen", "Apfel Apfel Apfel Apfels Äpfel Äpfeln",
          "Bauer Bauern Bauern Bauern Bauern Bauern", "Arzt Arzt Arzt Arztes Ärzte Ärzten",
          "Tisch Tisch Tisch Tisches Tische Tischen", "Koch Koch Koch Kochs Köche Köchen"],
    "f": ["Frau Frau Frau Frau Frauen Frauen", "Katze Katze Katze Katze Katzen Katzen",
          "Tür Tür Tür Tür Türen Türen", "Tochter Tochter Tochter Tochter Töchter Töchtern",
          "Flasche Flasche Flasche Flasche Flaschen Flaschen"],
    "n": ["Kind Kind Kind Kindes Kinder Kindern", "Buch Buch Buch Buches Bücher Büchern",
          "Fenster Fenster Fenster Fensters Fenster Fenstern",
          "Haus Haus Haus Hauses Häuser Häusern",
          "Mädchen Mädchen Mädchen Mädchens Mädchen Mädchen"],
}  # fmt: skip
ARTICLES = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des"}
INDEFINITE = {
    "m": "ein einen einem eines",
    "f": "eine eine einer einer",
    "n": "ein ein einem eines",
}
ALL_ARTICLES = [*ARTICLES.values(), *INDEFINITE.values()]
FUSED = {"im": "dem", "am": "dem", "vom": "dem", "zum": "dem", "zur": "der", "beim": "dem",
         "ins": "das", "ans": "das"}  # fmt: skip
WEAK = {"der m": "e", "die f": "e", "das n": "e"}  # behind all other singular articles: -en
MIXED = {"ein m": "er", "ein n": "es", "eine f": "e"}


# may stand between a relative pronoun and a noun: die der Junge, die kein Buch
PRONOUNS = {"der", "die", "das", "den", "dem", "ein", "eine", "einen", "einem", "einer", "unser"}
for _stem in ("sein", "ihr", "mein", "unser", "kein", "dies", "jed", "viel", "all"):
    PRONOUNS |= {_stem + ending for ending in ("", "e", "en", "em", "er", "es")}

PREPOSITIONS = {"an", "auf", "über", "von", "in", "zu"}  # of relative pronouns


def noun_phrases(text: str):
    """(article, adjective or None, noun) of the text, fused articles taken apart."""
    tokens, marked = words(text), text.split()
    for i, token in enumerate(tokens):
        before = i - 2 if i and tokens[i - 1] in PREPOSITIONS else i - 1
        if before >= 0 and marked[before].endswith(","):
            continue  # a relative pronoun, perhaps behind a preposition
        if marked[i].endswith(","):
            continue  # a separated prefix: Laden Sie den Koch ein, Frau Schmidt?
        article = FUSED.get(token.lower(), token.lower())
        if i + 1 < len(tokens) and tokens[i + 1][0].isupper():
            yield article, None, tokens[i + 1]
        elif i + 2 < len(tokens) and tokens[i + 2][0].isupper() and tokens[i + 1] not in PRONOUNS:
            yield article, tokens[i + 1], tokens[i + 2]


def test_articles_nouns_and_adjectives_agree(pairs):
    definite: dict[str, set] = {}
    indefinite: dict[str, set] = {}
    for gender, nouns in GENDERS.items():
        for line in nouns:
            *singular, plural, dative = line.split()
            for article, form in zip(ARTICLES[gender].split(), singular, strict=True):
                ending = WEAK.get(f"{article} {gender}", "en")
                if article == "der" and gender == "f":
                    ending = "en"
                definite.setdefault(form, set()).add((article, ending))
            for article, form in zip(INDEFINITE[gender].split(), singular, strict=True):
                ending = MIXED.get(f"{article} {gender}", "en")
                indefinite.setdefault(form, set()).add((article, ending))
            for article, form in (("die", plural), ("der", plural), ("den", dative)):
                definite.setdefault(form, set()).add((article, "en"))
    checked = 0
    for p in pairs:
        for article, adjective, name in noun_phrases(p.target):
            table = indefinite if article.startswith("ein") else definite
            if name not in table or article not in " ".join(ALL_ARTICLES).split():
                continue
            allowed = table[name]
            assert article in {a for a, _ in allowed}, (article, name, p.target)
            if adjective:
                endings = {e for a, e in allowed if a == article}
                assert adjective.endswith(tuple(endings)), (article, adjective, name, p.target)
                checked += 1
    assert checked > 500


def finite_forms() -> set[str]:
    """Finite verb forms of the lexicon, joined with a separable prefix or not."""
    forms = set()
    everything = inflection.VERBS + [v for group in inflection.GOVERNING.values() for v in group]
    for v in everything:
        for form in (*v.present, *v.past):
            forms |= {form, v.prefix + form}
    for table in (inflection.SEIN, inflection.HABEN, inflection.WERDEN):
        forms |= set(table[0]) | set(table[1])
    for row, past in inflection.MODALS.values():
        forms |= set(row.split()) | (set(inflection.preterite(past)) if past else set())
    return forms


ADVERBIALS = (
    "Gestern|Heute|Jetzt|Bald|Morgen|Sonntags|Letzte Woche|Nächste Woche|Jeden Tag|Jeden Morgen|"
    "Am Abend|Am Montag|Letzten Sonntag|Vor drei Tagen"
)


@pytest.mark.parametrize(
    "opening",
    [rf"(?:{ADVERBIALS}) (\w+)", r"(?:Weil|Wenn|Als|Obwohl|Nachdem|Bevor|Sobald) [^,]*, (\w+)"],
    ids=["adverbial", "clause"],
)
def test_the_verb_stands_second_behind_what_opens_a_sentence(opening, pairs):
    finite, checked = finite_forms(), 0
    for p in pairs:
        match = re.match(opening, p.target)
        if match and not (match[1] in RELATIVES and "," in match[0]):
            checked += 1
            assert match[1] in finite, p.target
    assert checked > 100


RELATIVES = {"der", "die", "das", "den", "dem", "denen", *PREPOSITIONS}


def test_the_verb_stands_last_in_subordinate_clauses(pairs):
    finite, checked = finite_forms(), 0
    pattern = r"\b(?:dass|[Ww]eil|[Oo]bwohl|ob|[Nn]achdem|[Bb]evor|[Ss]obald) ([^,.?]*)[,.?]"
    for p in pairs:
        for match in re.finditer(pattern, p.target):
            tail = p.target[match.end() - 1 :]
            inner = re.match(r", (?:(?:an|auf|über|von|in) )?(?:der|die|das|den|dem|denen) ", tail)
            if inner and match[1].split()[-1] not in finite:
                continue  # a relative clause in the middle
            checked += 1
            inside = match[1].split(" als ")[0]  # älter ist als der Mann
            assert inside.split()[-1] in finite, p.target
    assert checked > 500


def test_clauses_are_set_off_by_commas(pairs):
    for p in pairs:
        assert not re.search(r"[^,] (dass|weil|obwohl|nachdem|bevor|sobald|ob|wenn)\b", p.target), p
        assert not re.search(r"[^,] (und|aber|um|ohne) ", p.target), p.target
        assert ", ," not in p.target


def test_a_separated_prefix_closes_its_clause(pairs):
    checked = 0
    for p in pairs:
        target = p.target.split()
        for x in p.dependencies:
            if x.kind == "prefix":
                checked += 1
                word = target[x.position]
                following = target[x.position + 1 : x.position + 2]
                assert word.strip(",.?") in {"auf", "zu", "an", "ein", "ab", "aus", "vor", "teil"}
                assert word[-1] in ",.?" or following[0] in ("und", "aber"), p.target
    assert checked > 100


ANTECEDENTS = {"Hund": "er ihn ihm", "Apfel": "er ihn", "Kuchen": "er ihn", "Garten": "er ihn",
               "Katze": "sie ihr", "Tür": "sie", "Zeitung": "sie", "Flasche": "sie", "Buch": "es",
               "Auto": "es", "Haus": "es ihm", "Pferd": "es ihm", "Mann": "er ihn ihm",
               "Frau": "sie ihr", "Lehrerin": "sie ihr", "Männer": "sie ihnen"}  # fmt: skip


def test_pronouns_agree_with_a_distant_antecedent(pairs, grade):
    checked, distances = 0, []
    for p in pairs:
        target = words(p.target)
        for x in p.dependencies:
            if x.kind == "antecedent":
                distances.append(x.position - x.head)
                if target[x.head] in ANTECEDENTS:
                    checked += 1
                    source = {words(p.source)[i] for i, j in p.alignment if j == x.head}
                    plural = target[x.head] == "Kuchen" and "cakes" in source
                    fitting = "sie ihnen" if plural else ANTECEDENTS[target[x.head]]
                    assert target[x.position].lower() in fitting.split(), p
    few = grade == "easy"  # which has few pronouns, and short sentences
    assert checked > (30 if few else 50)
    assert max(distances) > (5 if few else 10)


CUES = """
drücken key Taste Tasten
suchen key Schlüssel Schlüsseln
angeln bank Ufer Ufern
einzahlen bank Bank Banken
bekommen letter Brief Briefe
aussprechen letter Buchstabe Buchstaben
fliegen bat Fledermaus Fledermäuse
schwingen bat Schläger
gießen plant Pflanze Pflanzen
arbeiten plant Fabrik
anzünden match Streichholz Streichhölzer
gewinnen match Spiel Spiele
""".strip().splitlines()


@pytest.mark.parametrize("line", CUES)
def test_the_verb_decides_an_ambiguous_noun(line):
    infinitive, ambiguous, *translations = line.split()
    governor = [v for v in inflection.VERBS if v.infinitive == infinitive][-1]
    nouns = set()
    for seed in range(400):
        d = Draft(random.Random(seed), PLAIN)
        try:
            c = clause(d, ClauseSpec(True, 0, event=True), verb=governor)
        except Reject:
            continue
        keys = {w.key for w in english(c) if w.text.startswith(ambiguous)}
        translated = {w.text for w in second(c) if w.key in keys and w.text[0].isupper()}
        nouns |= translated
        assert bool(keys) == any(kind == "cue" and w.key in keys for kind, w, _ in d.dependencies)
    assert nouns
    assert nouns <= set(translations)


def test_animals_and_people_eat_with_different_verbs(pairs):
    checked = 0
    for p in pairs:
        match = re.match(
            r"(?:The|A) (?:\w+ )?(cat|dog|horse|cow|man|baker|king) (?:eats|ate) ", p.source
        )
        if match:
            checked += 1
            animal = match[1] in ("cat", "dog", "horse", "cow")
            wrong = r"\b(isst|aß)\b" if animal else r"\bfr(isst|aß)"
            assert not re.search(wrong, p.target), p
    assert checked > 3


@pytest.mark.parametrize("name", ["du", "ihr", "Sie"])
def test_the_form_of_address_decides_the_translation_of_you(pairs, name):
    call = {"du": "(Anna|Peter|Maria|Paul)", "ihr": "(Kinder|Jungs)", "Sie": "(Herr|Frau) \\w+"}
    questions = [p for p in pairs if re.search(f", {call[name]}\\?$", p.target)]
    assert len(questions) > 10
    for p in questions:
        assert name in words(p.target), p
        assert {"du", "ihr", "Sie"} & set(words(p.target)) == {name}


@pytest.mark.full
def test_the_default_corpus_has_its_sizes_and_vocabulary():
    corpus = generate()
    expected = "a2eeb8f8749f508b8ebaf367cddc64feb6968c9ebe91f08d45ab44ace82d1166"
    assert digest(corpus) == expected
    assert [len(s) for s in corpus.values()] == [60_000, 1_000, 1_000, 500, 500]
    sources = [p.source for split in corpus.values() for p in split]
    assert len(set(sources)) == len(sources)
    german = {w for p in corpus["train"] for w in words(p.target)}
    assert 1_000 < len(german) < 2_500
    assert len({w for p in corpus["test"] for w in words(p.target)} - german) < 10
    line = grades.line("normal", grades.measure(corpus["train"], corpus["dev"]))
    stored = (grades.RESULTS / "table.md").read_text()  # python experiments/grades.py writes it
    assert line in [[x.strip() for x in y.split("|")[1:-1]] for y in stored.splitlines()]
