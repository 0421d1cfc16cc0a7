"""What a run records while it trains: metrics.jsonl, and the curves of a tracker."""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import files
from t2t_jax.errors import writing
from t2t_jax.training.trackers import Tracker


class StepMetrics(NamedTuple):
    """What a training step reports: scalars, or [P] of a population.

    `target_tokens` counts what the loss counts: neither prompts, nor tokens that a masked language
    model is shown.
    """

    loss: Any  # nats per target token, with label smoothing
    nll: Any  # nats per target token, without it
    grad_norm: Any  # of `loss`
    lr: Any
    source_tokens: Any  # without padding
    target_tokens: Any


class Meter:
    """Means and speeds over the training steps since its creation: their metrics [P], and FLOPs."""

    def __init__(self) -> None:
        self.opened, self.steps, self.flops = time.monotonic(), list[StepMetrics](), 0.0

    def read(self, peak: float | None) -> dict[str, Any]:
        """The fields of a record of metrics.jsonl.

        `lr` and `grad_norm` [P] are of the last step; `loss` and `nll` [P] are means in nats per
        target token; `tokens_per_second` counts `source_tokens` and `target_tokens` of all runs;
        `share_of_peak` is the share of `peak` FLOP/s, if that is known.
        """
        seconds = time.monotonic() - self.opened
        x = StepMetrics(*np.array(self.steps, float).swapaxes(0, 1))  # each [steps, P]
        targets = np.maximum(x.target_tokens.sum(axis=0), 1)
        share = {} if peak is None else {"share_of_peak": self.flops / seconds / peak}
        return {
            "lr": x.lr[-1],
            "grad_norm": x.grad_norm[-1],
            **share,
            "loss": (x.loss * x.target_tokens).sum(axis=0) / targets,
            "nll": (x.nll * x.target_tokens).sum(axis=0) / targets,
            "tokens_per_second": (x.source_tokens + x.target_tokens).sum() / seconds,
            "seconds_per_step": seconds / len(self.steps),
        }


class Metrics:
    """metrics.jsonl, with one record per line; each is also sent to the chosen tracker.

    For a run that resumes at `step`, records of later steps are dropped, as they will be repeated.
    """

    def __init__(self, directory: Path, step: int) -> None:
        path = directory / "metrics.jsonl"
        kept = [r for r in read_metrics(path) if r["step"] <= step]
        files.write(path, "".join(f"{json.dumps(r)}\n" for r in kept))
        with writing(path):
            self.path, self.file = path, path.open("a", encoding="utf-8")
        self.tracker = Tracker(directory, step)

    def write(self, record: dict[str, Any]) -> None:
        with writing(self.path):
            self.file.write(f"{json.dumps(record)}\n")
            self.file.flush()
        self.tracker.write(record)

    def close(self) -> None:
        with writing(self.path):
            self.file.close()
        self.tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, without a last line that a kill cut short."""
    records = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records
