"""Trackers, to which `--track` sends the curves of a run beside metrics.jsonl.

A run is named by its row and seed, in a group named by its study. A resumed run continues its
tracked run, and a failure of the tracker does not stop training.
"""

import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.errors import UsageError
from t2t_jax.terminal import warn

VARIABLE = "T2T_JAX_TRACK"  # the name of the tracker, for this process and the workers it starts


Curves = dict[str, float]
Sink = tuple[str, Callable[[Curves, int], object], Callable[[], object]]  # id, write, close


def _tensorboard(home: Path, step: int, group: str, name: str, **_: Any) -> Sink:
    """Writes events in this thread: tensorboardX's own thread dies if the clock is set back."""
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.proto.summary_pb2 import Summary

    home = home / "tensorboard" / group / name
    home.mkdir(parents=True, exist_ok=True)
    events = EventsWriter(str(home / "events"))
    start = SessionLog(status=SessionLog.START)
    events.write_event(Event(step=step + 1, session_log=start))  # drops later records

    def write(curves: Curves, step: int) -> None:
        summary = Summary(value=[Summary.Value(tag=k, simple_value=v) for k, v in curves.items()])
        events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        events.flush()

    return str(home), write, events.close


def _wandb(home: Path, step: int, **run: Any) -> Sink:
    import wandb

    project, settings = os.environ.get("WANDB_PROJECT", "t2t_jax"), wandb.Settings(console="off")
    run |= dict(dir=str(home), resume="allow", reinit="create_new")
    made = wandb.init(project=project, settings=settings, **run)
    return made.id, made.log, made.finish  # wandb ignores steps that were sent before


# Functions of the home of runs, the step from which a run goes on, its group, name, config and id.
TRACKERS: dict[str, Callable[..., Sink]] = {"tensorboard": _tensorboard, "wandb": _wandb}


def choose(name: str) -> None:
    """Makes the runs of this process and of its workers send their curves to a tracker.

    Raises:
      UsageError: its package is not installed.
    """
    package = "tensorboardX" if name == "tensorboard" else name
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"--track {name} needs a package: `pip install {package}`.")
    os.environ[VARIABLE] = name


class Tracker:
    """The chosen tracker of a run; does nothing if none is chosen, or after it has failed."""

    def __init__(self, directory: Path, step: int) -> None:
        self.name, self.sink = os.environ.get(VARIABLE), None
        if self.name:
            self.sink = self._guarded(_open, self.name, directory, step)

    def write(self, record: dict[str, Any]) -> None:
        curves = {name: value for name, value in record.items() if name != "step"}
        if self.sink:
            self._guarded(self.sink[1], curves, record["step"])

    def close(self) -> None:
        if self.sink:
            self._guarded(self.sink[2])

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:  # whatever the error, training continues
            self.sink = None
            reason = str(error).split("\n")[0] or type(error).__name__
            warn(f"{self.name} failed ({reason}): training continues without it.")


def _open(name: str, directory: Path, step: int) -> Sink:
    """Opens a run in a tracker, and keeps its identifier in the directory of the run."""
    path, names = directory / f"{name}.json", directory / "names.txt"
    full = (
        names.read_text("utf-8").split("\n")[0] if names.exists() else f"t2t_jax/{directory.name}"
    )
    group, _, own = full.partition("/")
    key = files.read_json(path)["id"] if path.exists() else None
    fields = files.read_json(directory / "config.json")
    run = dict(group=group, name=own, config=fields, id=key)  # id: None at first
    sink = TRACKERS[name](directory.parent, step, **run)
    files.write_json(path, {"id": sink[0]})
    return sink
