"""Programs that do the same for one length after another, measured side by side.

At each n the programs run in turns, round after round, so that what disturbs the machine disturbs
all of them; times are medians. One leaves the race before a call would take too long or too much
memory.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from t2t_jax.report import style

ROUNDS = 5
At = dict[str, float]  # n, seconds (the median), least, most, bytes of temporaries


class Program(NamedTuple):
    """A compiled function, what it is called with, and bytes of its temporaries."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int


def compiled(function: Callable[..., Any], *arguments: Any) -> Program:
    """The program of a function for these arguments."""
    program = jax.jit(function).lower(*arguments).compile()
    used: Any = program.memory_analysis()
    return Program(program, arguments, used.temp_size_in_bytes)


def race(
    names: Sequence[str],
    lengths: Sequence[int],
    seconds: float,
    make: Callable[[str, int], Program],
    say: Callable[[str], object],
) -> dict[str, list[At]]:
    """What each needs at each length.

    Args:
      seconds: the longest that a call may be expected to take.
      make: the program of a name at a length.
    """
    found: dict[str, list[At]] = {name: [] for name in names}
    racing, room = list(names), _memory() // 4  # the allocator may keep what others have freed
    for n in sorted(lengths):
        for name in list(racing):
            at = found[name]
            expected = at[-1]["seconds"] * (n / at[-1]["n"]) ** 2 if at else 0
            if expected > seconds:
                say(f"n = {n:,}: {name} leaves; a call would take some {expected:.0f} s")
                racing.remove(name)
        programs = {name: make(name, n) for name in racing}
        for name in [x for x, program in programs.items() if program.memory > room]:
            needed = programs.pop(name).memory / 2**30
            say(f"n = {n:,}: {name} leaves; a call would take {needed:.1f} GiB")
            racing.remove(name)
        times: dict[str, list[float]] = {name: [] for name in racing}
        for r in range(ROUNDS + 1):
            for name, program in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(program.run(*program.arguments))
                if r:  # the first round warms up
                    times[name].append(time.perf_counter() - start)
        for name, program in programs.items():
            middle, each = statistics.median(times[name]), times[name]
            found[name].append(
                dict(n=n, seconds=middle, least=min(each), most=max(each), bytes=program.memory)
            )
        say(f"n = {n:,}: " + ", ".join(f"{x} {found[x][-1]['seconds']:.3f} s" for x in racing))
    return found


def _memory() -> int:
    """Bytes of a device."""
    stats = jax.devices()[0].memory_stats() or {}
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(stats.get("bytes_limit", host))


def power(points: Iterable[tuple[float, float]]) -> float:
    """p of y = a x^p, fitted to points (x, y) by least squares in logarithms."""
    x, y = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    return statistics.linear_regression(x, y).slope


def exponent(at: Sequence[Mapping[str, float]], what: str) -> float | None:
    """p of a n^p fitted to the upper half of the lengths; None for fewer than 3 or a zero."""
    last = at[-max(3, (len(at) + 1) // 2) :]
    if len(last) < 3 or min(x[what] for x in last) <= 0:
        return None
    return power((x["n"], x[what]) for x in last)


def draw(
    found: Mapping[str, Sequence[Mapping[str, float]]],
    powers: Mapping[str, Sequence[float | None]],
    title: str,
    path: Any,
) -> None:
    """Time and memory against n, both axes logarithmic: PATH.png, .svg and .pdf.

    Args:
      powers: of each name the exponents of time and memory, for the legend.
    """
    with style.figure(path, 1, 2, size=(10, 4)) as (figure, axes):
        for ax, what, label, scale in (
            (axes[0], "seconds", "ms", 1e3),
            (axes[1], "bytes", "MiB of temporaries", 2**-20),
        ):
            for i, (name, at) in enumerate(found.items()):
                x, y = [a["n"] for a in at], [a[what] * scale for a in at]
                grown = (f"n^{p:.2f}" for p in powers[name] if p is not None)
                label_of = ", ".join([name, *grown])
                ax.loglog(x, y, label=label_of, base=2, **style.line(i))
            ax.set(xlabel="n, the length of the sequence", ylabel=label)
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right upper", title="time, memory grow as")
        figure.suptitle(title)
