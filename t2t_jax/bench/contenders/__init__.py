"""Who is raced: each a process that does a round of the same work whenever it is told to.

`python -m t2t_jax.bench.contenders.NAME TASK SIZE BATCH_TOKENS [DIRECTORY]`, by any Python that has
NAME's framework and numpy: one that has no JAX reads this folder and `t2t_jax.bench.work` only.
"""

import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any


def serve(tasks: Mapping[str, Callable[..., Callable[[], Any]]], distribution: str = "") -> None:
    """Makes the task that the command line names, does a round, then one for each line it is sent.

    Prints how long each round took in seconds; after the first, which includes compiling, the
    version of the installed distribution that does the work.
    """
    begun = time.perf_counter()
    name, size, *rest = sys.argv[1:]
    work = tasks[name](size, *rest)
    work()
    print(time.perf_counter() - begun, distribution and version(distribution), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        work()
        print(time.perf_counter() - begun, flush=True)
