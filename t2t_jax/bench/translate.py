"""Speed of translation: sentences a second, with outputs of a fixed length."""

import statistics
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.bench import workload
from t2t_jax.bench.workload import Workload
from t2t_jax.config import Decoding
from t2t_jax.environment import environment
from t2t_jax.inference.translate import translate_tokens
from t2t_jax.models import build
from t2t_jax.terminal import align, say
from t2t_jax.tokens import EOS

ROUNDS, BEAMS = 5, (1, 4)


def never_ending_model(w: Workload) -> tuple[Any, Any]:
    """Returns a model and random parameters that never prefer EOS, so outputs have full length."""
    model, ids = build(w.c, w.V), jnp.ones((1, 1), jnp.int32)
    params = nn.meta.unbox(jax.jit(model.init)(jax.random.key(0), ids, ids)["params"])
    matrix = params["embedding"]["matrix"].at[EOS].set(0)  # its logit is 0, and another is larger
    return model, params | {"embedding": {"matrix": matrix}}


def rounds(w: Workload, beam: int) -> Callable[[], None]:
    """Returns a function that translates all sentences into outputs of the same length."""
    model, params = never_ending_model(w)
    sources = [[*map(int, row), EOS] for row in workload.sentences(w.V)]

    def run_round() -> None:
        decoding, warn = Decoding(beam=beam, max_extra=0), lambda _: None
        outputs = translate_tokens(model, params, sources, decoding, warn=warn)
        assert {len(output) for output in outputs} == {workload.LENGTH}

    return run_round


def measure(sizes: Sequence[str]) -> dict[str, Any]:
    """Returns the speed of each size, with greedy search and a beam of 4: see `_measure_beam`."""
    results: dict[str, Any] = {"sentences": workload.SENTENCES, "rounds": ROUNDS, "sizes": {}}
    for size in sizes:
        results["sizes"][size] = {str(b): _measure_beam(size, b) for b in BEAMS}
    return results | {"environment": environment()}


def _measure_beam(size: str, beam: int) -> dict[str, Any]:
    """Returns sentences a second over rounds, and the seconds of the first, which compiles."""
    run_round, times = rounds(workload.workload(size, 2048), beam), []
    for _ in range(ROUNDS + 1):
        times.append(timeit.timeit(run_round, number=1))
        say(f"{size}, beam {beam}: {workload.SENTENCES / times[-1]:,.0f} sentences/s")
    first, *times = times
    speeds = workload.SENTENCES / np.array(times)
    return {
        "sentences_per_second": statistics.median(speeds),
        "least": float(speeds.min()),
        "most": float(speeds.max()),
        "first_round": first,
    }


def table(results: Mapping[str, Any]) -> str:
    """Returns a line for each size and beam."""
    n, device = results["sentences"], results["environment"]["device"]
    rows = [["", "sentences/s (least, most)"]]
    for size, beams in results["sizes"].items():
        for beam, x in beams.items():
            speeds = [f"{x[k]:,.0f}" for k in ("sentences_per_second", "least", "most")]
            rows.append([f"{size}, beam {beam}", f"{speeds[0]} ({speeds[1]}, {speeds[2]})"])
    title = (
        f"{n:,} sentences of {workload.LENGTH} subwords into outputs of as many, batches of "
        f"{workload.ROWS}, on {device}"
    )
    return "\n".join([title, *align(rows)]) + "\n"
