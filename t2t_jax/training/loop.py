"""The flat loop around the step, for a run or for a population of them."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.errors import Interrupted, RunError, UsageError
from t2t_jax.models.flops import run_flops, step_flops
from t2t_jax.training import checkpoints, hosts, population, sharding
from t2t_jax.training.checkpoints import Standing
from t2t_jax.training.progress import Meter, Metrics, Progress, duration
from t2t_jax.training.step import Hyper, State, hyper, initialise, make_step
from t2t_jax.training.throughput import Program, compile_for, peak_flops

RECORD_EVERY = 50  # steps, in metrics.jsonl, which has the last step, too
IDLE = 1e12  # FLOPs of a step that leaves an accelerator mostly idle

Stream = Callable[[int, int], Iterator[tuple[tuple[int, int], dict[str, Any]]]]
Evaluate = Callable[[Any], float]
Programs = dict[tuple[tuple[int, ...], tuple[int, ...]], Program]  # by the shapes of a batch


def ahead() -> int:
    """Steps queued behind the one at work; on a CPU each would hold its temporaries."""
    return 0 if jax.default_backend() == "cpu" else 2


class Member(NamedTuple):
    """A run.

    Attributes:
      stream: from a position (epoch, batch), endless ((next epoch, next batch), batch).
      directory: takes checkpoints/ and metrics.jsonl.
    """

    c: Config
    stream: Stream
    directory: Path


class Trained(NamedTuple):
    """Parameters, averaged over the checkpoints of these steps, and what they cost.

    `together` runs were trained at once; `standing` has the seconds of all of them.
    """

    params: Any
    averaged: list[int]
    standing: Standing
    together: int


def train(
    model: nn.Module,
    members: Sequence[Member],
    evaluate: Evaluate,
    progress: Progress,
    mesh: Mesh,
    vectorised: bool | None = None,
) -> Iterator[tuple[Member, Trained | RunError]]:
    """Trains runs of one shape in one compiled program, going on from what they have saved.

    Args:
      members: runs whose configs differ in what `step.Hyper` holds alone.
      evaluate: parameters -> dev perplexity.
      vectorised: all at once, as one wider computation, and not one after the other. An accelerator
        that a small model leaves idle wants it; a CPU, whose cores one member keeps busy and whose
        caches hold only one, does not. By default for small steps on anything but a CPU, and where
        the mesh has a population axis.

    Yields:
      Each member when it has ended, and what came of it; an error where its loss was no longer
      finite.

    Raises:
      UsageError: the mesh's population axis does not divide the members.
      RunError: what has to be kept cannot be written.
      Interrupted: by SIGINT or SIGTERM; the same call goes on from there.
    """
    if vectorised is None:
        c = members[0].c
        flops = run_flops(c, model.V) / c.training.steps
        small = jax.default_backend() != "cpu" and flops < IDLE
        vectorised = small or mesh.shape["population"] > 1
    groups = [members] if vectorised else [[member] for member in members]
    programs: Programs = {}
    for i, group in enumerate(groups, 1):
        if len(groups) > 1:
            progress.say(
                f"{group[0].directory.name}: run {i} of {len(groups)} that share a program"
            )
        yield from _at_once(model, group, evaluate, progress, mesh, programs)


def _at_once(
    model: nn.Module,
    members: Sequence[Member],
    evaluate: Evaluate,
    progress: Progress,
    mesh: Mesh,
    programs: Programs,
) -> list[tuple[Member, Trained | RunError]]:
    """`train` on members that step together."""
    out: list[tuple[Member, Trained | RunError]] = []
    with ExitStack() as held:
        held.enter_context(sharding.on(mesh))
        managers = [
            held.enter_context(checkpoints.manager(m.directory / "checkpoints", m.c.training))
            for m in members
        ]
        saved = [checkpoints.whole_steps(manager, progress.say) for manager in managers]
        for start, chosen in _level(saved):
            some, theirs = [members[i] for i in chosen], [managers[i] for i in chosen]
            if len(some) % mesh.shape["population"]:
                raise UsageError(
                    f"population={mesh.shape['population']} of the mesh does not divide the "
                    f"{len(some)} runs that share a program: choose another --mesh."
                )
            begun = []
            for m, manager in zip(some, theirs, strict=True):
                state, standing = initialise(model, m.c, mesh), Standing()
                if start:
                    state, standing = checkpoints.restore(manager, state, start)
                begun.append((state, standing))
            if start:
                progress.say(f"going on from step {start:,}")
            ended = _steps(model, some, evaluate, theirs, progress, begun, mesh, start, programs)
            for manager, m, result in zip(theirs, some, ended, strict=True):
                if isinstance(result, RunError):
                    out.append((m, result))
                    continue
                params, standing = result
                checkpoints.finish(manager)
                k = m.c.training.average
                averaged = checkpoints.average(manager, params, standing, k)
                out.append((m, Trained(*averaged, standing, len(some))))
    return out


def _level(saved: Sequence[set[int]]) -> list[tuple[int, list[int]]]:
    """Who goes on at once, as (step to go on from, members): all, unless they share no step."""
    common = set.intersection(*saved)
    if common or not any(saved):
        return [(max(common, default=0), list(range(len(saved))))]
    newest = [max(s, default=0) for s in saved]
    return [(n, [i for i, other in enumerate(newest) if other == n]) for n in sorted(set(newest))]


def _steps(
    model: nn.Module,
    members: Sequence[Member],
    evaluate: Evaluate,
    managers: Sequence[Any],
    progress: Progress,
    begun: Sequence[tuple[State, Standing]],
    mesh: Mesh,
    t: int,
    programs: Programs,
) -> list[tuple[Any, Standing] | RunError]:
    """All the steps from t on; of each member its parameters and standing, or its error."""
    c, P = members[0].c, len(members)
    step = population.together(make_step(model, c), P)
    state: State = population.stack([state for state, _ in begun])
    h: Hyper = population.stack([sharding.replicate(hyper(m.c), mesh) for m in members])
    standings = [standing for _, standing in begun]
    errors: dict[int, RunError] = {}
    last, first = c.training.steps, standings[0]
    evaluations = [list(s.evaluations) for s in standings]
    batches = [m.stream(first.epoch, first.batch) for m in members]
    peak, overhead = peak_flops(), 0.0
    began = time.monotonic() - first.seconds
    flops, compiled_flops, memory = first.flops, first.compiled_flops, first.memory
    meter, queued = Meter(), deque[tuple[int, float, Any]]()

    def fail(i: int, at: int) -> None:
        errors[i] = RunError(_diverged(at, managers[i].latest_step()))
        if P > 1:
            progress.say(f"{members[i].directory}: {errors[i]}")

    def read() -> None:
        """Waits for the oldest queued step and keeps what it reports."""
        nonlocal meter
        at, cost, reported = queued.popleft()
        values = jax.tree.map(np.atleast_1d, jax.device_get(reported))  # each [P]
        for i in range(P):
            finite = math.isfinite(values["loss"][i]) and math.isfinite(values["grad_norm"][i])
            if i not in errors and not finite:
                fail(i, at)
        if not alive():
            return
        meter.add(values, cost)
        now = meter.read(peak)
        left = duration((last - at) * now["seconds_per_step"])
        share = f"  {now['share_of_peak']:.0%} of peak" if peak else ""
        progress.show(
            f"step {at:,}/{last:,}  loss {now['loss'][alive()].mean():.3f}  "
            f"{now['tokens_per_second']:,.0f} tokens/s{share}  {left} left"
        )
        if at % RECORD_EVERY == 0 or at == last:
            elapsed = {"seconds": training_seconds()}
            last_step = {name: values[name] for name in ("lr", "grad_norm")}
            for i in alive() if hosts.first() else ():
                metrics[i].write({"step": at} | _of_member(i, elapsed | last_step | now))
            meter = Meter()

    def training_seconds() -> float:
        return time.monotonic() - began - overhead

    def alive() -> list[int]:
        return [i for i in range(P) if i not in errors]

    with ExitStack() as held:
        interrupted = held.enter_context(hosts.interruption())
        metrics = [
            held.enter_context(closing(Metrics(m.directory, t))) for m in members if hosts.first()
        ]
        while t < last and alive() and not _exhausted(evaluations[0], c.training.patience):
            drawn = [next(b) for b in batches]
            position, batch = drawn[0][0], population.stack_batches([b for _, b in drawn])
            placed = sharding.put_batch(batch, mesh, c.training.accumulate)
            (B, S), T = placed["source"].shape[-2:], placed["target"].shape[-1]
            shapes = placed["source"].shape, placed["target"].shape
            if shapes not in programs:
                progress.say(f"compiling for batches of {B} pairs, {S} by {T} subwords")
                while queued:
                    read()
                since = time.monotonic()
                programs[shapes] = compile_for(step, P, state, placed, h)
                overhead += time.monotonic() - since
                meter = Meter()  # the speed that is shown is that of training, not of compiling
            program = programs[shapes]
            while len(queued) > ahead():
                read()
            state, reported = program.run(state, placed, h)
            t += 1
            counted = step_flops(c.model, model.V, B, S, T)
            flops, compiled_flops = flops + counted, compiled_flops + program.flops
            memory = max(memory, program.memory)
            queued.append((t, P * counted, reported))
            due, stopped = t % c.training.evaluate_every == 0 or t == last, interrupted(t)
            if not (due or stopped):
                continue
            while queued:
                read()
            for i in alive() if due else ():
                since = time.monotonic()
                perplexity = evaluate(population.member(state.params, i, P))
                overhead += time.monotonic() - since
                if math.isnan(perplexity):
                    fail(i, t)
                    continue
                seconds = training_seconds()
                evaluations[i].append((t, perplexity))
                if hosts.first():
                    metrics[i].write({"step": t, "seconds": seconds, "dev_perplexity": perplexity})
                of = f"{members[i].directory.name}: " if P > 1 else ""
                progress.say(
                    f"{of}step {t:,}  dev perplexity {perplexity:.3f}  after {duration(seconds)}"
                )
            spent = training_seconds(), first.overhead + overhead
            for i in alive():
                standings[i] = Standing(
                    *position, *spent, flops, compiled_flops, memory, [*evaluations[i]]
                )
                checkpoints.save(managers[i], population.member(state, i, P), standings[i])
            if stopped:
                for i in alive():
                    checkpoints.finish(managers[i])
                raise Interrupted(f"stopped at step {t:,}; the same command goes on from there.")
            meter = Meter()
    return [
        errors[i] if i in errors else (population.member(state.params, i, P), standings[i])
        for i in range(P)
    ]


def _of_member(i: int, values: dict[str, Any]) -> dict[str, float]:
    return {name: float(x[i] if np.ndim(x) else x) for name, x in values.items()}


def _diverged(step: int, saved: int | None) -> str:
    kept = f"the checkpoint of step {saved:,} is good" if saved else "nothing was saved before it"
    return (
        f"the loss is not a number at step {step:,}, and {kept}: lower the learning rate (peak_lr "
        "or lr_scale) or lengthen warmup, in another directory (--run)."
    )


def _exhausted(evaluations: list[tuple[int, float]], patience: int) -> bool:
    """Whether the last `patience` evaluations brought no better perplexity."""
    scores = [p for _, p in evaluations]
    return 0 < patience < len(scores) and min(scores[-patience:]) >= min(scores[:-patience])
