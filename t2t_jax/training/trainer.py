"""Training of runs at once: their steps, metrics, evaluations and checkpoints."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax.errors import Interrupted, RunError
from t2t_jax.models.flops import step_flops
from t2t_jax.terminal import Progress, duration
from t2t_jax.training import checkpoints, hosts, population, sharding
from t2t_jax.training.population import Clock, Member, Trained
from t2t_jax.training.records import Meter, Metrics, StepMetrics
from t2t_jax.training.step import hyper, initialise, make_step
from t2t_jax.training.throughput import Program, compile_for, peak_flops

RECORD_EVERY = 50  # steps between records of metrics.jsonl; the last step has one, too

Evaluate = Callable[[Any], float]
Programs = dict[tuple[tuple[int, ...], tuple[int, ...]], Program]  # by the shapes of a batch


def ahead() -> int:
    """Number of steps queued behind the running one; 0 on a CPU, where each holds temporaries."""
    return 0 if jax.default_backend() == "cpu" else 2


@dataclass
class Trainer:
    """Trains P runs at once: each step of all of them is one call of a compiled program.

    The leaves of `state` and `hyper` are [P, ...]; for a single run, they have no axis P.
    """

    model: nn.Module
    runs: Sequence[Member]
    step: int  # number of steps done
    evaluate: Evaluate
    progress: Progress
    mesh: Mesh
    programs: Programs

    def __post_init__(self) -> None:
        self.c, self.P = self.runs[0].c, len(self.runs)
        self.last, states = self.c.training.steps, []
        for run in self.runs:
            state = initialise(self.model, run.c, self.mesh)
            if self.step:
                state, run.history = checkpoints.restore(run.manager, state, self.step)
            states.append(state)
            run.batches = run.stream(run.history.epoch, run.history.batch)
        if self.step:
            self.progress.say(f"resuming from step {self.step:,}")
        self.state = population.stack(states)
        h = [sharding.replicate(hyper(run.c), self.mesh) for run in self.runs]
        self.hyper = population.stack(h)
        self.step_function = population.vmap_step(make_step(self.model, self.c), self.P)
        every = [run.history for run in self.runs]  # they differ in their evaluations alone
        self.history, self.peak, self.meter = every[0], peak_flops(), Meter()
        self.clock = Clock(sum(x.seconds for x in every), sum(x.overhead for x in every))
        # Steps whose metrics have not been read: (step, FLOPs of all runs, metrics [P]).
        self.queue = deque[tuple[int, float, StepMetrics]]()

    def train(self) -> list[tuple[Member, Trained | RunError]]:
        """Trains all runs to their last step, or until all have failed or patience has run out.

        Raises:
          Interrupted: by a signal, once the runs are saved.
        """
        every = self.c.training.evaluate_every
        with ExitStack() as stack:
            interrupted = stack.enter_context(hosts.interruption())
            for run in self.runs if hosts.first() else ():
                metrics = Metrics(run.directory, self.step)
                run.metrics = stack.enter_context(closing(metrics))
            while self.step < self.last and self._alive() and not self._out_of_patience():
                self._start_step()
                due = self.step % every == 0 or self.step == self.last
                stopped = interrupted(self.step)  # in every step: processes agree on it
                if due or stopped:
                    self._read_all()
                    if due:
                        self._evaluate()
                    self._save()
                    if stopped:
                        self._wait()
                        raise Interrupted(
                            f"stopped at step {self.step:,}; the same command resumes from there."
                        )
                    self.meter = Meter()
        self._wait()
        return [(run, run.error or self._average(run)) for run in self.runs]

    def _wait(self) -> None:
        for run in self._alive():
            checkpoints.finish(run.manager)

    def _average(self, run: Member) -> Trained:
        params, t = population.member(self.state.params, run.index, self.P), self.c.training
        params, steps = checkpoints.average(run.manager, params, run.history, t)
        if t.patience:
            why = f", as {t.patience} evaluations brought no better dev perplexity"
            chosen = f"step {steps[0]:,}" + f" to {steps[-1]:,}, averaged" * (len(steps) > 1)
            self.progress.say(
                f"training ends at step {self.step:,}{why * self._out_of_patience()}; the model is "
                f"of {chosen}, the best on dev"
            )
        return Trained(params, steps, run.history, self.P)

    def _alive(self) -> list[Member]:
        return [run for run in self.runs if run.error is None]

    def _out_of_patience(self) -> bool:
        """Whether the last `patience` evaluations brought no better perplexity."""
        patience = self.c.training.patience  # if it is set, the group is a single run
        scores = [perplexity for _, perplexity in self.runs[0].history.evaluations]
        return 0 < patience < len(scores) and min(scores[-patience:]) >= min(scores[:-patience])

    def _start_step(self) -> None:
        """Queues a step on the next batch, once the queue has room."""
        drawn = [next(run.batches) for run in self.runs]
        (epoch, index), _ = drawn[0]
        batch = population.stack_batches([batch for _, batch in drawn])
        placed = sharding.put_batch(batch, self.mesh, self.c.training.accumulate)
        program = self._program(placed)
        while len(self.queue) > ahead():
            self._read()
        self.state, metrics = program.run(self.state, placed, self.hyper)
        self.step += 1
        (B, S), T = placed["source"].shape[-2:], placed["target"].shape[-1]
        flops, before = step_flops(self.c.model, self.model.V, B, S, T), self.history
        self.history = before._replace(
            epoch=epoch,
            batch=index,
            flops=before.flops + flops,
            compiled_flops=before.compiled_flops + program.flops,
            memory=max(before.memory, program.memory),
        )
        self.queue.append((self.step, self.P * flops, metrics))

    def _program(self, batch: dict[str, jax.Array]) -> Program:
        """The step compiled for a batch's shapes; it is compiled when they first occur."""
        shapes = batch["source"].shape, batch["target"].shape
        if shapes not in self.programs:
            (B, S), T = shapes[0][-2:], shapes[1][-1]
            self.progress.say(f"compiling for batches of {B} pairs, {S} by {T} subwords")
            self._read_all()
            with self.clock.stopped():
                arguments = self.step_function, self.P, self.state, batch, self.hyper
                self.programs[shapes] = compile_for(*arguments)
            self.meter = Meter()  # speeds of training do not include compiling
        return self.programs[shapes]

    def _read_all(self) -> None:
        while self.queue:
            self._read()

    def _read(self) -> None:
        """Waits for the oldest queued step, then shows and records its metrics."""
        step, flops, queued = self.queue.popleft()
        metrics = StepMetrics(*map(np.atleast_1d, jax.device_get(queued)))
        finite = np.isfinite(metrics.loss) & np.isfinite(metrics.grad_norm)
        for run in self._alive():
            if not finite[run.index]:
                self._fail(run, step)
        if not self._alive():
            return
        self.meter.steps.append(metrics)
        self.meter.flops += flops
        measured = self.meter.read(self.peak)
        left = duration((self.last - step) * measured["seconds_per_step"])
        share = f"  {measured['share_of_peak']:.0%} of peak FLOP/s" if self.peak else ""
        loss = measured["loss"][[run.index for run in self._alive()]].mean()
        self.progress.show(
            f"step {step:,}/{self.last:,}  loss {loss:.3f}  "
            f"{measured['tokens_per_second']:,.0f} tokens/s{share}  {left} left"
        )
        if step % RECORD_EVERY == 0 or step == self.last:
            record = {"step": step, "seconds": self.clock.seconds()} | measured
            for run in self._alive():
                run.write(record)
            self.meter = Meter()

    def _fail(self, run: Member, step: int) -> None:
        """Ends a run whose loss or perplexity at `step` is infinite or NaN."""
        saved = run.manager.latest_step()
        kept = f"the checkpoint of step {saved:,} is good" if saved else "nothing was saved yet"
        run.error = RunError(
            f"the loss is not finite at step {step:,}, and {kept}: lower the learning rate "
            "(peak_lr or lr_scale) or lengthen warmup."
        )
        if self.P > 1:
            self.progress.say(f"{run.directory}: {run.error}")

    def _evaluate(self) -> None:
        """Adds the dev perplexity of every run to its history."""
        for run in self._alive():
            with self.clock.stopped():
                perplexity = self.evaluate(population.member(self.state.params, run.index, self.P))
            if not math.isfinite(perplexity):
                self._fail(run, self.step)
                continue
            seconds = self.clock.seconds()
            evaluations = [*run.history.evaluations, (self.step, perplexity)]
            run.history = run.history._replace(evaluations=evaluations)
            run.write({"step": self.step, "seconds": seconds, "dev_perplexity": perplexity})
            name = f"{run.directory.name}: " if self.P > 1 else ""
            self.progress.say(
                f"{name}step {self.step:,}  dev perplexity {perplexity:.3f}  after "
                f"{duration(seconds)}"
            )

    def _save(self) -> None:
        """Saves a checkpoint of every run."""
        self.history = self.history._replace(
            seconds=self.clock.seconds() / self.P, overhead=self.clock.overhead / self.P
        )
        for run in self._alive():
            run.history = self.history._replace(evaluations=run.history.evaluations)
            state = population.member(self.state, run.index, self.P)
            checkpoints.save(run.manager, state, run.history)
