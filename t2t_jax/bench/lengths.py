"""Time and memory of compiled programs as the sequence length n grows.

At each n the programs take turns in every round, so that a disturbance of the machine affects all;
times are medians over rounds. A program is dropped before a call would take too long or too much
memory.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from t2t_jax import plotting
from t2t_jax.errors import RunError
from t2t_jax.terminal import say

MOST = 9  # curves in a column of a plot, beside the first
SIDE = 190  # of a panel of a plot, in pixels
QUANTITIES = (  # of a point, the factor of their unit, and their name and unit
    ("seconds", 1e3, "time (ms)"),
    ("bytes", 2**-20, "memory of temporaries (MiB)"),
)
ROUNDS = 5
Point = dict[str, float]  # n; seconds (the median), least and most; bytes of temporaries


class Compiled(NamedTuple):
    """A compiled function, its arguments, and the bytes of its temporaries."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory: int


def compiled(function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compiles a function for these arguments."""
    program = jax.jit(function).lower(*arguments).compile()
    used: Any = program.memory_analysis()
    return Compiled(program, arguments, used.temp_size_in_bytes)


def sweep(
    names: Sequence[str],
    lengths: Sequence[int],
    seconds: float,
    make: Callable[[str, int], Compiled],
) -> dict[str, list[Point]]:
    """Measures every program at every length.

    Args:
      seconds: a program whose next call is expected to take longer is dropped.
      make: returns the program with a name at a length.
    """
    curves: dict[str, list[Point]] = {name: [] for name in names}
    host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    stats = jax.devices()[0].memory_stats() or {}
    # Programs of several mechanisms and their arguments are in memory at once.
    names, room = list(names), int(stats.get("bytes_limit", host)) // 4
    for n in sorted(lengths):
        for name in list(names):
            last = curves[name][-1:]  # time is expected to be quadratic
            expected = sum(point["seconds"] * (n / point["n"]) ** 2 for point in last)
            if expected > seconds:
                say(f"n = {n:,}: {name} is dropped; a call would take some {expected:.0f} s")
                names.remove(name)
        programs = {name: make(name, n) for name in names}
        for name in [name for name, program in programs.items() if program.memory > room]:
            size = programs.pop(name).memory / 2**30
            say(f"n = {n:,}: {name} is dropped; a call would take {size:.1f} GiB")
            names.remove(name)
        for name, times in _interleaved(programs).items():
            spread = dict(seconds=statistics.median(times), least=min(times), most=max(times))
            curves[name].append(dict(n=n, **spread, bytes=programs[name].memory))
        say(f"n = {n:,}: " + ", ".join(f"{x} {curves[x][-1]['seconds']:.3f} s" for x in names))
    if not any(curves.values()):
        raise RunError("nothing was measured: give shorter --lengths, or more --seconds.")
    return curves


def _interleaved(programs: Mapping[str, Compiled]) -> dict[str, list[float]]:
    """Returns the seconds of each program in every round but the first, which warms up."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for r in range(ROUNDS + 1):
        order = list(programs.items())
        for name, program in reversed(order) if r % 2 else order:  # none is always the first
            start = time.perf_counter()
            jax.block_until_ready(program.run(*program.arguments))
            if r:
                times[name].append(time.perf_counter() - start)
    return times


def power(points: Iterable[tuple[float, float]]) -> float:
    """Returns p of y = a x^p, fitted to points (x, y) by least squares in logarithms."""
    x, y = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
    return statistics.linear_regression(x, y).slope


def exponent(curve: Sequence[Mapping[str, float]], quantity: str) -> float | None:
    """Returns p of a n^p fitted to a curve; None if it cannot be fitted.

    The fit takes the upper half of the lengths, and at least 3 of them.
    """
    upper = curve[-max(3, (len(curve) + 1) // 2) :]
    if len(upper) < 3 or min(point[quantity] for point in upper) <= 0:
        return None
    return power((point["n"], point[quantity]) for point in upper)


def plot(
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    exponents: Mapping[str, Sequence[float | None]],
    title: str,
    path: Any,
) -> None:
    """Plots time and memory against n on logarithmic axes: PATH.png, .svg and .pdf.

    The first curve is shown in every column; the others are divided over the columns, in order.
    Labels show the exponents of time and memory.
    """
    base, *others = curves
    columns = math.ceil(len(others) / MOST) or 1
    share = math.ceil(len(others) / columns)
    shown = [[base, *others[i * share : (i + 1) * share]] for i in range(columns)]
    panels: list[list[plotting.Spec]] = [[] for _ in shown]
    for i, (quantity, factor, name) in enumerate(QUANTITIES):
        values = {x: [p[quantity] * factor for p in curve] for x, curve in curves.items()}
        growth = {x: powers[i] for x, powers in exponents.items() if powers}
        y = plotting.Axis.over("value", name, (v for x in values.values() for v in x), log=True)
        for column, names in zip(panels, shown, strict=True):
            column.append(_panel(curves, values, growth, names, y))
    grows = " (n^p: its growth)" * any(exponents.values())
    spec = plotting.chart(
        {"hconcat": [{"vconcat": column} for column in panels]},
        list(curves),
        [title, f"Time and memory{grows}"],
    )
    plotting.write(path, spec)


def _panel(
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    values: Mapping[str, Sequence[float]],
    growth: Mapping[str, float | None],
    names: Sequence[str],
    y: plotting.Axis,
) -> plotting.Spec:
    """Returns a panel of some curves, whose labels have the exponents in `growth`."""
    lengths = sorted({int(point["n"]) for curve in curves.values() for point in curve})
    x = plotting.Axis.over("n", "sequence length n", lengths, log=True, values=lengths, format=",")
    data, ends = [], []
    for name, style in plotting.styles(names).items():
        power = growth.get(name)
        label = name if power is None else f"{name} n^{power:.2f}"
        points = zip(curves[name], values[name], strict=True)
        own = [{**style, "row": label, "n": point["n"], "value": v} for point, v in points]
        data += own
        ends += own[-1:]
    drawn = plotting.panel(x, y, (SIDE, SIDE), plotting.LINES, ends, always=True)
    return drawn | {"data": {"values": data}}
