"""What a person sees of a run: one line that moves on a terminal, plain lines elsewhere."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from t2t_jax.errors import writing


class Progress:
    """Prints to a stream, at most every second on a terminal and every 15 s in a pipe."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = sys.stderr if out is None else out
        self.live = self.out.isatty()
        self.last = 0.0
        self.open = False  # whether the cursor stands behind a passing line

    def show(self, line: str) -> None:
        """A passing state: overwritten on a terminal, dropped in a pipe if the last was recent."""
        if time.monotonic() - self.last < (1 if self.live else 15):
            return
        self.last, self.open = time.monotonic(), self.live
        self.out.write(f"\r\x1b[K{line}" if self.live else f"{line}\n")
        self.out.flush()

    def say(self, line: str) -> None:
        """A line that stays."""
        self.out.write(f"\r\x1b[K{line}\n" if self.live else f"{line}\n")
        self.out.flush()
        self.open = False

    def close(self) -> None:
        """Ends a passing line, so that what follows begins its own."""
        if self.open:
            self.out.write("\n")
            self.out.flush()
            self.open = False


def duration(seconds: float) -> str:
    """12 s, 3 min 05 s, 2 h 07 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class Meter:
    """Sums over the training steps since it was made, of each member of a population."""

    def __init__(self) -> None:
        self.opened, self.steps = time.monotonic(), 0
        self.tokens = self.flops = 0.0
        self.loss, self.nll, self.targets = np.zeros((3, 1))

    def add(self, metrics: Mapping[str, np.ndarray], flops: float) -> None:
        """Counts one step: what it reported [P], and the FLOPs of its matrix products."""
        self.steps += 1
        self.loss = self.loss + metrics["loss"] * metrics["target_tokens"]
        self.nll = self.nll + metrics["nll"] * metrics["target_tokens"]
        self.targets = self.targets + metrics["target_tokens"]
        self.tokens += float((metrics["source_tokens"] + metrics["target_tokens"]).sum())
        self.flops += flops

    def read(self, peak: float | None) -> dict[str, Any]:
        """Nats per target token [P]; tokens a second of both sides, share of `peak` FLOP/s."""
        seconds = time.monotonic() - self.opened
        share = {} if peak is None else {"share_of_peak": self.flops / seconds / peak}
        return share | {
            "loss": self.loss / np.maximum(self.targets, 1),
            "nll": self.nll / np.maximum(self.targets, 1),
            "tokens_per_second": self.tokens / seconds,
            "seconds_per_step": seconds / self.steps,
        }


class Metrics:
    """metrics.jsonl, one record a line; also TensorBoard's files where tensorboardX is installed.

    Opening it for a run resumed at `step` drops the records of later steps, which will come again.
    """

    def __init__(self, directory: Path, step: int) -> None:
        path = directory / "metrics.jsonl"
        kept = [r for r in read_metrics(path) if r["step"] <= step]
        aside = path.with_suffix(".part")
        self.board: _Board | None = None
        with writing(path):
            aside.write_text("".join(f"{json.dumps(r)}\n" for r in kept))
            aside.rename(path)
            self.path, self.file = path, path.open("a")
            with suppress(ImportError):
                self.board = _Board(directory / "tensorboard", step)

    def write(self, record: dict[str, Any]) -> None:
        with writing(self.path):
            self.file.write(f"{json.dumps(record)}\n")
            self.file.flush()
            if self.board is not None:
                self.board.write(record)

    def close(self) -> None:
        with writing(self.path):
            self.file.close()
            if self.board is not None:
                self.board.close()


class _Board:
    """TensorBoard's event file, written as records come.

    tensorboardX's own writer leaves that to a thread, which dies of a clock that is set back, and
    then blocks whoever writes.

    Raises:
      ImportError: tensorboardX is not installed.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self.event, self.summary = event_pb2.Event, summary_pb2.Summary
        directory.mkdir(exist_ok=True)
        self.writer = EventsWriter(str(directory / "events"))
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # drops what came later
        self.writer.write_event(self.event(step=step + 1, session_log=start))

    def write(self, record: dict[str, Any]) -> None:
        values = [
            self.summary.Value(tag=name, simple_value=value)
            for name, value in record.items()
            if name != "step"
        ]
        summary = self.summary(value=values)
        event = self.event(wall_time=time.time(), step=record["step"], summary=summary)
        self.writer.write_event(event)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line cut short by a kill is left out."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records
