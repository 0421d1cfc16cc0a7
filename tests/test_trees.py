"""Trees round-trip through strings, treebanks are split as usual, and F1 equals EVALB's."""

import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data import grammar, treebank, trees
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.grammar import generate
from t2t_jax.data.prepare import prepare
from t2t_jax.data.trees import Tree
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import metrics, parseval

RAW = """
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBD was)
      (VP (VBN seen)
        (NP (-NONE- *-1) )
        (PP-LOC=2 (IN in)
          (NP (NNP U.S.) (-LRB- -LRB-) (NN x) (-RRB- -RRB-) ))))
    (. .) ))
( (NP (-NONE- *) ))
(TOP (FRAG (RB So) (PRT (RP up) )))
( (S (UH Oh)) (S (VB go)) )
"""


def test_a_tree_is_stripped_of_traces_functions_and_its_outer_bracket():
    first, empty, second, double = (trees.strip(t) for t in trees.parse(RAW, "here"))
    assert trees.write(first) == (
        "(S (NP (DT The) (NN cat)) (VP (VBD was) (VP (VBN seen) (PP (IN in) (NP (NNP U.S.) "
        "(-LRB- -LRB-) (NN x) (-RRB- -RRB-))))) (. .))"
    )
    assert empty is None
    assert " ".join(trees.linearise(second)) == "(FRAG XX (PRT XX )PRT )FRAG"
    assert trees.write(double) == "(TOP (S (UH Oh)) (S (VB go)))"


def build(draw, depth):
    """Returns a random tree of which every word is w."""
    if depth == 0 or draw.random() < 0.3:
        return Tree(draw.choice(["NN", ",", "VB"]), ("w",))
    children = tuple(build(draw, depth - 1) for _ in range(draw.randint(1, 3)))
    return Tree(draw.choice(["S", "NP", "VP", "PRT", "ADVP"]), children)


@given(st.integers(0, 10**6))
def test_a_tree_is_rebuilt_from_its_string(seed):
    tree = Tree("S", (build(random.Random(seed), 4), Tree("NN", ("w",))))
    assert trees.rebuild(trees.linearise(tree), trees.leaves(tree)) == (tree, True)
    assert next(trees.parse(trees.write(tree), "here")) == tree


@given(
    st.lists(st.sampled_from(["XX", "(NP", ")NP", "(VP", ")VP", "(", "rest"])), st.integers(1, 5)
)
def test_any_string_becomes_a_tree_over_the_words(tokens, n):
    words = [("NN", f"w{i}") for i in range(n)]
    tree, sound = trees.rebuild(tokens, words)
    assert trees.leaves(tree) == words
    assert not tree.is_word
    if sound:
        assert trees.linearise(tree) == tokens


@pytest.mark.parametrize(
    ("string", "repaired"),
    [
        ("(S (NP XX XX )NP", "(S (NP (D a) (N b)) (V c))"),  # open brackets are closed at the end
        ("(S (NP XX )VP XX )S", "(S (NP (D a) (N b)) (V c))"),  # closes no open bracket
        (
            "(S (NP (VP XX )NP XX XX )S",
            "(S (NP (VP (D a))) (N b) (V c))",
        ),  # closes two brackets at once
        ("(S XX XX XX XX )S", "(S (D a) (N b) (V c))"),  # a word too many
        (
            "(NP XX )NP (VP XX XX )VP",
            "(S (NP (D a)) (VP (N b) (V c)))",
        ),  # no bracket around all words
        ("(S (NP )NP XX XX XX )S", "(S (D a) (N b) (V c))"),  # an empty constituent
        ("", "(S (D a) (N b) (V c))"),
    ],
)
def test_a_malformed_string_is_repaired(string, repaired):
    words = [("D", "a"), ("N", "b"), ("V", "c")]
    tree, sound = trees.rebuild(string.split(), words)
    assert not sound
    assert trees.write(tree) == repaired


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(S (NN a)\n(VP (VB b)", " ends within a tree"),
        ("(S (NN a))\n)", "line 2: ')' is in no tree"),
        ("(S (NN a))\nword", "line 2: 'word' is in no tree"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, text, words):
    path = tmp_path / "wsj_0001.mrg"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"wsj_0001\.mrg.*{re.escape(words)}"):
        list(trees.read(path))


def test_f1_equals_that_of_a_worked_example():
    gold = next(trees.parse("(S (NP (D a) (, ,) (N b)) (VP (V c) (PRT (RP d))) (. .))", "gold"))
    predicted = next(
        trees.parse("(S (NP (D a)) (, ,) (VP (N b) (V c) (ADVP (RP d))) (. .))", "predicted")
    )
    # S 0-4 and ADVP=PRT 3-4 match; NP 0-1 is not NP 0-2, VP 1-4 not VP 2-4.
    assert parseval.compare(gold, predicted) == (2, 4, 4)
    inside = next(trees.parse("(S (NP (D a) (, ,)) (VP (V c)))", "inside"))
    outside = next(trees.parse("(S (NP (D a)) (, ,) (VP (V c)))", "outside"))
    assert parseval.compare(inside, outside) == (3, 3, 3)
    twice = next(trees.parse("(S (S (NP (D a)) (N b)))", "twice"))
    once = next(trees.parse("(S (NP (D a)) (N b))", "once"))
    assert parseval.compare(twice, once) == (2, 3, 2)
    string = "(S (NP XX )NP XX (VP XX XX (PRT XX )PRT )VP XX )S"
    annotations = [{"tree": trees.write(tree)} for tree in (gold, once)]
    outputs = metrics.Outputs([string, "XX"], ["", ""], ["", ""], annotations)
    scores, counts = metrics.score(outputs, metrics.metrics_of("wsj"))
    assert list(scores) == ["f1", "recall", "precision", "valid", "baseline"]
    assert scores["f1"]["score"] == pytest.approx(200 * (2 + 1) / (4 + 4 + 2 + 1))
    assert scores["recall"]["score"] == pytest.approx(100 * 3 / (4 + 2))
    assert scores["precision"]["score"] == pytest.approx(100 * 3 / (4 + 1))
    assert scores["valid"]["score"] == 50
    # The baseline of the gold tree has five brackets and S matches; that of `once` has S alone.
    assert scores["baseline"]["score"] == pytest.approx(200 * (1 + 1) / (4 + 5 + 2 + 1))
    assert counts == [[2, 4, 4, 1], [1, 2, 1, 0]]
    with pytest.raises(UsageError, match="F1 needs the annotation tree"):
        metrics.metric_of("wsj").measure(outputs._replace(extras=()))


def test_f1_of_summed_statistics_maps_over_leading_axes():
    sums = np.array([[[3, 4, 8, 1], [0, 0, 0, 2]], [[5, 5, 5, 0], [0, 7, 2, 1]]])
    assert parseval.of_sums(sums).tolist() == [[50, 0], [100, 0]]


def perturbed(tree, draw):
    """Returns the tree with constituents relabelled, removed and inserted at random."""
    if tree.is_word:
        return [tree]
    children = [c for child in tree.children for c in perturbed(child, draw)]
    if len(children) > 2 and draw.random() < 0.2:
        i = draw.randrange(len(children) - 1)
        children[i : i + 2] = [Tree("XP", tuple(children[i : i + 2]))]
    if draw.random() < 0.15:
        return children
    return [Tree("YP" if draw.random() < 0.1 else tree.label, tuple(children))]


def prepared(tree):
    """Returns the text of a tree after what EVALB does with COLLINS.prm before it counts."""
    text = re.sub(r"\((,|:|``|''|\.) [^()\s]+\)", "", trees.write(tree))
    while (shorter := re.sub(r"\([^()\s]+\s*\)", "", text)) != text:
        text = shorter
    return text.replace("(PRT ", "(ADVP ")


@pytest.fixture(scope="session")
def treebank_sample():
    directory = os.environ.get("T2T_JAX_TREEBANK")
    if not directory:
        pytest.skip("set T2T_JAX_TREEBANK to a directory with the sample's wsj_0001.mrg and so on")
    return Path(directory)


@pytest.mark.full
def test_strings_of_the_sample_are_reversible_and_f1_equals_that_of_evalb(treebank_sample):
    from PYEVALB import parser, scorer

    draw, same, sentences = random.Random(0), 0, 0
    for path in sorted(treebank_sample.glob("*.mrg")):
        for tree in filter(None, map(trees.strip, trees.read(path))):
            sentences += 1
            words = trees.leaves(tree)
            assert trees.rebuild(trees.linearise(tree), words) == (tree, True)
            predicted = Tree(
                tree.label, tuple(c for x in tree.children for c in perturbed(x, draw))
            )
            kept = [tag not in {",", ":", "``", "''", "."} for tag, _ in words]
            ours = parseval.compare(tree, predicted)
            brackets = [parseval.brackets(t, kept) for t in (tree, predicted)]
            if not any(kept) or any(n > 1 for b in brackets for n in b.values()):
                continue  # the package counts equal brackets once, EVALB each
            gold, other = (
                parser.create_from_bracket_string(prepared(t)) for t in (tree, predicted)
            )
            theirs = scorer.Scorer().score_trees(gold, other)
            assert ours == (theirs.matched_brackets, theirs.gold_brackets, theirs.test_brackets)
            same += 1
    assert sentences > 1000
    assert same > 0.8 * sentences


def sample_of(directory, sections):
    """Writes a treebank with three files a section, each with one sentence and one bare trace."""
    for section in sections:
        folder = directory / f"{section:02}"
        folder.mkdir(parents=True, exist_ok=True)
        for n in (8, 9, 10):
            tree = f"(S (NP (NN s{section}n{n})) (VP (VBZ is) (ADJP (JJ red))) (. .))"
            text = f"( {tree} )\n( (NP (-NONE- *)) )\n"
            (folder / f"wsj_{section:02}{n:02}.mrg").write_text(text)
    return directory


def test_a_whole_treebank_has_the_standard_splits(tmp_path):
    directory = sample_of(tmp_path / "wsj", range(25))
    data = Data(corpus="wsj", target="tree", directory=str(directory), vocabulary=48, max_length=99)
    dataset = open_dataset(prepare(data, tmp_path / "cache", report=lambda _: None))
    assert [len(split.source) for split in dataset.splits.values()] == [20 * 3, 3, 3]
    assert dataset.splits["dev"].sources == [f"s22n{n} is red ." for n in (8, 9, 10)]
    assert dataset.splits["test"].references[0] == "(S (NP XX )NP (VP XX (ADJP XX )ADJP )VP XX )S"
    tree = "(S (NP (NN s23n8)) (VP (VBZ is) (ADJP (JJ red))) (. .))"
    assert dataset.splits["test"].extras[0] == {"tree": tree}
    pieces = dataset.vocabulary.pieces(dataset.splits["test"].target[0])
    brackets = [f"▁{bracket}" for bracket in dataset.splits["test"].references[0].split()]
    assert pieces == [*brackets, "</s>"], "a bracket is one subword"


def test_the_treebank_of_the_grammar_reads_as_the_wsj_does(tmp_path, monkeypatch):
    sizes = dict(dev=20, test=10, long=2, deep=1)
    monkeypatch.setattr(
        grammar, "generate", lambda *x, train, more: generate(*x, train=300, **sizes)
    )
    data = Data(corpus="grammar_trees", target="tree", grade="easy", vocabulary=300)
    dataset = open_dataset(prepare(data, tmp_path, report=lambda _: None))
    assert [len(split.source) for split in dataset.splits.values()] == [300, *sizes.values()]
    dev = dataset.splits["dev"]
    for source, target, extra in zip(dev.sources, dev.references, dev.extras, strict=True):
        (tree,) = trees.parse(extra["tree"], "dev")
        assert source.split() == [word for _, word in trees.leaves(tree)]
        assert target.split() == trees.linearise(tree)
    gold = [extra["tree"] for extra in dev.extras]
    for matched, *others in parseval.sentence_statistics(dev.references, gold):
        assert others == [matched, matched, 1]
    pieces = dataset.vocabulary.pieces(dev.target[0])
    assert pieces == [*(f"▁{bracket}" for bracket in dev.references[0].split()), "</s>"]


def test_a_directory_without_the_files_of_a_split_is_refused(tmp_path):
    directory = sample_of(tmp_path / "some", (0, 1, 5))
    files = treebank.splits(directory, "wsj_sample")
    assert [p.name for p in files["dev"]] == ["wsj_0008.mrg", "wsj_0108.mrg"]
    with pytest.raises(UsageError, match=r"02 to 23 .* \(it has: 00, 01, 05\)"):
        treebank.splits(directory, "wsj")
    sample_of(directory / "copy", (1,))
    with pytest.raises(UsageError, match=r"has wsj_0108\.mrg more than once"):
        treebank.splits(directory, "wsj_sample")
    with pytest.raises(UsageError, match="no file wsj_SSNN"):
        treebank.splits(tmp_path / "none", "wsj_sample")
    with pytest.raises(UsageError, match="--directory"):
        prepare(Data(corpus="wsj_sample", target="tree"), tmp_path)
    with pytest.raises(UsageError, match="turns en into tree"):
        prepare(Data(corpus="wsj_sample", directory=str(directory)), tmp_path)
