"""Diagnostic tasks that tell attention mechanisms apart: each draws one example.

A task is a function of a random generator and its options that returns an `Example`. Options are
those of `registry.CORPORA` and V, the number of words. `length` is the length of the longest
examples. The answer is a function of the words before it, so an accuracy of 1 is possible.
"""

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from t2t_jax.errors import UsageError

GIVEN = "_"  # begins a word of the target that a model reads but is not asked for
BLANK = "."  # fills places that have no meaning

Options = Mapping[str, int]


class Example(NamedTuple):
    """An example as words.

    Attributes:
      distance: words from where the answer is known to where it is asked, the largest of several;
        None if the task has no such distance.
    """

    source: list[str]
    target: list[str]
    distance: int | None = None


class Task(NamedTuple):
    """A task.

    Attributes:
      draw: (generator, options) -> an example.
      words: options -> its words.
    """

    draw: Callable[[random.Random, Options], Example]
    words: Callable[[Options], list[str]]


def require(fits: bool, reason: str) -> None:
    """Raises an error with a reason, unless options fit each other."""
    if not fits:
        raise UsageError(f"the options of this task do not fit: {reason}.")


def _length(rng: random.Random, o: Options) -> int:
    """A length from above half of the option to the option, so that longer tests share none."""
    return rng.randint(o["length"] // 2 + 1, o["length"])


def _numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def _symbols(o: Options) -> list[str]:
    require(o["V"] >= 2, f"vocabulary must be at least 6, not {o['V'] + 4}")
    return _numbered("w", o["V"])


def _draw_symbols(rng: random.Random, o: Options) -> list[int]:
    return [rng.randrange(o["V"]) for _ in range(_length(rng, o))]


def copy(rng: random.Random, o: Options) -> Example:
    """The source again."""
    words = [f"w{i}" for i in _draw_symbols(rng, o)]
    return Example(words, words)


def reverse(rng: random.Random, o: Options) -> Example:
    """The source from its last word to its first."""
    words = [f"w{i}" for i in _draw_symbols(rng, o)]
    return Example(words, words[::-1])


def sort(rng: random.Random, o: Options) -> Example:
    """The words of the source by their numbers, from the smallest."""
    numbers = _draw_symbols(rng, o)
    return Example([f"w{i}" for i in numbers], [f"w{i}" for i in sorted(numbers)])


def selective_copy(rng: random.Random, o: Options) -> Example:
    """The words among blanks at random places, in order (Gu and Dao 2023, section 3.1)."""
    places = rng.sample(range(o["length"]), o["items"])
    items = [f"w{rng.randrange(o['V'] - 1)}" for _ in places]
    source = [BLANK] * o["length"]
    for place, item in zip(sorted(places), items, strict=True):
        source[place] = item
    return Example(source, items)


def _selective_copy_words(o: Options) -> list[str]:
    require(o["items"] <= o["length"], f"items must be at most length, which is {o['length']}")
    require(o["V"] >= 3, f"vocabulary must be at least 7, not {o['V'] + 4}")
    return [BLANK, *_numbered("w", o["V"] - 1)]


def induction(rng: random.Random, o: Options) -> Example:
    """The word that followed the earlier occurrence of the last word (Olsson et al. 2022).

    The last word occurs once before; the other words are random.
    """
    last, n = rng.randrange(o["V"]), o["length"]
    others = [(last + rng.randrange(1, o["V"])) % o["V"] for _ in range(n - 1)]
    place = rng.randrange(n - 2)
    others[place] = last
    words = [f"w{i}" for i in (*others, last)]
    return Example(words, [words[place + 1]], n - place - 2)


def _induction_words(o: Options) -> list[str]:
    require(o["length"] >= 3, f"length must be at least 3, not {o['length']}")
    return _symbols(o)


def recall(rng: random.Random, o: Options) -> Example:
    """Multi-query associative recall (Arora et al. 2023, MQAR): the value of each key.

    The source is keys, each followed by its value. In the target every key is given once, followed
    by its value, which is the answer. Keys and values are drawn without replacement. The target has
    places for pairs; a key is at place g with a probability proportional to g^(a - 1), a = 0.01,
    without replacement. All other places are blank.
    """
    n, (keys, values) = o["keys"], _recall_sizes(o)
    drawn = rng.sample(range(keys), n), rng.sample(range(values), n)
    pairs = [(f"k{i}", f"v{j}") for i, j in zip(*drawn, strict=True)]
    places = _without_replacement(rng, _power_law(o["length"] // 2 - n), n)
    rng.shuffle(places)  # otherwise the first key would mostly be asked first
    target = [GIVEN + BLANK] * (o["length"] - 2 * n)
    for (key, value), place in zip(pairs, places, strict=True):
        target[2 * place : 2 * place + 2] = GIVEN + key, value
    distances = (2 * (n + place) - (2 * i + 1) for i, place in enumerate(places))
    return Example([word for pair in pairs for word in pair], target, max(distances))


def _power_law(places: int) -> list[float]:
    return [g ** (0.01 - 1) for g in range(1, places + 1)]


def _without_replacement(rng: random.Random, weights: list[float], count: int) -> list[int]:
    """Indices drawn one after another by weight (Efraimidis and Spirakis 2006)."""
    waiting = [(-math.log(1 - rng.random()) / weight, i) for i, weight in enumerate(weights)]
    return [i for _, i in sorted(waiting)[:count]]


def _recall_sizes(o: Options) -> tuple[int, int]:
    """The numbers of keys and of values in the vocabulary."""
    return (o["V"] - 1) // 2, o["V"] - 1 - (o["V"] - 1) // 2


def _recall_words(o: Options) -> list[str]:
    keys, values = _recall_sizes(o)
    require(o["length"] % 2 == 0, f"length must be even, not {o['length']}")
    require(4 * o["keys"] <= o["length"], f"length must be at least 4 keys, {4 * o['keys']}")
    least = 2 * o["keys"] + 5
    require(o["keys"] <= keys, f"{o['keys']} keys need a vocabulary of at least {least}")
    return [BLANK, *_numbered("k", keys), *_numbered("v", values)]


def dyck(rng: random.Random, o: Options) -> Example:
    """Every closing bracket of a balanced string of V / 2 types (Hewitt et al. 2020).

    Opening brackets are given, so a model is asked which bracket closes where one does. The source
    is the first bracket. No prefix has more than `depth` brackets open.
    """
    n = 2 * rng.randint(o["length"] // 4 + 1, o["length"] // 2)
    words, stack, longest = list[str](), list[tuple[int, int]](), 0
    while len(words) < n:
        room = len(stack) < min(o["depth"], n - len(words))
        if not stack or (room and rng.random() < 0.5):
            stack.append((rng.randrange(o["V"] // 2), len(words)))
            words.append(f"{GIVEN}({stack[-1][0]}")
        else:
            kind, place = stack.pop()
            longest = max(longest, len(words) - place)
            words.append(f"){kind}")
    return Example([words[0].removeprefix(GIVEN)], words[1:], longest)


def _dyck_words(o: Options) -> list[str]:
    require(o["V"] % 2 == 0, f"vocabulary must be 4 and two for each type, not {o['V'] + 4}")
    require(o["length"] % 4 == 0, f"length must be a multiple of 4, not {o['length']}")
    return [bracket + str(i) for i in range(o["V"] // 2) for bracket in "()"]


def listops(rng: random.Random, o: Options) -> Example:
    """The value of a nested expression (Nangia and Bowman 2018), a digit.

    An operator has two to five arguments: digits, or expressions nested up to `depth`. MED is the
    median, rounded down, and SM the sum modulo 10.
    """
    while True:
        words, value = _expression(rng, _length(rng, o), o["depth"])
        if len(words) > o["length"] // 2:
            return Example(words, [str(value)])


_OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda x: (sorted(x)[(len(x) - 1) // 2] + sorted(x)[len(x) // 2]) // 2,
    "[SM": lambda x: sum(x) % 10,
}


def _expression(rng: random.Random, budget: int, depth: int) -> tuple[list[str], int]:
    """The words of an expression of at most `budget` words, and its value."""
    if depth == 0 or budget < 4:
        digit = rng.randrange(10)
        return [str(digit)], digit
    operator, count = rng.choice(list(_OPERATORS)), rng.randint(2, min(5, budget - 2))
    cuts = [0, *sorted(rng.sample(range(1, budget - 2), count - 1)), budget - 2]
    parts = [_expression(rng, b - a, depth - 1) for a, b in itertools.pairwise(cuts)]
    words = [operator, *itertools.chain.from_iterable(words for words, _ in parts), "]"]
    return words, _OPERATORS[operator]([value for _, value in parts])


def _listops_words(o: Options) -> list[str]:
    largest = 1
    for _ in range(o["depth"]):
        largest = 2 + 5 * largest
    require(o["length"] >= 4, f"length must be at least 4, not {o['length']}")
    require(
        largest >= o["length"],
        f"expressions of depth {o['depth']} have at most {largest} words, so raise depth or lower "
        f"length, which is {o['length']} in the longest test",
    )
    return [*map(str, range(10)), *_OPERATORS, "]"]


def needle(rng: random.Random, o: Options) -> Example:
    """The value that follows the only earlier occurrence of a key, hidden in random words.

    The last word of the source is the key. `distance` is the number of words from the value to the
    last word; with 0 all distances are equally likely.
    """
    fillers, keys, values = _needle_sizes(o)
    words = [f"w{rng.randrange(fillers)}" for _ in range(o["length"])]
    key, value = f"k{rng.randrange(keys)}", f"v{rng.randrange(values)}"
    distance = o["distance"] or rng.randint(1, o["length"] - 2)
    words[-2 - distance : -distance] = key, value
    words[-1] = key
    return Example(words, [value], distance)


def _needle_sizes(o: Options) -> tuple[int, int, int]:
    """The numbers of fillers, keys and values in the vocabulary."""
    return o["V"] // 2, o["V"] // 4, o["V"] - o["V"] // 2 - o["V"] // 4


def _needle_words(o: Options) -> list[str]:
    require(o["V"] >= 4, f"vocabulary must be at least 8, not {o['V'] + 4}")
    require(o["length"] >= 3, f"length must be at least 3, not {o['length']}")
    most = o["length"] - 2
    require(o["distance"] <= most, f"distance must be at most length - 2, {most}")
    fillers, keys, values = _needle_sizes(o)
    return [*_numbered("w", fillers), *_numbered("k", keys), *_numbered("v", values)]


TASKS: Mapping[str, Task] = {
    "recall": Task(recall, _recall_words),
    "copy": Task(copy, _symbols),
    "reverse": Task(reverse, _symbols),
    "sort": Task(sort, _symbols),
    "selective_copy": Task(selective_copy, _selective_copy_words),
    "induction": Task(induction, _induction_words),
    "dyck": Task(dyck, _dyck_words),
    "listops": Task(listops, _listops_words),
    "needle": Task(needle, _needle_words),
}
