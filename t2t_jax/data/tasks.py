"""Diagnostic tasks that tell attention mechanisms apart: each draws one example.

A task is a function of a random generator and its options that returns an `Example`. Options are
named in `corpora.CORPORA`, besides V, the number of words. `length` is the length of the longest
examples. The answer is a function of the words before it, so an accuracy of 100% is possible.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from t2t_jax.errors import UsageError
from t2t_jax.tokens import PROMPT

BLANK = "."  # fills places that have no meaning

Options = Mapping[str, int]


class Example(NamedTuple):
    """An example as words."""

    source: list[str]
    target: list[str]
    # Words from where the answer is known to its place, the largest of several; None if the task
    # has no such distance.
    distance: int | None = None


def require(fits: bool, reason: str) -> None:
    """Raises UsageError with a reason unless options fit each other."""
    if not fits:
        raise UsageError(f"the options of this task do not fit: {reason}.")


def draw_length(rng: random.Random, o: Options) -> int:
    """A random length in (length / 2, length], so that tests of twice the length share none."""
    return rng.randint(o["length"] // 2 + 1, o["length"])


def _numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(count)]


def symbols(o: Options) -> list[str]:
    require(o["V"] >= 2, f"vocabulary must be at least 6, not {o['V'] + 4}")
    return _numbered("w", o["V"])


def reorder(rng: random.Random, o: Options, order: Callable[[list[int]], Iterable[int]]) -> Example:
    """The words of the source in another order, which is a function of their numbers."""
    numbers = [rng.randrange(o["V"]) for _ in range(draw_length(rng, o))]
    return Example([f"w{i}" for i in numbers], [f"w{i}" for i in order(numbers)])


def selective_copy(rng: random.Random, o: Options) -> Example:
    """The words among blanks at random places, in order (Gu and Dao 2023, section 3.1)."""
    places = rng.sample(range(o["length"]), o["items"])
    items = [f"w{rng.randrange(o['V'] - 1)}" for _ in places]
    source = [BLANK] * o["length"]
    for place, item in zip(sorted(places), items, strict=True):
        source[place] = item
    return Example(source, items)


def selective_copy_words(o: Options) -> list[str]:
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


def induction_words(o: Options) -> list[str]:
    require(o["length"] >= 3, f"length must be at least 3, not {o['length']}")
    return symbols(o)


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


def needle(rng: random.Random, o: Options) -> Example:
    """The value that follows the only earlier occurrence of a key, hidden in random words.

    The last word of the source is the key. `distance` is the number of words from its value to the
    last word; if it is 0, all distances are equally likely. Other keys have values, too, so that a
    model must find out which value follows the key.
    """
    fillers, keys, values = _needle_sizes(o)
    last = o["length"] - 1
    words = [f"w{rng.randrange(fillers)}" for _ in range(last)]
    distance = o["distance"] or rng.randint(1, last - 1)
    places = [last - 1 - distance]
    while len(places) < o["keys"]:
        free = [i for i in range(last - 1) if all(abs(i - place) > 1 for place in places)]
        places.append(rng.choice(free))
    for place, number in zip(places, rng.sample(range(keys), o["keys"]), strict=True):
        words[place : place + 2] = f"k{number}", f"v{rng.randrange(values)}"
    key, value = words[places[0] : places[0] + 2]
    return Example([*words, key], [value], distance)


def _needle_sizes(o: Options) -> tuple[int, int, int]:
    """The numbers of fillers, keys and values in the vocabulary."""
    return o["V"] // 2, o["V"] // 4, o["V"] - o["V"] // 2 - o["V"] // 4


def needle_words(o: Options) -> list[str]:
    fillers, keys, values = _needle_sizes(o)
    V = 4 * o["keys"] + 4
    require(o["keys"] <= keys, f"{o['keys']} keys need a vocabulary of at least {V}")
    least, most = 3 * o["keys"], o["length"] - 2
    require(o["length"] >= least, f"length must be at least 3 keys, {least}")
    require(o["distance"] <= most, f"distance must be at most length - 2, {most}")
    return [*_numbered("w", fillers), *_numbered("k", keys), *_numbered("v", values)]


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


def listops(rng: random.Random, o: Options) -> Example:
    """The value of a nested expression (Nangia and Bowman 2018), a digit.

    An operator has two to five arguments: digits, or expressions nested up to `depth`. MED is the
    median, rounded down, and SM the sum modulo 10. Every expression has more than half of `length`
    words.
    """
    for _ in range(_TRIES):
        words, value = _expression(rng, draw_length(rng, o), o["depth"])
        if len(words) > o["length"] // 2:
            return Example(words, [str(value)])
    raise UsageError(
        f"hardly any expression of depth {o['depth']} has more than {o['length'] // 2} of the "
        f"{o['length']} words of the longest test: raise depth or lower length."
    )


_TRIES = 1000

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


def listops_words(o: Options) -> list[str]:
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
