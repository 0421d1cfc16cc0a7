"""Labelled bracketing F1 of trees, as EVALB with COLLINS.prm has it (Table 4)."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from t2t_jax.data import trees
from t2t_jax.data.trees import Tree, leaves
from t2t_jax.evaluation.score import Score

_DELETED = {",", ":", "``", "''", "."}  # punctuation, by its part of speech in the gold tree
_LEFT_OUT = {"", "TOP", "ROOT"}
_EQUAL = {"PRT": "ADVP"}
SIGNATURE = "labelled brackets|words:all|COLLINS.prm"


def brackets(tree: Tree, kept: Sequence[bool]) -> Counter[tuple[str, int, int]]:
    """(label, first, end) of every constituent over the words that are kept; empty ones vanish."""
    out: Counter[tuple[str, int, int]] = Counter()

    def walk(tree: Tree, word: int, at: int) -> tuple[int, int]:
        if tree.is_word:
            return word + 1, at + kept[word]
        first = at
        for child in tree.children:
            assert isinstance(child, Tree)
            word, at = walk(child, word, at)
        if at > first and tree.label not in _LEFT_OUT:
            out[_EQUAL.get(tree.label, tree.label), first, at] += 1
        return word, at

    walk(tree, 0, 0)
    return out


def compare(gold: Tree, found: Tree) -> tuple[int, int, int]:
    """Brackets that match, of the gold tree, and of the other; both stand over the same words."""
    kept = [tag not in _DELETED for tag, _ in leaves(gold)]
    ours, theirs = brackets(found, kept), brackets(gold, kept)
    return (ours & theirs).total(), theirs.total(), ours.total()


def sentence_statistics(hypotheses: Sequence[str], gold: Sequence[str]) -> list[list[int]]:
    """Of every linearised hypothesis: matched, gold and found brackets, and whether it was sound.

    A malformed one is mended (`trees.rebuild`) and scored.
    """
    out = []
    for hypothesis, tree in zip(hypotheses, map(_tree, gold), strict=True):
        found, sound = trees.rebuild(hypothesis.split(), leaves(tree))
        out.append([*compare(tree, found), int(sound)])
    return out


def of_sums(sums: np.ndarray) -> np.ndarray:
    """F1 in percent of summed `sentence_statistics` [..., 4]."""
    matched, both = sums[..., 0], sums[..., 1] + sums[..., 2]
    return 200 * matched / np.maximum(both, 1)


def scores(hypotheses: Sequence[str], gold: Sequence[str]) -> dict[str, Score]:
    """F1, recall and precision over all lengths, the share of sound trees, and the baseline's F1.

    Args:
      hypotheses: linearised trees, of any form.
      gold: stripped trees with parts of speech and words, as `trees.write` has them.
    """
    statistics = np.array(sentence_statistics(hypotheses, gold))
    matched, wanted, found, sound = statistics.sum(axis=0).tolist()
    plain = [compare(t, trees.right_branching(leaves(t))) for t in map(_tree, gold)]
    return {
        "f1": Score("F1", float(of_sums(statistics.sum(axis=0))), SIGNATURE),
        "recall": Score("recall", 100 * matched / max(wanted, 1), SIGNATURE),
        "precision": Score("precision", 100 * matched / max(found, 1), SIGNATURE),
        "valid": Score("valid trees", 100 * sound / len(gold), "share, the others mended"),
        "baseline": Score("F1 of right branches", float(of_sums(np.sum(plain, axis=0))), SIGNATURE),
    }


def _tree(line: str) -> Tree:
    return next(trees.parse(line, "a gold tree"))
