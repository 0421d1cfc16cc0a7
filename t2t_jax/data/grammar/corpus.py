"""The splits of the grammar corpus."""

import random
from collections.abc import Callable
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
    same arguments give the same bytes everywhere. `more` is the number of further training pairs,
    which follow the others and change none of them.
    """
    seen = set[str]()

    def take(count: int, kind: str, grade: Grade, fits: Callable[[Pair], bool]) -> list[Pair]:
        """Draws fitting pairs, none of whose sources was taken before."""
        rng, taken = random.Random(f"{seed} {kind}"), list[Pair]()
        while len(taken) < count:
            pair = draw(rng, grade)
            if pair.source not in seen and fits(pair):
                seen.add(pair.source)
                taken.append(pair)
        return taken

    def short(pair: Pair) -> bool:
        return max(_lengths(pair)) <= grade.max_words

    usual = take(train + dev + test, "usual", grade, short)
    random.Random(f"{seed} split").shuffle(usual)
    longer = replace(grade, rich=2.0, nest=4.0)
    deeper = replace(grade, limit=grade.limit + 2, rich=0.3, nest=8.0)
    splits = {
        "train": usual[dev + test :],
        "dev": usual[:dev],
        "test": usual[dev : dev + test],
        "test_long": take(long, "long", longer, lambda x: min(_lengths(x)) > grade.max_words),
        "test_deep": take(deep, "deep", deeper, lambda x: x.depth > grade.limit and short(x)),
    }
    splits["train"] += take(more, "more", grade, short)
    return splits


def _lengths(pair: Pair) -> tuple[int, int]:
    """Number of words of either side."""
    return pair.source.count(" ") + 1, pair.target.count(" ") + 1
