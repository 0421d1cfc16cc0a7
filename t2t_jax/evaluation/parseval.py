"""Labelled bracketing F1 of trees, as EVALB computes it with COLLINS.prm (Table 4)."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from t2t_jax.data import trees
from t2t_jax.data.trees import Tree, leaves
from t2t_jax.evaluation.metrics import Counts, Texts, metric

_DELETED = {",", ":", "``", "''", "."}  # words left out, by part of speech in the gold tree
_IGNORED = {"", "TOP", "ROOT"}  # labels whose brackets are not counted
_EQUAL = {"PRT": "ADVP"}  # labels that count as another
SIGNATURE = "labelled brackets|words:all|COLLINS.prm"


def brackets(tree: Tree, kept: Sequence[bool]) -> Counter[tuple[str, int, int]]:
    """Counts of (label, first word, end) of the constituents, over the words that are kept.

    A constituent without such words is left out.
    """
    out: Counter[tuple[str, int, int]] = Counter()

    def walk(tree: Tree, word: int, position: int) -> tuple[int, int]:
        """Counts a tree that begins at a word, and at a position among those that are kept."""
        if tree.is_word:
            return word + 1, position + kept[word]
        first = position
        for child in tree.children:
            assert isinstance(child, Tree)
            word, position = walk(child, word, position)
        if position > first and tree.label not in _IGNORED:
            out[_EQUAL.get(tree.label, tree.label), first, position] += 1
        return word, position

    walk(tree, 0, 0)
    return out


def compare(gold: Tree, predicted: Tree) -> tuple[int, int, int]:
    """Numbers of matching, gold and predicted brackets of two trees over the same words."""
    kept = [tag not in _DELETED for tag, _ in leaves(gold)]
    ours, theirs = brackets(predicted, kept), brackets(gold, kept)
    return (ours & theirs).total(), theirs.total(), ours.total()


def of_sums(sums: np.ndarray) -> np.ndarray:
    """F1 in percent [...] of summed `sentence_statistics` [..., 4]."""
    matched, both = sums[..., 0], sums[..., 1] + sums[..., 2]
    return 200 * matched / np.maximum(both, 1)


def _share(of: int) -> Callable[[np.ndarray], np.ndarray]:
    """The matching brackets in percent of the gold (1) or the predicted ones (2)."""
    return lambda sums: 100 * sums[..., 0] / np.maximum(sums[..., of], 1)


@metric("F1", SIGNATURE, of_sums, key="f1", annotation="tree")
@metric("recall", SIGNATURE, _share(1), annotation="tree")
@metric("precision", SIGNATURE, _share(2), annotation="tree")
def sentence_statistics(hypotheses: Texts, gold: Texts, _: Texts = ()) -> list[list[int]]:
    """For each linearised hypothesis: matching, gold and predicted brackets, and 1 if well-formed.

    A malformed hypothesis is repaired (`trees.rebuild`) and scored. Gold trees are stripped, and
    written with parts of speech and words by `trees.write`.
    """
    out = []
    for hypothesis, tree in zip(hypotheses, map(_tree, gold), strict=True):
        predicted, well_formed = trees.rebuild(hypothesis.split(), leaves(tree))
        out.append([*compare(tree, predicted), int(well_formed)])
    return out


@metric(
    "valid trees",
    "share of outputs that are trees; the others are repaired before scoring",
    key="valid",
    annotation="tree",
)
def _valid(hypotheses: Texts, gold: Texts, _: Texts) -> Counts:
    return [(valid, 1) for *_, valid in sentence_statistics(hypotheses, gold)]


@metric("F1 of right branches", SIGNATURE, of_sums, key="baseline", annotation="tree")
def _baseline(hypotheses: Texts, gold: Texts, _: Texts) -> Counts:
    """Right-branching trees, whatever the hypotheses are."""
    return [compare(tree, trees.right_branching(leaves(tree))) for tree in map(_tree, gold)]


def _tree(line: str) -> Tree:
    return next(trees.parse(line, "a gold tree"))
