"""Diagnostic tasks, which tell attention mechanisms apart, as corpora of whole words.

A task is a function of a random generator and its options that returns an `Example`. Options are
named in `corpora.CORPORA`, besides V, the number of words. `length` is the length of the longest
examples. The answer is a function of the words before it, so an accuracy of 100% is possible.

The splits train, dev and test have examples up to the length of the task; test2x, test4x and test8x
have 2, 4 and 8 times that length. No two examples are equal.
"""

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from t2t_jax.config import Data
from t2t_jax.data.corpora import parse_options
from t2t_jax.data.raw import Raw, RawCorpus, Report, drawn_pairs, streams_of
from t2t_jax.errors import UsageError
from t2t_jax.tokens import PROMPT, UNK

BLANK = "."  # fills places that have no meaning

Options = Mapping[str, int]


class Example(NamedTuple):
    source: list[str]
    target: list[str]
    # Words from where the answer is known to where it is asked for, the largest of several; None
    # if the task has no such distance.
    distance: int | None = None


def require(fits: bool, reason: str) -> None:
    """Raises UsageError with a reason unless options fit each other."""
    if not fits:
        raise UsageError(f"the options of this task do not fit: {reason}.")


def _numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def symbols(o: Options) -> list[str]:
    require(o["V"] >= 2, f"vocabulary must be at least 6, not {o['V'] + 4}")
    return _numbered("w", o["V"])


def reorder(rng: random.Random, o: Options, order: Callable[[list[int]], Iterable[int]]) -> Example:
    """The words of the source in another order, which is a function of their numbers.

    A length is in (length / 2, length], so that tests of twice the length share none.
    """
    n = rng.randint(o["length"] // 2 + 1, o["length"])
    numbers = [rng.randrange(o["V"]) for _ in range(n)]
    return Example([f"w{i}" for i in numbers], [f"w{i}" for i in order(numbers)])


def recall(rng: random.Random, o: Options) -> Example:
    """Multi-query associative recall (Arora et al. 2023, MQAR): the value of each key.

    The source is a list of keys, each followed by its value. In the target, each key is a prompt,
    followed by its value, which is the answer. Keys and values are drawn without replacement. The
    target has places g = 1, 2, ... for pairs, which are drawn without replacement and with
    probabilities in proportion to g^(a - 1), a = 0.01. All other places are blank. An example has
    from `fewest` to `keys` keys; if `fewest` is 0, it has `keys`.
    """
    n = rng.randint(o["fewest"] or o["keys"], o["keys"])
    keys, values = _recall_sizes(o)
    drawn = rng.sample(range(keys), n), rng.sample(range(values), n)
    pairs = [(f"k{i}", f"v{j}") for i, j in zip(*drawn, strict=True)]
    # Places are drawn one after another by weight (Efraimidis and Spirakis 2006).
    weights = (g ** (0.01 - 1) for g in range(1, o["length"] // 2 - n + 1))
    waiting = [(-math.log(1 - rng.random()) / weight, i) for i, weight in enumerate(weights)]
    places = [i for _, i in sorted(waiting)[:n]]
    rng.shuffle(places)  # otherwise the first key would mostly be the first prompt
    target = [PROMPT + BLANK] * (o["length"] - 2 * n)
    for (key, value), place in zip(pairs, places, strict=True):
        target[2 * place : 2 * place + 2] = PROMPT + key, value
    distances = (2 * (n + place) - (2 * i + 1) for i, place in enumerate(places))
    return Example([word for pair in pairs for word in pair], target, max(distances))


def _recall_sizes(o: Options) -> tuple[int, int]:
    """The numbers of keys and of values in the vocabulary."""
    return (o["V"] - 1) // 2, o["V"] - 1 - (o["V"] - 1) // 2


def recall_words(o: Options) -> list[str]:
    keys, values = _recall_sizes(o)
    most = o["keys"]
    require(o["fewest"] <= most, f"fewest must be at most keys, which is {most}")
    require(o["length"] % 2 == 0, f"length must be even, not {o['length']}")
    require(4 * o["keys"] <= o["length"], f"length must be at least 4 keys, {4 * o['keys']}")
    least = 2 * o["keys"] + 5
    require(o["keys"] <= keys, f"{o['keys']} keys need a vocabulary of at least {least}")
    return [BLANK, *_numbered("k", keys), *_numbered("v", values)]


def dyck(rng: random.Random, o: Options) -> Example:
    """Every closing bracket of a balanced string of V / 2 types (Hewitt et al. 2020).

    Opening brackets are prompts, so a model predicts the type of each closing bracket alone. The
    source is the first bracket. No prefix has more than `depth` open brackets.
    """
    n = 2 * rng.randint(o["length"] // 4 + 1, o["length"] // 2)
    words, stack, longest = list[str](), list[tuple[int, int]](), 0
    while len(words) < n:
        room = len(stack) < min(o["depth"], n - len(words))
        if not stack or (room and rng.random() < 0.5):
            stack.append((rng.randrange(o["V"] // 2), len(words)))
            words.append(f"{PROMPT}({stack[-1][0]}")
        else:
            kind, place = stack.pop()
            longest = max(longest, len(words) - place)
            words.append(f"){kind}")
    return Example([words[0].removeprefix(PROMPT)], words[1:], longest)


def dyck_words(o: Options) -> list[str]:
    require(o["V"] % 2 == 0, f"vocabulary must be 4 and two for each type, not {o['V'] + 4}")
    require(o["length"] % 4 == 0, f"length must be a multiple of 4, not {o['length']}")
    return [bracket + str(i) for i in range(o["V"] // 2) for bracket in "()"]


# How an example is drawn, and the words of the options.
TASKS: Mapping[str, tuple[Callable[..., Example], Callable[[Options], list[str]]]] = {
    "recall": (recall, recall_words),
    "copy": (functools.partial(reorder, order=list), symbols),
    "reverse": (functools.partial(reorder, order=reversed), symbols),
    "sort": (functools.partial(reorder, order=sorted), symbols),
    "dyck": (dyck, dyck_words),
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
    options = parse_options(data.corpus, data.task_options)
    words = TASKS[data.corpus][1]({**options, "V": data.vocabulary - RESERVED})
    if not words:
        raise UsageError(
            f"vocabulary={data.vocabulary} leaves corpus {data.corpus} without words, as special "
            "tokens take four places: raise vocabulary."
        )

    pairs = drawn_pairs(data) or PAIRS
    examples = functools.cache(lambda: generate(data.corpus, options, data.vocabulary, pairs))

    def read(split: str) -> Iterator[Raw]:
        for source, target, distance in examples()[split]:
            extra = None if distance is None else {"dependency": distance}
            yield Raw(" ".join(source).encode(), " ".join(target).encode(), extra)

    content = {"options": options, "version": VERSION}
    return RawCorpus(content, lambda: streams_of(data.corpus, SPLITS, read), words)


def generate(task: str, options: Options, V: int, pairs: int = PAIRS) -> dict[str, list[Example]]:
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
