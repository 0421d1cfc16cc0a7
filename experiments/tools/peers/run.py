"""Speed of other toolkits on the same work: training steps and translation, in turns with ours.

    python -m venv DIR && DIR/bin/pip install torch OpenNMT-py joeynmt ctranslate2
    launch/local.sh experiments/tools/peers/run.py --python DIR/bin/python [--against CHECKOUT]
        [--tasks train-tiny train-base greedy-tiny beam4-tiny] [--out OUT]

Writes OUT/peers.json and OUT/peers.txt; about 45 minutes on 2 CPU cores, most of it train-base.
Toolkits that DIR lacks are left out. --against adds another checkout of this project, such as one
from before a change. Expected on 2 CPU cores (experiments/results/bench_peers): our training steps
are 1.3 to 1.7 times as fast as the toolkits' for tiny and 1.1 to 1.4 times for base. Our decoding
is 1.7 to 6.4 times as fast, except that CTranslate2 is faster where each core decodes batches of
its own: ours then reaches 0.77 of its speed with greedy search and 0.69 with a beam of 4.

Every contender is a program of this folder in a process of its own. At most two are in memory at a
time, and they take turns round by round, so that what disturbs the machine disturbs both.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from t2t_jax import files
from t2t_jax.bench import keep, workload
from t2t_jax.bench.translate import never_ending_model
from t2t_jax.environment import environment
from t2t_jax.errors import RunError, UsageError
from t2t_jax.inference.export import export
from t2t_jax.terminal import say

ROOT = Path(__file__).parents[3]
FOLDER = Path("experiments/tools/peers")
# Where a checkout keeps its own program: here, or where the checkout `before` has it.
OURS = FOLDER / "ours.py", Path("t2t_jax/bench/contenders/t2t.py")
TASKS = {  # task, size of the model, and batch tokens or beam
    "train-tiny": ("train", "tiny", "2048"),
    "train-base": ("train", "base", "2048"),
    "greedy-tiny": ("translate", "tiny", "1"),
    "beam4-tiny": ("translate", "tiny", "4"),
}
# Program and options of each toolkit. Programs do not have the names of the packages that they
# import: Python would find the program instead.
TRAIN = {
    "PyTorch": ("pytorch.py",),
    "PyTorch, compiled": ("pytorch.py", "compiled"),
    "OpenNMT-py": ("opennmt.py",),
    "JoeyNMT": ("joey.py",),
}
TRANSLATE = {
    "CTranslate2": ("ctranslate.py",),
    "CTranslate2, a batch a core": ("ctranslate.py", "parallel"),
    "OpenNMT-py": ("opennmt.py",),
    "JoeyNMT": ("joey.py",),
}
ROUNDS, BASE_ROUNDS = 5, 3  # a round of base takes half a minute
# As launch/local.sh: threads that decode would wait for each other in one arena of memory.
ARENAS = {"train": {}, "translate": {"MALLOC_ARENA_MAX": "8"}}
PAUSE = 0.5  # seconds before a round: idle OpenMP threads keep spinning for 0.2 s


class Contender(NamedTuple):
    """A program, the Python that runs it, and the checkout whose `t2t_jax` it imports."""

    name: str
    python: Path
    root: Path
    program: Path
    options: tuple[str, ...] = ()


def own_program(root: Path) -> Path | None:
    """Returns the program with which a checkout of this project takes part; None if it has none."""
    return next((path for path in OURS if (root / path).exists()), None)


def contenders(task: str, python: Path, against: Path | None) -> Iterator[Contender]:
    """Yields everyone but this checkout."""
    if against is not None:
        program = own_program(against)
        assert program is not None
        yield Contender(f"t2t_jax, {against.name}", Path(sys.executable), against, program)
    for name, (file, *options) in (TRAIN if task == "train" else TRANSLATE).items():
        yield Contender(name, python, ROOT, FOLDER / file, tuple(options))


def measure(python: Path, against: Path | None, tasks: Sequence[str]) -> dict[str, Any]:
    """Measures this checkout against every contender in turn, at each of `TASKS` named.

    Returns:
      Results for JSON and `table`. For each task and contender: its units a second (tokens on both
      sides without padding, or sentences), ours in the same rounds, and how many times as fast ours
      is, each as median, minimum and maximum over rounds; and the version of each toolkit.

    Raises:
      RunError: a contender that completed its first round ended early.
    """
    results: dict[str, Any] = {"tasks": {}, "versions": {}}
    ours = Contender("t2t_jax", Path(sys.executable), ROOT, OURS[0])
    for title in tasks:
        speeds = results["tasks"][title] = {}
        task, size, _ = TASKS[title]
        rounds, units = ROUNDS if size == "tiny" else BASE_ROUNDS, units_per_round(title)
        with started(ours, TASKS[title]) as (our_process, _):
            if our_process is None:
                raise RunError("this checkout's own program does not start.")
            for other in contenders(task, python, against):
                with started(other, TASKS[title]) as (process, version):
                    if process is None:
                        continue
                    times = take_turns({"t2t_jax": our_process, other.name: process}, rounds)
                if version:
                    results["versions"][other.name.split(",")[0]] = version  # without options
                speeds[other.name] = compare(times["t2t_jax"], times[other.name], units)
                ratio = speeds[other.name]["ours_to_it"][0]
                say(f"{title}: ours is {ratio:.2f} times as fast as {other.name}")
    return results | {"environment": environment()}


def units_per_round(title: str) -> int:
    """Returns the number of sentences, or of tokens on both sides without padding."""
    task, size, batch_tokens = TASKS[title]
    if task == "translate":
        return workload.SENTENCES
    return workload.count_tokens(workload.batches(workload.workload(size, int(batch_tokens))))


def compare(ours: Sequence[float], theirs: Sequence[float], units: int) -> dict[str, Any]:
    """Returns the speeds of two contenders and their ratio, from the seconds of their rounds."""

    def spread(values: Sequence[float]) -> list[float]:
        return [statistics.median(values), min(values), max(values)]

    return {
        "per_second": spread([units / t for t in theirs]),
        "ours_per_second": spread([units / t for t in ours]),
        "ours_to_it": spread([b / a for a, b in zip(ours, theirs, strict=True)]),
        "rounds": len(ours),
    }


def take_turns(processes: Mapping[str, Any], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of every round of each process; they take turns at going first."""
    times: dict[str, list[float]] = {name: [] for name in processes}
    for r in range(rounds):
        for name in list(processes)[:: -1 if r % 2 else 1]:
            time.sleep(PAUSE)
            processes[name].stdin.write("\n")
            processes[name].stdin.flush()
            line = processes[name].stdout.readline()
            if not line:
                raise RunError(f"{name} ended in round {r + 1}: it may have run out of memory.")
            times[name].append(float(line))
    return times


@contextmanager
def started(contender: Contender, task: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """Yields a contender's process after its first round, and its version; None if that fails."""
    with ExitStack() as stack:
        stderr = stack.enter_context(tempfile.TemporaryFile("w+"))
        options = contender.options
        if contender.program.name == "ctranslate.py":
            options = (str(stack.enter_context(exported_weights(task[1]))), *options)
        process = stack.enter_context(
            subprocess.Popen(
                [contender.python.absolute(), contender.program, *task, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=contender.root,
                env=os.environ | ARENAS[task[0]] | {"PYTHONPATH": str(contender.root)},
                text=True,
            )
        )
        stack.callback(process.kill)  # before the process is waited for
        first = process.stdout.readline() if process.stdout else ""
        if first:
            seconds, *version = first.split()
            say(f"{contender.name}: first round {float(seconds):.1f} s")
            yield process, " ".join(version)
            return
        stderr.seek(0)
        reason = (stderr.read().strip().splitlines() or ["it printed nothing"])[-1]
        say(f"{contender.name} is left out: {reason}")
        yield None, ""


@contextmanager
def exported_weights(size: str) -> Iterator[Path]:
    """Yields a directory with our weights in CTranslate2's format."""
    w = workload.workload(size, 2048)
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *(f"▁{i}" for i in range(4, w.V))]
    vocabulary: Any = SimpleNamespace(
        size=w.V, pieces=lambda ids: [pieces[i] for i in ids], model=b""
    )
    with tempfile.TemporaryDirectory() as directory:
        export(w.c, never_ending_model(w)[1], vocabulary, Path(directory) / "model")
        yield Path(directory) / "model"


def table(results: Mapping[str, Any]) -> str:
    """Returns the speed of each contender at each task, ours in the same rounds, and the ratio."""
    versions = [f"{name} {version}" for name, version in sorted(results["versions"].items())]
    device = results["environment"]["device"]
    lines = [f"on {device}; {', '.join(versions)}; median (minimum, maximum)"]
    for title, speeds in results["tasks"].items():
        rounds = max((x["rounds"] for x in speeds.values()), default=0)
        unit = "tokens/s" if TASKS[title][0] == "train" else "sentences/s"
        heading = f"{f'{title}, {unit}, {rounds} rounds':40}"
        lines.append(f"{heading}{'toolkit':>14}{'ours':>26}{'ours / toolkit':>20}")
        for name, x in speeds.items():
            theirs, ours = (
                "{:,.0f} ({:,.0f}, {:,.0f})".format(*x[key])
                for key in ("per_second", "ours_per_second")
            )
            ratio = "{:.2f} ({:.2f}, {:.2f})".format(*x["ours_to_it"])
            lines.append(f"  {name:28}{theirs:>24}{ours:>26}{ratio:>20}")
    return "\n".join(lines) + "\n"


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--python", type=Path, required=True, help="Python of an environment with the toolkits"
    )
    parser.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="another checkout of this project"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=[*TASKS], metavar="TASK", help="[all]"
    )
    parser.add_argument("--out", type=Path, default=Path("bench"), help="directory [bench]")
    arguments = parser.parse_args(words)
    if not arguments.python.exists():
        parser.error(f"--python {arguments.python}: there is no such file.")
    if arguments.against and own_program(arguments.against) is None:
        parser.error(f"--against {arguments.against}: there is no {OURS[0]} in it.")
    return arguments


def main(words: Sequence[str]) -> None:
    arguments = parse(words)
    against = arguments.against and arguments.against.resolve()
    try:
        files.make_directory(arguments.out)
        results = measure(arguments.python, against, arguments.tasks)
        keep(arguments.out / "peers.txt", results, table(results))
    except (RunError, UsageError) as error:
        sys.exit(f"run.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
