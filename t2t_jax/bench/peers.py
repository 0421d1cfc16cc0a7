"""The same work by other toolkits, in turns: each in a process of its own, asked for a round.

A toolkit that cannot be imported by the Python that is named is left out, and said to be.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from t2t_jax.bench import TASKS, work
from t2t_jax.bench.translate import weights
from t2t_jax.inference.export import export
from t2t_jax.study.store import environment

ROUNDS, FEWER = 5, 3  # of tiny models, and of others, which take a minute each
OURS = "t2t_jax"
TRAIN = {
    "PyTorch": ("torch_",),
    "PyTorch, compiled": ("torch_", "compiled"),
    "OpenNMT-py": ("opennmt_",),
    "JoeyNMT": ("joeynmt_",),
}
TRANSLATE = {"CTranslate2": ("ctranslate2_",), "JoeyNMT": ("joeynmt_",)}
_ROOT = Path(__file__).parents[2]


def measure(
    python: Path, against: Path | None, tasks: Sequence[str], say: Callable[[str], object]
) -> dict[str, Any]:
    """Races everyone at each of `TASKS`.

    Args:
      python: of an environment with the other toolkits.
      against: another checkout of this project.

    Returns:
      What is kept as JSON and printed by `table`: of each task and contender units a second
      (tokens of both sides without padding, or sentences), and the ratio of ours to it; and the
      version of each.
    """
    found: dict[str, Any] = {"tasks": {}, "versions": {}}
    for title in tasks:
        words = TASKS[title]
        with ExitStack() as held:
            racing = {}
            for name, process, version in _started(held, python, against, words, say):
                racing[name] = process
                if version:
                    found["versions"][name.split(",")[0]] = version  # compiled or not
            times: dict[str, list[float]] = {name: [] for name in racing}
            turns = deque(racing.items())
            rounds = ROUNDS if words[1] == "tiny" else min(ROUNDS, FEWER)
            for _ in range(rounds):
                turns.rotate()  # nobody always follows the same one
                for name, process in turns:
                    process.stdin.write("\n")
                    process.stdin.flush()
                    times[name].append(float(process.stdout.readline()))
        units = _units(words)
        middle = {name: statistics.median(t) for name, t in times.items()}
        found["tasks"][title] = {
            name: {
                "per_second": units / middle[name],
                "least": units / max(t),
                "most": units / min(t),
                "ours_to_it": middle[name] / middle[OURS],
                "rounds": rounds,
            }
            for name, t in times.items()
        }
        say(f"{title}: " + ", ".join(f"{n} {units / t:,.0f}" for n, t in middle.items()))
    return found | {"environment": environment()}


def _units(words: tuple[str, ...]) -> int:
    task, size, tokens = words
    if task == "translate":
        return work.SENTENCES
    return work.tokens(work.batches(work.size(size, int(tokens))))


def _started(
    held: ExitStack,
    python: Path,
    against: Path | None,
    words: tuple[str, ...],
    say: Callable[[str], object],
) -> Iterator[tuple[str, Any, str]]:
    """Everyone who can do a task, one after the other, each after its first round; its version."""
    task, size, _ = words
    for name, who, root, (module, *more) in _contenders(task, python, against):
        error = held.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
        if name == "CTranslate2":
            more = [str(held.enter_context(_exported(size)))]
        command = [who.absolute(), "-m", f"t2t_jax.bench.contenders.{module}", *words, *more]
        process = held.enter_context(
            subprocess.Popen(
                [str(w) for w in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=error,
                cwd=root,  # where Python looks first
                env=os.environ | {"PYTHONPATH": str(root)},
                text=True,
            )
        )
        held.callback(process.kill)  # before its pipes are closed and it is waited for
        first = process.stdout.readline() if process.stdout else ""
        if not first:
            error.seek(0)
            said = error.read().strip().splitlines() or ["it said nothing"]
            say(f"{name} is left out: {said[-1]}")
            continue
        seconds, *version = first.split()
        say(f"{name}: first round {float(seconds):.1f} s")
        yield name, process, " ".join(version)


def _contenders(
    task: str, python: Path, against: Path | None
) -> Iterator[tuple[str, Path, Path, tuple[str, ...]]]:
    """Name, Python, checkout of this project and contender in it, with its words."""
    yield OURS, Path(sys.executable), _ROOT, ("t2t",)
    if against is not None:
        yield f"{OURS}, {against.name}", Path(sys.executable), against.resolve(), ("t2t",)
    for name, words in (TRAIN if task == "train" else TRANSLATE).items():
        yield name, python, _ROOT, words


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
    """Lines: of each task, everyone's speed and how many times as fast ours is."""
    versions = [f"{name} {version}" for name, version in sorted(found["versions"].items())]
    out = [
        f"on {found['environment']['device']}, medians of rounds in turns; {', '.join(versions)}"
    ]
    for title, at in found["tasks"].items():
        out.append(f"{title}, {at[OURS]['rounds']} rounds")
        for name, x in at.items():
            speeds = [f"{x[k]:,.0f}" for k in ("per_second", "least", "most")]
            ratio = "" if name == OURS else f"ours {x['ours_to_it']:.2f} times as fast"
            out.append(f"  {name:20}{f'{speeds[0]} ({speeds[1]}, {speeds[2]})':>30}  {ratio}")
    return out
