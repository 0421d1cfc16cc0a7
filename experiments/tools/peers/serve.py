"""The loop in which each program of this folder runs rounds of its task on request.

    PYTHONPATH=CHECKOUT PYTHON experiments/tools/peers/NAME.py train SIZE BATCH_TOKENS ...
    PYTHONPATH=CHECKOUT PYTHON experiments/tools/peers/NAME.py translate SIZE BEAM ...

PYTHON needs numpy and the framework that NAME uses, but not JAX.
"""

import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any


def serve(tasks: Mapping[str, Callable[..., Callable[[], Any]]], distribution: str = "") -> None:
    """Sets up the task named on the command line and runs one round, then one per line of stdin.

    Prints the seconds that each round took. The first line covers setup and compilation as well,
    and ends with the version of `distribution`.
    """
    start = time.perf_counter()
    task, *options = sys.argv[1:]
    run_round = tasks[task](*options)
    run_round()
    print(time.perf_counter() - start, distribution and version(distribution), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run_round()
        print(time.perf_counter() - start, flush=True)
