"""Sentences translated a second, each given an output of the same length."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.bench import work
from t2t_jax.config import Decoding
from t2t_jax.environment import environment
from t2t_jax.inference.translate import translate_tokens
from t2t_jax.models import build
from t2t_jax.tokens import EOS

ROUNDS, BEAMS = 5, (1, 4)


def weights(s: work.Size) -> tuple[Any, Any]:
    """A model and drawn parameters under which no sentence ends before it must."""
    model, ids = build(s.c, s.V), jnp.ones((1, 1), jnp.int32)
    params = nn.meta.unbox(jax.jit(model.init)(jax.random.key(0), ids, ids)["params"])
    matrix = params["embedding"]["matrix"].at[EOS].set(0)  # no logit above the best of V
    return model, params | {"embedding": {"matrix": matrix}}


def rounds(s: work.Size, beam: int) -> Callable[[], None]:
    """A round: all sentences, outputs as long as they."""
    model, params = weights(s)
    sources = [[*map(int, row), EOS] for row in work.sentences(s.V)]
    decoding = Decoding(beam=beam, max_extra=0)

    def work_() -> None:
        found = translate_tokens(model, params, sources, decoding)
        assert {len(x) for x in found} == {work.LENGTH}

    return work_


def measure(sizes: Sequence[str], say: Callable[[str], object]) -> dict[str, Any]:
    """Runs each size's rounds, greedy and with a beam of 4.

    Returns:
      What is kept as JSON and printed by `table`: of each size and beam sentences a second (median
      of rounds, least, most) and seconds of the first round, which compiles.
    """
    found: dict[str, Any] = {"sentences": work.SENTENCES, "rounds": ROUNDS, "sizes": {}}
    for name in sizes:
        at = found["sizes"][name] = {}
        for beam in BEAMS:
            round_, times = rounds(work.size(name, 2048), beam), []
            for _ in range(ROUNDS + 1):
                begun = time.perf_counter()
                round_()
                times.append(time.perf_counter() - begun)
                say(f"{name}, beam {beam}: {work.SENTENCES / times[-1]:,.0f} sentences/s")
            first, *times = times
            speeds = work.SENTENCES / np.array(times)
            at[str(beam)] = {
                "sentences_per_second": statistics.median(speeds),
                "least": float(speeds.min()),
                "most": float(speeds.max()),
                "first_round": first,
            }
    return found | {"environment": environment()}


def table(found: Mapping[str, Any]) -> list[str]:
    """Lines, one a size and beam."""
    out = [
        f"{found['sentences']:,} sentences of {work.LENGTH} subwords into as many, {work.ROWS} at "
        f"a time, on {found['environment']['device']}: sentences/s (least, most)"
    ]
    for name, at in found["sizes"].items():
        for beam, x in at.items():
            speeds = [f"{x[k]:,.0f}" for k in ("sentences_per_second", "least", "most")]
            out.append(f"{name:8}beam {beam:4}{f'{speeds[0]} ({speeds[1]}, {speeds[2]})':>24}")
    return out
