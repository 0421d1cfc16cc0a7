"""Contrastive sets: they are minimal pairs, and the judgements are those of the model."""

import collections
import hashlib
import itertools
import math
import random
import re

import numpy as np
import pytest

from t2t_jax.cli import main
from t2t_jax.data import grammar, synthetic
from t2t_jax.data.grammar import contrastive
from t2t_jax.data.grammar.contrastive import contrastive_set
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.contrastive import Judgement, accuracies, judge

ITEM = {"source": "a", "reference": "b", "errors": [{"type": "t", "contrastive": "c"}]}


@pytest.fixture(scope="module")
def items():
    return contrastive.contrastive_set(count=12)


def test_the_set_keeps_its_bytes(items):
    """Stored runs were judged on it."""
    expected = "a7ba9f3d15b462c12fda2b64e7e2ff5e5816a89105741be565557243b3ed598a"
    assert hashlib.sha256(repr(items).encode()).hexdigest() == expected


def each(items):
    return [(item["source"], item["reference"], item["errors"][0]) for item in items]


def test_every_type_is_as_frequent_at_every_distance(items):
    counts = collections.Counter()
    for _, _, error in each(items):
        distance = error.get("distance", 0)
        spans = [s for s in contrastive.DISTANCES if s[0] <= distance <= s[1]]
        distant = error["type"] not in ("np_agreement", "subj_adequacy")
        counts[error["type"], spans[0] if spans and distant else None] += 1
    assert {kind for kind, _ in counts} == set(contrastive.TYPES)
    assert len(counts) == 4 * 5 + 6
    rare = [
        counts.pop((kind, contrastive.DISTANCES[-1])) for kind in ("verb_particle", "auxiliary")
    ]
    assert set(counts.values()) == {12}
    assert all(0 < n <= 12 for n in rare)


def test_an_error_changes_one_word(items):
    for _, reference, error in each(items):
        one, two = grammar.words(reference), grammar.words(error["contrastive"])
        if len(one) == len(two):
            assert sum(a != b for a, b in zip(one, two, strict=True)) == 1
            assert reference[0].isupper() == error["contrastive"][0].isupper()
        else:
            assert len(two) == len(one) - 1
            assert error["type"] in ("polarity_particle_nicht_del", "omission_adjective")
            removed = next(i for i, word in enumerate(one) if two[i : i + 1] != [word])
            assert [*one[:removed], *one[removed + 1 :]] == two
        assert reference[-1] == error["contrastive"][-1]
        assert reference.count(",") >= error["contrastive"].count(",")


EXPECTED = {  # a translation, and all of its errors by type
    "Der Hund schläft, weil die Katze nicht laut ist.": {
        ("subj_verb_agreement", "Der Hund schlafen, weil die Katze nicht laut ist."),
        ("subj_verb_agreement", "Der Hund schläft, weil die Katze nicht laut sind."),
        ("polarity_particle_nicht_del", "Der Hund schläft, weil die Katze laut ist."),
    },
    "Der Mann hat ein kleines Haus gekauft.": {
        ("subj_verb_agreement", "Der Mann haben ein kleines Haus gekauft."),
        ("auxiliary", "Der Mann ist ein kleines Haus gekauft."),
        ("polarity_particle_kein_ins", "Der Mann hat kein kleines Haus gekauft."),
        ("omission_adjective", "Der Mann hat ein Haus gekauft."),
    },
    "Sie ruft keinen Lehrer an.": {
        ("subj_adequacy", "Sie rufen keinen Lehrer an."),
        ("polarity_particle_kein_del", "Sie ruft einen Lehrer an."),
    },
}
DEPENDENCIES = {
    "Der Hund schläft, weil die Katze nicht laut ist.": [("subject", 2, 1), ("subject", 8, 5)],
    "Der Mann hat ein kleines Haus gekauft.": [("subject", 2, 1), ("auxiliary", 6, 2)],
    "Sie ruft keinen Lehrer an.": [("subject", 1, 0), ("prefix", 4, 1)],
}


@pytest.mark.parametrize("target", EXPECTED)
def test_the_errors_of_a_sentence(target):
    dependencies = tuple(grammar.Dependency(*x) for x in DEPENDENCIES[target])
    pair = grammar.Pair("", target, (), dependencies, 0, 0)
    errors = {(e["type"], e["contrastive"]) for e in contrastive._errors(pair, random.Random(0))}
    free = {"np_agreement", "verb_particle"}  # the wrong word is drawn
    assert {e for e in errors if e[0] not in free} == EXPECTED[target]
    drawn = {e for e in errors if e[0] in free}
    if "ruft" in target:
        ((kind, text),) = drawn
        assert kind == "verb_particle"
        prefix = text.removeprefix("Sie ruft keinen Lehrer ").removesuffix(".")
        assert prefix in contrastive._PREFIXES - {"an", "zurück"}
    else:
        assert {text.split()[0] for kind, text in drawn} & {"Die", "Das", "Den", "Dem"}


def test_an_article_that_another_form_of_the_noun_takes_is_no_error():
    """Den Lehrer is masculine; die Lehrer would be its plural, and das Lehrer is no form."""
    assert contrastive._other_articles("den", "Lehrer") == {"das"}
    assert contrastive._other_articles("der", "Lehrer") == set()  # the genitive of the plural


def test_a_separable_prefix_is_no_article():
    target = "Kauft ihr den Brief ein, Kinder?"
    pair = grammar.Pair("", target, (), (grammar.Dependency("prefix", 4, 0),), 0, 0)
    kinds = {error["type"] for error in contrastive._errors(pair, random.Random(0))}
    assert "verb_particle" in kinds
    assert "polarity_particle_kein_ins" not in kinds


def test_the_pronoun_for_it_alone_changes_its_gender(items):
    for source, reference, error in each(items):
        if error["type"] == "pronoun_gender":
            assert "it" in [w.lower() for w in grammar.words(source)]
            one, two = grammar.words(reference), grammar.words(error["contrastive"])
            changed = {(a.lower(), b.lower()) for a, b in zip(one, two, strict=True) if a != b}
            genders = {
                "er sie",
                "er es",
                "ihn sie",
                "ihn es",
                "es sie",
                "sie es",
                "ihm ihr",
                "ihr ihm",
            }
            assert {" ".join(pair) for pair in changed} <= genders


def test_a_wrong_article_goes_with_no_form_of_its_noun(items):
    """A count that is independent of the errors: each noun's articles in all sentences drawn."""
    rng, seen = random.Random(3), collections.defaultdict(set)
    for _ in range(4000):
        texts = grammar.words(grammar.draw(rng).target)
        for article, noun in itertools.pairwise(texts):
            if article.lower() in contrastive._ARTICLES and noun in contrastive._NOUNS:
                seen[noun].add(article.lower())
    checked = 0
    for _, reference, error in each(items):
        if error["type"] == "np_agreement" and error["distance"] == 1:
            one, two = grammar.words(reference), grammar.words(error["contrastive"])
            i = next(i for i in range(len(one)) if one[i] != two[i])
            # A relative pronoun may stand before any noun, so it is only rare.
            checked += two[i].lower() not in seen[one[i + 1]]
    assert checked >= 6


def test_known_pairs_are_left_out_and_a_seed_repeats_itself():
    few = contrastive.contrastive_set(count=2)
    assert contrastive.contrastive_set(count=2) == few
    known = {item["source"] for item in few[::2]}
    others = contrastive.contrastive_set(count=2, known=known)
    assert not known & {item["source"] for item in others}
    assert contrastive.contrastive_set(1, count=1) != contrastive.contrastive_set(2, count=1)


class Words:
    """A vocabulary in which a word is its length, with a model that adds them up."""

    def encode(self, lines):
        return [[10 + len(word) for word in line.split()] for line in lines]


def test_a_model_is_right_if_the_reference_is_likelier(monkeypatch):
    import t2t_jax.evaluation.predictions as module

    def likelihoods(model, params, batches):
        sums = {}
        for rows, batch in batches:
            for row, source, target in zip(rows, batch["source"], batch["target"], strict=False):
                sums[int(row)] = (params * target.sum() + source.sum(), (target > 0).sum())
        return np.array([sums[i] for i in sorted(sums)], float)

    monkeypatch.setattr(module, "sentence_likelihoods", likelihoods)
    model = type("Model", (), {"limit": None})
    items = [
        {"source": "a", "reference": "bb cc", "errors": [
            {"type": "longer", "contrastive": "bbb cc", "distance": 3},
            {"type": "shorter", "contrastive": "b cc"},
            {"type": "same", "contrastive": "cc bb"}]},
        {"source": "aaaa", "reference": "b", "errors": [{"type": "longer", "contrastive": "bb"}]},
    ]  # fmt: skip
    expected = [("longer", 3, True), ("shorter", 0, False), ("same", 0, False), ("longer", 0, True)]
    assert judge(model, 1, Words(), items) == expected
    assert [x.right for x in judge(model, -1, Words(), items)] == [False, True, False, False]
    model.limit = 2
    with pytest.raises(UsageError, match="has 3 subwords, but the model has 2 positions"):
        judge(model, 1, Words(), items)
    with pytest.raises(UsageError, match="has no errors"):
        judge(model, 1, Words(), [])


def test_accuracies_have_wilsons_interval():
    judged = [Judgement("a", 1, True)] * 7 + [Judgement("a", 12, False)] * 3
    judged += [Judgement("b", 0, True)] * 4
    every, near, far, other = accuracies(judged)
    assert (every.type, every.distance, every.share, every.n) == ("a", "", 70, 10)
    assert (near.distance, near.share, near.n) == ("1 to 2", 100, 7)
    assert (far.distance, far.share, far.n) == ("10 or more", 0, 3)
    assert (other.type, other.distance, other.n) == ("b", "", 4)
    for x in (every, near, far, other):  # the ends solve (p - x)^2 = z^2 x (1 - x) / n
        for end in (x.low / 100, x.high / 100):
            left, right = (x.share / 100 - end) ** 2, 1.96**2 * end * (1 - end) / x.n
            assert math.isclose(left, right, abs_tol=1e-12)


@pytest.mark.parametrize(
    "items",
    [
        [1],
        [{"source": "a"}],
        [ITEM | {"source": 1}],
        [ITEM | {"errors": [{"type": "t"}]}],
        [ITEM | {"errors": [ITEM["errors"][0] | {"distance": "far"}]}],
    ],
)
def test_a_set_of_another_format_is_refused(items):
    with pytest.raises(UsageError, match="not in LingEval97's format"):
        judge(None, None, None, items)


def test_evaluate_refuses_a_set_that_there_is_not(trained, tmp_path, call):
    run, cache = trained
    words = "evaluate", run, "--cache", cache, "--metrics"
    pair = "--sources", tmp_path / "texts", "--references", tmp_path / "texts"
    assert "text, which has no minimal pairs" in call(*words, "TER,contrastive", code=2).err
    assert "has pairs of its own" in call(*words, "contrastive", *pair, code=2).err


@pytest.mark.full
def test_evaluate_prints_the_accuracy_on_the_grammar(items, tmp_path, monkeypatch, capsys):
    """A pair of the training has no place in the set."""
    monkeypatch.chdir(tmp_path)
    synthetic._drawn.cache_clear()
    small = "--N 1 --d_model 16 --d_ff 16 --h 2 --steps 1 --evaluate_every 1 --beam 1 --max_extra 1"
    small += " --pairs 900"
    assert main(["train", "grammar", *small.split(), "--cache", "cache", "--run", "run"]) == 0
    capsys.readouterr()
    made = []

    def few(**options):
        made[:] = contrastive_set(count=12, **options)
        return made

    monkeypatch.setattr(contrastive, "contrastive_set", few)
    words = ["--split", "dev", "--cache", "cache", "--metrics", "contrastive"]
    assert main(["evaluate", "run", *words]) == 0
    _, _, kept = capsys.readouterr().out.partition("minimal pairs")
    kept, _, printed = kept.strip().partition("\n")
    assert all(kind in printed for kind in contrastive.TYPES)
    line = next(x for x in printed.splitlines() if "subj_verb_agreement" in x)
    assert re.search(r"\s\d+\.\d%\s+\d+\.\d to \d+\.\d\s+60$", line)
    train = {pair.source for pair in grammar.generate()["train"]}
    assert len(made) > 250
    assert not train & {item["source"] for item in made}
    assert train & {item["source"] for item in items}
    every = [
        (float(share), int(n))
        for line in printed.splitlines()
        if line[0] != " "
        for share, n in re.findall(r"([0-9.]+)%.* (\d+)$", line)
    ]
    share = sum(share * n for share, n in every) / len(made)
    assert sum(n for _, n in every) == len(made)
    assert float(kept.split()[0]) == pytest.approx(share, abs=0.1)
    assert f"contrastive  [grade:normal|pairs:{len(made)}|set:" in kept
    synthetic._drawn.cache_clear()
