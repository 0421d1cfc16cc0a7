"""Time of a training step: the work of `train` on the batches of a `Workload`, without its loop."""

import statistics
import timeit
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from t2t_jax.bench import workload
from t2t_jax.bench.workload import Workload
from t2t_jax.environment import environment
from t2t_jax.models import build
from t2t_jax.models.flops import step_flops
from t2t_jax.terminal import align, say
from t2t_jax.training import population, sharding
from t2t_jax.training.step import hyper, initialise, make_step
from t2t_jax.training.throughput import Program, compile_for, peak_flops, product_flops
from t2t_jax.training.trainer import ahead

ROUNDS = 5


class Steps:
    """A round of training steps of a population of P equal models, one for each batch."""

    def __init__(self, w: Workload, P: int = 1) -> None:
        self.mesh, model = sharding.make_mesh(), build(w.c, w.V)
        self.state = population.stack([initialise(model, w.c, self.mesh)] * P)
        self.h = population.stack([sharding.replicate(hyper(w.c), self.mesh)] * P)
        self.P, self.step = P, population.vmap_step(make_step(model, w.c), P)
        self.batches = [population.stack_batches([b] * P) for b in workload.batches(w)]
        self.accumulate = w.c.training.accumulate
        self.programs = dict[Any, Program]()  # by the shapes of a batch

    def __call__(self) -> Any:
        """Runs the round, waits for its last step, and returns the step's metrics."""
        queued = deque[Any]()
        with sharding.use_mesh(self.mesh):
            for batch in self.batches:
                placed = sharding.put_batch(batch, self.mesh, self.accumulate)
                shapes = tuple(x.shape for x in placed.values())
                if shapes not in self.programs:
                    arguments = self.step, self.P, self.state, placed, self.h
                    self.programs[shapes] = compile_for(*arguments)
                while len(queued) > ahead():
                    jax.block_until_ready(queued.popleft())
                self.state, metrics = self.programs[shapes].run(self.state, placed, self.h)
                queued.append(metrics)
            return jax.block_until_ready(queued).pop()


def measure(sizes: Sequence[str], batch_tokens: int, P: int) -> dict[str, Any]:
    """Returns what steps of a population of P models cost, by size: see `measure_steps`."""
    measured = {}
    for size in sizes:
        w = workload.workload(size, batch_tokens)
        measured[size] = measure_steps(size, w, Steps(w, P))
    settings = dict(batch_tokens=batch_tokens, population=P, rounds=ROUNDS)
    return {**settings, "sizes": measured, "environment": environment()}


def measure_steps(name: str, w: Workload, steps: Steps) -> dict[str, Any]:
    """Returns what the training steps of a workload cost.

    Times are seconds per step (median, minimum and maximum over rounds), without the first round,
    which compiles. Speed is in tokens of both sides without padding. The share of peak is the
    median over rounds; on a CPU the peak is the speed of a matrix product timed after each
    round. Bytes are counted for one model in the largest program.
    """
    peak = product_flops if jax.default_backend() == "cpu" else peak_flops
    times, peaks = list[float](), list[float | None]()
    for _ in range(ROUNDS + 1):
        times.append(timeit.timeit(steps, number=1) / workload.BATCHES)
        peaks.append(peak())
        say(f"{name}: {times[-1] * 1e3:,.1f} ms a step")
    first, *times = times
    shapes = [(b["source"].shape[-2:], b["target"].shape[-1]) for b in steps.batches]
    flops = steps.P * sum(step_flops(w.c.model, w.V, B, S, T) for (B, S), T in shapes)
    flops /= workload.BATCHES
    known = [(t, p) for t, p in zip(times, peaks[1:], strict=True) if p]
    shares = [flops / t / p for t, p in known]
    median = statistics.median(times)
    return {
        "seconds": median,
        "least": min(times),
        "most": max(times),
        "first_round": first * workload.BATCHES,
        "tokens_per_second": workload.count_tokens(steps.batches) / workload.BATCHES / median,
        "share_of_peak": statistics.median(shares) if shares else None,
        "peak_flops": statistics.median(p for _, p in known) if known else None,
        "bytes": max(p.memory for p in steps.programs.values()),
    }


def table(results: Mapping[str, Any]) -> str:
    """Returns a line for each size."""
    device, P = results["environment"]["device"], results["population"]
    models = f", {P} models at once" if P > 1 else ""
    rows = [["", "ms a step (least, most)", "tokens/s", "of peak", "MiB"]]
    for size, x in results["sizes"].items():
        ms = [f"{1e3 * x[k]:,.1f}" for k in ("seconds", "least", "most")]
        share = f"{x['share_of_peak']:.0%}" if x["share_of_peak"] else ""
        speed, mib = f"{x['tokens_per_second']:,.0f}", f"{x['bytes'] / 2**20:,.0f}"
        rows.append([size, f"{ms[0]} ({ms[1]}, {ms[2]})", speed, share, mib])
    title = f"training steps of {results['batch_tokens']:,} tokens a side{models}, on {device}"
    return "\n".join([title, *align(rows)]) + "\n"
