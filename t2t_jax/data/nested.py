"""Diagnostic tasks with nested structure: Dyck languages and ListOps. See `tasks.py`."""

import itertools
import random
from collections.abc import Callable

from t2t_jax.data.tasks import Example, Options, draw_length, require
from t2t_jax.errors import UsageError
from t2t_jax.tokens import PROMPT


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
