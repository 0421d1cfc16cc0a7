"""Startup time: from the command to the first training step, without and with cached programs.

    launch/local.sh experiments/tools/start.py        2 minutes on 2 CPU cores

Writes start.json and start.txt into experiments/results/bench. Expected on two CPU cores: 13 s, and
6 s once the programs are in the cache.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_jax.bench import keep
from t2t_jax.environment import environment
from t2t_jax.errors import RunError
from t2t_jax.terminal import say

RESULTS = Path(__file__).parents[1] / "results" / "bench"
ROUNDS, WORDS = 3, ["grammar"]  # what follows `train`


def measure() -> dict[str, Any]:
    """Returns the seconds until the first step with a cold and a warm cache, in each round."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory) / "cache"
        _first_step(cache, Path(directory) / "first")  # prepares the corpus
        for i in range(ROUNDS):
            shutil.rmtree(cache / "programs", ignore_errors=True)
            for state, times in seconds.items():
                times.append(_first_step(cache, Path(directory) / f"{state}-{i}"))
                say(f"{state}: {times[-1]:.1f} s to the first step")
    return {
        "words": WORDS,
        "seconds": {state: statistics.median(times) for state, times in seconds.items()},
        "rounds": seconds,
        "environment": environment(),
    }


def _first_step(cache: Path, run: Path) -> float:
    """Returns the seconds until `train` reports its first step."""
    command = [sys.executable, "-m", "t2t_jax.cli", "train", *WORDS]
    command += ["--cache", str(cache), "--run", str(run)]
    env = {n: x for n, x in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
    start, line = time.perf_counter(), ""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stderr or ():
            if line.startswith("step "):
                process.kill()
                return time.perf_counter() - start
    raise RunError(f"training ended before its first step: {line.strip()}")


def table(results: Mapping[str, Any]) -> str:
    """Returns one line."""
    cold, warm = (results["seconds"][state] for state in ("cold", "warm"))
    return (
        f"train {' '.join(results['words'])}, on {results['environment']['device']}: {cold:.1f} s "
        f"from the command to the first step, {warm:.1f} s once its programs are in the cache\n"
    )


def main(out: Path = RESULTS) -> None:
    results = measure()
    keep(out / "start.txt", results, table(results))


if __name__ == "__main__":
    main()
