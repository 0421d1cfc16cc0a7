"""The splits of the grammar corpus."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from t2t_jax.data.grammar.grades import NORMAL, Grade
from t2t_jax.data.grammar.sentences import Pair, draw


def generate(
    seed: int = 0,
    grade: Grade = NORMAL,
    *,
    train: int = 60_000,
    dev: int = 1_000,
    test: int = 1_000,
    long: int = 500,
    deep: int = 500,
    more: int = 0,
) -> dict[str, list[Pair]]:
    """The splits train, dev, test, test_long and test_deep, of these sizes; all sources differ.

    Train, dev and test have at most the words a side and the depth of the grade. test_long has more
    words on both sides at no greater depth; test_deep has a greater depth within these words. The
    same arguments give the same bytes everywhere.

    Args:
      more: number of further training pairs, which follow the others and change none of them.
    """
    seen = set[str]()

    def short(pair: Pair) -> bool:
        return max(_lengths(pair)) <= grade.max_words

    drawn = _pairs_of(f"{seed} usual", grade, short, seen)
    usual = list(itertools.islice(drawn, train + dev + test))
    random.Random(f"{seed} split").shuffle(usual)
    longer = _pairs_of(
        f"{seed} long",
        replace(grade, rich=2.0, nest=4.0),
        lambda pair: min(_lengths(pair)) > grade.max_words,
        seen,
    )
    long_pairs = list(itertools.islice(longer, long))
    deeper = _pairs_of(
        f"{seed} deep",
        replace(grade, limit=grade.limit + 2, rich=0.3, nest=8.0),
        lambda pair: pair.depth > grade.limit and short(pair),
        seen,
    )
    deep_pairs = list(itertools.islice(deeper, deep))
    further = _pairs_of(f"{seed} more", grade, short, seen)
    return {
        "train": [*usual[dev + test :], *itertools.islice(further, more)],
        "dev": usual[:dev],
        "test": usual[dev : dev + test],
        "test_long": long_pairs,
        "test_deep": deep_pairs,
    }


def _pairs_of(
    seed: str, grade: Grade, fits: Callable[[Pair], bool], seen: set[str]
) -> Iterator[Pair]:
    """Fitting pairs without end whose sources are not in `seen`, to which they are added."""
    rng = random.Random(seed)
    while True:
        pair = draw(rng, grade)
        if pair.source not in seen and fits(pair):
            seen.add(pair.source)
            yield pair


def _lengths(pair: Pair) -> tuple[int, int]:
    """Number of words of either side."""
    return pair.source.count(" ") + 1, pair.target.count(" ") + 1
