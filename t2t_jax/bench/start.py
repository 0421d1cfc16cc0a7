"""Startup time: from the command to the first training step, with cold and warm program caches."""

import os
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


def measure(words: Sequence[str], cache: Path, report: Callable[[str], object]) -> dict[str, Any]:
    """Starts `train` with these words and stops it at its first step.

    Args:
      cache: holds the corpus; compiled programs in it are neither read nor changed.

    Returns:
      Results for JSON and `table`: seconds with a "cold" and a "warm" cache, as medians over
      rounds and for each round.
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
                times.append(_first_step(words, home / "cache", home / state))
                report(f"{state}: {times[-1]:.1f} s to the first step")
    return {
        "words": list(words),
        "seconds": {state: statistics.median(times) for state, times in seconds.items()},
        "rounds": seconds,
        "environment": environment(),
    }


def _first_step(words: Sequence[str], cache: Path, run: Path) -> float:
    """Returns the seconds until `train` reports its first step."""
    command = [sys.executable, "-m", "t2t_jax.cli", "train", *words]
    command += ["--cache", str(cache), "--run", str(run)]
    env = {n: x for n, x in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
    start, line = time.perf_counter(), ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stderr or ():
            if line.startswith("step "):
                process.kill()
                return time.perf_counter() - start
    raise RunError(f"training ended before its first step: {line.strip()}")


def table(results: Mapping[str, Any]) -> list[str]:
    """Returns one line."""
    cold, warm = (results["seconds"][state] for state in ("cold", "warm"))
    return [
        f"train {' '.join(results['words'])}, on {results['environment']['device']}: {cold:.1f} s "
        f"from the command to the first step, {warm:.1f} s once its programs are in the cache"
    ]
