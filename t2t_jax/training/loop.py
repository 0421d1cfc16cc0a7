"""The flat loop around the step."""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax

from t2t_jax.config import Config
from t2t_jax.errors import RunError
from t2t_jax.training import checkpoints, sharding
from t2t_jax.training.checkpoints import Standing
from t2t_jax.training.progress import Meter, Metrics, Progress, duration
from t2t_jax.training.step import State, compile_step, hyper, initialise
from t2t_jax.training.throughput import peak_flops, step_flops

RECORD_EVERY = 50  # steps, in metrics.jsonl
AHEAD = 2  # steps that the host queues before it reads a loss

Stream = Callable[[int, int], Iterator[tuple[tuple[int, int], dict[str, Any]]]]
Evaluate = Callable[[Any], float]


def train(
    model: nn.Module,
    c: Config,
    stream: Stream,
    evaluate: Evaluate,
    directory: Path,
    progress: Progress,
) -> tuple[Any, list[int]]:
    """Trains a model, going on from the last checkpoint in `directory` if there is one.

    Args:
      stream: from a position (epoch, batch), endless ((next epoch, next batch), batch).
      evaluate: parameters -> dev perplexity.
      directory: takes checkpoints/ and metrics.jsonl.

    Returns:
      The parameters, averaged over the last `average` checkpoints, and the steps of those.

    Raises:
      RunError: the loss is no longer finite, or the run was interrupted; either way the last
        checkpoint is good.
    """
    mesh = sharding.make_mesh()
    manager = checkpoints.manager(directory / "checkpoints", c.training)
    with sharding.on(mesh), manager:
        state, standing = initialise(model, c, mesh), Standing()
        restored = checkpoints.restore(manager, state, progress.say)
        if restored is not None:
            state, standing = restored
            progress.say(f"going on from step {int(state.step):,}")
        metrics = Metrics(directory, int(state.step))
        try:
            state, standing = _steps(
                model, c, stream, evaluate, manager, metrics, progress, state, standing
            )
        finally:
            metrics.close()
        manager.wait_until_finished()
        return checkpoints.average(manager, state.params, standing, c.training.average)


def _steps(
    model: nn.Module,
    c: Config,
    stream: Stream,
    evaluate: Evaluate,
    manager: Any,
    metrics: Metrics,
    progress: Progress,
    state: State,
    standing: Standing,
) -> tuple[State, Standing]:
    """All the steps that are left."""
    step, h, peak = compile_step(model, c), hyper(c), peak_flops()
    t, last, evaluations = int(state.step), c.training.steps, list(standing.evaluations)
    batches, mesh = stream(standing.epoch, standing.batch), sharding.make_mesh()
    began = time.monotonic() - standing.seconds
    meter, queued = Meter(), deque[tuple[int, float, Any]]()
    compiled: set[tuple[int, ...]] = set()

    def read() -> None:
        """Waits for the oldest queued step and keeps what it reports."""
        nonlocal meter
        at, flops, reported = queued.popleft()
        values = {name: float(x) for name, x in jax.device_get(reported).items()}
        if not (math.isfinite(values["loss"]) and math.isfinite(values["grad_norm"])):
            raise RunError(_diverged(at, manager.latest_step()))
        meter.add(values, flops)
        now = meter.read(peak)
        left = duration((last - at) * now["seconds_per_step"])
        share = f"  {now['share_of_peak']:.0%} of peak" if peak else ""
        progress.show(
            f"step {at:,}/{last:,}  loss {now['loss']:.3f}  {now['tokens_per_second']:,.0f} "
            f"tokens/s{share}  {left} left"
        )
        if at % RECORD_EVERY == 0:
            seconds = time.monotonic() - began
            last_step = {name: values[name] for name in ("lr", "grad_norm")}
            metrics.write({"step": at, "seconds": seconds} | last_step | now)
            meter = Meter()

    with _interruption() as interrupted:
        while t < last and not _exhausted(evaluations, c.training.patience):
            position, batch = next(batches)
            (B, S), (_, T) = batch["source"].shape, batch["target"].shape
            new = (B, S, T) not in compiled
            if new:
                progress.say(f"compiling for batches of {B} pairs, {S} by {T} subwords")
                compiled.add((B, S, T))
                while queued:
                    read()
            flops = step_flops(c.model, model.V, B, S, T)
            state, reported = step(state, sharding.put_batch(batch, mesh), h)
            t += 1
            queued.append((t, flops, reported))
            if new:  # the speed that is shown is that of training, not of compiling
                meter = Meter()
            if len(queued) > AHEAD:
                read()
            due = t % c.training.evaluate_every == 0 or t == last
            if not (due or interrupted()):
                continue
            while queued:
                read()
            if due:
                perplexity, seconds = evaluate(state.params), time.monotonic() - began
                if math.isnan(perplexity):
                    raise RunError(_diverged(t, manager.latest_step()))
                evaluations.append((t, perplexity))
                metrics.write({"step": t, "seconds": seconds, "dev_perplexity": perplexity})
                progress.say(
                    f"step {t:,}  dev perplexity {perplexity:.3f}  after {duration(seconds)}"
                )
            standing = Standing(*position, time.monotonic() - began, [*evaluations])
            checkpoints.save(manager, state, standing)
            if interrupted():
                manager.wait_until_finished()
                raise RunError(f"stopped at step {t:,}; the same command goes on from there.")
            meter = Meter()
    return state, standing


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


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a flag; a second one ends the process as usual."""
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
