"""Corpora of diagnostic tasks: splits of different examples, over a vocabulary of whole words.

The splits train, dev and test have examples up to the length of the task; test2x, test4x and test8x
have 2, 4 and 8 times that length.
"""

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from t2t_jax.config import Data
from t2t_jax.data import tasks
from t2t_jax.data.corpora import parse_options
from t2t_jax.data.raw import Raw, RawCorpus, Report, drawn_pairs, streams_of
from t2t_jax.data.tasks import Example, Options
from t2t_jax.errors import UsageError
from t2t_jax.tokens import UNK

# How an example is drawn, and the words of the options.
TASKS: Mapping[str, tuple[Callable[..., Example], Callable[[Options], list[str]]]] = {
    "recall": (tasks.recall, tasks.recall_words),
    "copy": (functools.partial(tasks.reorder, order=list), tasks.symbols),
    "reverse": (functools.partial(tasks.reorder, order=reversed), tasks.symbols),
    "sort": (functools.partial(tasks.reorder, order=sorted), tasks.symbols),
    "dyck": (tasks.dyck, tasks.dyck_words),
}
VERSION = 1  # to be raised with a change of the examples that are drawn
PAIRS = 20_000  # in training, unless another number is requested
# The factor of the length and the number of pairs of each split; 0 is the number requested.
# Train is last, so that its size changes no other split.
SPLITS = {
    "dev": (1, 500),
    "test": (1, 1000),
    "test2x": (2, 500),
    "test4x": (4, 500),
    "test8x": (8, 500),
    "train": (1, 0),
}
RESERVED = UNK + 1  # ids of a vocabulary that are not words
_TRIES = 100  # draws in a row without a new example, after which there are too few


def diagnostic(data: Data, root: Path, report: Report) -> RawCorpus:
    """The corpus of a task."""
    options = parse_options(data.corpus, data.task_options)
    words = TASKS[data.corpus][1]({**options, "V": data.vocabulary - RESERVED})
    if not words:
        raise UsageError(
            f"vocabulary={data.vocabulary} leaves corpus {data.corpus} without words, as special "
            "tokens take four places: raise vocabulary."
        )

    @functools.cache
    def examples() -> Mapping[str, Sequence[Example]]:
        return generate(data.corpus, options, data.vocabulary, drawn_pairs(data) or PAIRS)

    def read(split: str) -> Iterator[Raw]:
        for source, target, distance in examples()[split]:
            extra = None if distance is None else {"dependency": distance}
            yield Raw(" ".join(source).encode(), " ".join(target).encode(), extra)

    content = {"options": options, "version": VERSION}
    return RawCorpus(content, lambda: streams_of(data.corpus, SPLITS, read), words)


def generate(
    task: str, options: Options, V: int, pairs: int = PAIRS
) -> Mapping[str, list[Example]]:
    """The splits of a task; all of their examples differ, and the name of a split is its seed.

    A larger number of training pairs begins with the same ones.
    """
    seen = set[str]()
    splits = {}
    for split, (factor, count) in SPLITS.items():
        scaled = {**options, "length": factor * options["length"], "V": V - RESERVED}
        if split != "train" and "fewest" in options:
            scaled["fewest"] = 0  # models are compared where it is most difficult
        TASKS[task][1](scaled)  # raises if the options do not fit each other at this length
        drawn = _distinct(task, split, scaled, seen)
        splits[split] = list(itertools.islice(drawn, count or pairs))
    return splits


def _distinct(task: str, split: str, options: Options, seen: set[str]) -> Iterator[Example]:
    """Examples without end that are not in `seen`, to which they are added."""
    rng, tries, draw = random.Random(f"{task} {split}"), 0, TASKS[task][0]
    while True:
        example = draw(rng, options)
        text = f"{' '.join(example.source)}\t{' '.join(example.target)}"
        if text not in seen:
            seen.add(text)
            tries = 0
            yield example
        elif (tries := tries + 1) == _TRIES:
            raise UsageError(
                f"corpus {task} has too few different examples ({len(seen):,} were drawn): raise "
                "its length or vocabulary, or lower pairs."
            )
