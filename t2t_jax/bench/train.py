"""A training step's time, on the batches of `work`: what `train` does, without its loop."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from t2t_jax.bench import work
from t2t_jax.environment import environment
from t2t_jax.models import build
from t2t_jax.training import population, sharding
from t2t_jax.training.flops import step_flops
from t2t_jax.training.step import hyper, initialise, make_step
from t2t_jax.training.throughput import Program, compile_for, peak_flops, product_flops
from t2t_jax.training.trainer import ahead

ROUNDS = 5


class Steps:
    """Steps of P equal models at once on a round of batches; `programs` by their shapes."""

    def __init__(self, s: work.Size, P: int = 1) -> None:
        self.mesh, model = sharding.make_mesh(), build(s.c, s.V)
        self.state = population.stack([initialise(model, s.c, self.mesh)] * P)
        self.h = population.stack([sharding.replicate(hyper(s.c), self.mesh)] * P)
        self.P, self.step = P, population.vmap_step(make_step(model, s.c), P)
        self.batches = [population.stack_batches([b] * P) for b in work.batches(s)]
        self.accumulate, self.programs = s.c.training.accumulate, dict[Any, Program]()

    def __call__(self) -> None:
        """All of them, and waits for the last."""
        queued = deque[Any]()
        with sharding.use_mesh(self.mesh):
            for batch in self.batches:
                placed = sharding.put_batch(batch, self.mesh, self.accumulate)
                shape = tuple(x.shape for x in placed.values())
                if shape not in self.programs:
                    how = self.step, self.P, self.state, placed, self.h
                    self.programs[shape] = compile_for(*how)
                while len(queued) > ahead():
                    jax.block_until_ready(queued.popleft())
                self.state, reported = self.programs[shape].run(self.state, placed, self.h)
                queued.append(reported)
            jax.block_until_ready(queued)


def measure(
    sizes: Sequence[str], batch_tokens: int, P: int, say: Callable[[str], object]
) -> dict[str, Any]:
    """Runs each size's rounds, P models in each step.

    Returns:
      What is kept as JSON and printed by `table`: of each size seconds a step (median of rounds,
      least, most), seconds of the first round, which compiles, tokens a second of both sides
      without padding, share of the device's peak FLOP/s (on a CPU of what a matrix product reached
      between the rounds; the median), and a model's bytes in the largest program.
    """
    found: dict[str, Any] = dict(batch_tokens=batch_tokens, population=P, rounds=ROUNDS, sizes={})
    peak = product_flops if jax.default_backend() == "cpu" else peak_flops
    for name in sizes:
        s = work.size(name, batch_tokens)
        steps, times, peaks = Steps(s, P), list[float](), list[float | None]()
        for _ in range(ROUNDS + 1):
            begun = time.perf_counter()
            steps()
            times.append((time.perf_counter() - begun) / work.BATCHES)
            peaks.append(peak())
            say(f"{name}: {times[-1] * 1e3:,.1f} ms a step")
        first, *times = times
        shapes = [(b["source"].shape[-2:], b["target"].shape[-1]) for b in steps.batches]
        flops = P * sum(step_flops(s.c.model, s.V, B, S, T) for (B, S), T in shapes)
        middle, reached = statistics.median(times), [p for p in peaks[1:] if p]
        shares = [flops / work.BATCHES / t / p for t, p in zip(times, reached, strict=False)]
        found["sizes"][name] = {
            "seconds": middle,
            "least": min(times),
            "most": max(times),
            "first_round": first * work.BATCHES,
            "tokens_per_second": work.tokens(steps.batches) / work.BATCHES / middle,
            "share_of_peak": statistics.median(shares) if shares else None,
            "peak_flops": statistics.median(reached) if reached else None,
            "bytes": max(p.memory for p in steps.programs.values()),
        }
    return found | {"environment": environment()}


def table(found: Mapping[str, Any]) -> list[str]:
    """Lines, one a size."""
    device = found["environment"]["device"]
    models = f", of {found['population']} models at once" if found["population"] > 1 else ""
    out = [
        f"training steps of {found['batch_tokens']:,} tokens a side{models}, on {device}",
        f"{'':8}{'ms a step (least, most)':>30}{'tokens/s':>12}{'of peak':>10}{'MiB':>10}",
    ]
    for name, x in found["sizes"].items():
        ms = [f"{1e3 * x[k]:,.1f}" for k in ("seconds", "least", "most")]
        share = f"{x['share_of_peak']:.0%}" if x["share_of_peak"] else ""
        out.append(
            f"{name:8}{f'{ms[0]} ({ms[1]}, {ms[2]})':>30}{x['tokens_per_second']:>12,.0f}"
            f"{share:>10}{x['bytes'] / 2**20:>10,.0f}"
        )
    return out
