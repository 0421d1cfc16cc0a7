"""From the command to the first training step, with no program in the cache and with all."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.environment import environment
from t2t_jax.errors import RunError

ROUNDS = 3


def measure(words: Sequence[str], cache: Path, say: Callable[[str], object]) -> dict[str, Any]:
    """Starts `train` with these words, and ends it at its first step.

    Args:
      cache: holds the corpus; its programs are left alone.

    Returns:
      What is kept as JSON and printed by `table`: seconds by "cold" and "warm", median of rounds.
    """
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            (home / "cache").mkdir()
            for entry in cache.iterdir():
                if entry.name != "programs":
                    (home / "cache" / entry.name).symlink_to(entry.absolute())
            for state, times in seconds.items():
                times.append(_first_step(words, home, home / state))
                say(f"{state}: {times[-1]:.1f} s to the first step")
    middle = {state: statistics.median(times) for state, times in seconds.items()}
    return {
        "words": list(words),
        "seconds": middle,
        "rounds": seconds,
        "environment": environment(),
    }


def _first_step(words: Sequence[str], home: Path, run: Path) -> float:
    command = [sys.executable, "-m", "t2t_jax.cli", "train", *words]
    command += ["--cache", str(home / "cache"), "--run", str(run)]
    begun, said = time.perf_counter(), ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for said in process.stderr or ():
            if said.startswith("step "):
                process.kill()
                return time.perf_counter() - begun
    raise RunError(f"training did not come to a step: {said.strip()}")


def table(found: Mapping[str, Any]) -> list[str]:
    """One line."""
    cold, warm = (found["seconds"][state] for state in ("cold", "warm"))
    return [
        f"train {' '.join(found['words'])}, on {found['environment']['device']}: {cold:.1f} s from "
        f"the command to the first step, {warm:.1f} s once its programs are in the cache"
    ]
