"""The same work by other toolkits, each in turns with ours, in a process of its own.

No more than two are in memory at once, and neither takes from the other what it keeps for its next
round. A toolkit that cannot be imported by the Python that is named is left out, and said to be.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from t2t_jax.bench import TASKS, work
from t2t_jax.bench.translate import weights
from t2t_jax.environment import environment
from t2t_jax.errors import RunError
from t2t_jax.inference.export import export

ROUNDS, FEWER = 5, 3  # of tiny models, and of others, which take a minute each
PAUSE = 0.5  # seconds before a turn: OpenMP's threads go on spinning for 0.2 after theirs
OURS = "t2t_jax"
TRAIN = {
    "PyTorch": ("torch_",),
    "PyTorch, compiled": ("torch_", "compiled"),
    "OpenNMT-py": ("opennmt_",),
    "JoeyNMT": ("joeynmt_",),
}
TRANSLATE = {
    "CTranslate2": ("ctranslate2_",),
    "CTranslate2, a batch a core": ("ctranslate2_", "parallel"),
    "OpenNMT-py": ("opennmt_",),
    "JoeyNMT": ("joeynmt_",),
}
_ROOT = Path(__file__).parents[2]


class Contender(NamedTuple):
    """Who it is: a module of a checkout of this project, with its words, and the Python for it."""

    name: str
    python: Path
    root: Path
    module: str
    words: tuple[str, ...] = ()


def measure(
    python: Path, against: Path | None, tasks: Sequence[str], say: Callable[[str], object]
) -> dict[str, Any]:
    """Races ours against everyone else, one after the other, at each of `TASKS`.

    Args:
      python: of an environment with the other toolkits.
      against: another checkout of this project.

    Returns:
      What is kept as JSON and printed by `table`: of each task and contender units a second
      (tokens of both sides without padding, or sentences) of it and of ours in the same rounds,
      and how many times as fast ours was, round by round, all as median, least and most; and the
      version of each.

    Raises:
      RunError: somebody who had begun ended before the race.
    """
    found: dict[str, Any] = {"tasks": {}, "versions": {}}
    for title in tasks:
        task, size, _ = words = TASKS[title]
        rounds, units = ROUNDS if size == "tiny" else FEWER, _units(words)
        at: dict[str, Any] = {}
        found["tasks"][title] = at
        with ExitStack() as held:
            us = Contender(OURS, Path(sys.executable), _ROOT, "t2t")
            ours, _ = held.enter_context(_started(us, words, say))
            for other in _others(task, python, against):
                with _started(other, words, say) as (theirs, version):
                    if theirs is None:
                        continue
                    times = _in_turns({OURS: ours, other.name: theirs}, rounds)
                if version:
                    found["versions"][other.name.split(",")[0]] = version  # compiled or not
                mine, its = times.values()
                at[other.name] = {
                    "per_second": _spread([units / t for t in its]),
                    "ours_per_second": _spread([units / t for t in mine]),
                    "ours_to_it": _spread([t / m for m, t in zip(mine, its, strict=True)]),
                    "rounds": rounds,
                }
                say(f"{title}: ours {at[other.name]['ours_to_it'][0]:.2f} times as fast")
    return found | {"environment": environment()}


def _spread(values: Sequence[float]) -> list[float]:
    return [statistics.median(values), min(values), max(values)]


def _in_turns(racing: Mapping[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of every round; who goes first changes."""
    times: dict[str, list[float]] = {name: [] for name in racing}
    for r in range(rounds):
        for name in list(racing)[:: -1 if r % 2 else 1]:
            time.sleep(PAUSE)
            racing[name].stdin.write("\n")
            racing[name].stdin.flush()
            said = racing[name].stdout.readline()
            if not said:
                raise RunError(f"{name} ended in round {r + 1}: it may have run out of memory.")
            times[name].append(float(said))
    return times


def _units(words: tuple[str, ...]) -> int:
    task, size, tokens = words
    if task == "translate":
        return work.SENTENCES
    return work.tokens(work.batches(work.size(size, int(tokens))))


@contextmanager
def _started(
    who: Contender, words: tuple[str, ...], say: Callable[[str], object]
) -> Iterator[tuple[Any, str]]:
    """Its process, after its first round, and its version; None of one that cannot be imported."""
    with ExitStack() as held:
        error = held.enter_context(tempfile.TemporaryFile("w+"))
        more = who.words
        if who.module == "ctranslate2_":
            more = (str(held.enter_context(_exported(words[1]))), *more)
        module = f"t2t_jax.bench.contenders.{who.module}"
        process = held.enter_context(
            subprocess.Popen(
                [str(who.python.absolute()), "-m", module, *words, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error,
                cwd=who.root,  # where Python looks first
                env=os.environ | {"PYTHONPATH": str(who.root)},
                text=True,
            )
        )
        held.callback(process.kill)  # before its pipes are closed and it is waited for
        first = process.stdout.readline() if process.stdout else ""
        if first:
            seconds, *version = first.split()
            say(f"{who.name}: first round {float(seconds):.1f} s")
            yield process, " ".join(version)
            return
        error.seek(0)
        said = (error.read().strip().splitlines() or ["it said nothing"])[-1]
        if who.name == OURS:
            raise RunError(f"our own part of the race ended: {said}")
        say(f"{who.name} is left out: {said}")
        yield None, ""


def _others(task: str, python: Path, against: Path | None) -> Iterator[Contender]:
    if against is not None:
        name = f"{OURS}, {against.name}"
        yield Contender(name, Path(sys.executable), against.resolve(), "t2t")
    for name, (module, *words) in (TRAIN if task == "train" else TRANSLATE).items():
        yield Contender(name, python, _ROOT, module, tuple(words))


@contextmanager
def _exported(size: str) -> Iterator[Path]:
    """Our weights, for CTranslate2."""
    s = work.size(size, 2048)
    names = ["<pad>", "<s>", "</s>", "<unk>", *(f"▁{i}" for i in range(4, s.V))]
    vocabulary: Any = SimpleNamespace(
        size=s.V, pieces=lambda ids: [names[i] for i in ids], model=b""
    )
    with tempfile.TemporaryDirectory() as directory:
        export(s.c, weights(s)[1], vocabulary, Path(directory) / "model")
        yield Path(directory) / "model"


def table(found: Mapping[str, Any]) -> list[str]:
    """Lines: of each task, everyone's speed, ours in the same rounds, and the ratio."""
    versions = [f"{name} {version}" for name, version in sorted(found["versions"].items())]
    out = [f"on {found['environment']['device']}; {', '.join(versions)}; median (least, most)"]
    for title, at in found["tasks"].items():
        rounds = max((x["rounds"] for x in at.values()), default=0)
        heads = f"{'its speed':>24}{'ours':>26}{'ours to it':>20}"
        out.append(f"{f'{title}, {rounds} rounds':30}{heads}")
        for name, x in at.items():
            its, ours = (
                "{:,.0f} ({:,.0f}, {:,.0f})".format(*x[key])
                for key in ("per_second", "ours_per_second")
            )
            ratio = "{:.2f} ({:.2f}, {:.2f})".format(*x["ours_to_it"])
            out.append(f"  {name:28}{its:>24}{ours:>26}{ratio:>20}")
    return out
