"""Checkpoints with Orbax: saved in the background, restored to resume, averaged at the end."""

import math
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from t2t_jax.config import Training
from t2t_jax.errors import RunError, UsageError, writing
from t2t_jax.training import hosts, manifest
from t2t_jax.training.step import State


class History(NamedTuple):
    """What a run has done so far, saved with its state: data read, costs and evaluations.

    Of P runs that are trained at once, each has 1 / P of the time. An evaluation is a step and its
    dev perplexity.
    """

    epoch: int = 0  # of the next batch
    batch: int = 0  # the number of the next batch within the epoch
    seconds: float = 0.0  # of training, without `overhead`
    overhead: float = 0.0  # seconds of compiling, and of evaluating on dev
    flops: float = 0.0  # of matrix products, by the model's formula
    compiled_flops: float = 0.0  # of all operations, as XLA counts them in the compiled step
    memory: int = 0  # the largest number of bytes that a step holds
    evaluations: list[tuple[int, float]] = []  # noqa: RUF012, no code changes it


@dataclass
class _Retention:
    """Keeps the newest checkpoint, the best with patience, and one evaluated more than is averaged.

    A checkpoint that an interruption saves between two evaluations does not count as evaluated.
    """

    t: Training
    history: Callable[[], History]

    def should_preserve(self, checkpoints: Any, *, context: Any) -> list[bool]:
        steps, every = [c.step for c in checkpoints], self.t.evaluate_every
        evaluated = [s for s in steps if s % every == 0 or s == self.t.steps]
        kept = {*evaluated[-self.t.average - 1 :], *steps[-1:]}
        if self.t.patience:
            kept.update(best_window(self.history().evaluations, self.t.average, evaluated))
        return [s in kept for s in steps]


def best_window(
    evaluations: Sequence[tuple[int, float]], k: int, saved: Collection[int]
) -> list[int]:
    """The steps of the k consecutive evaluations, all saved, of the lowest mean log perplexity."""
    k = min(k, len(evaluations))
    windows = (evaluations[i : i + k] for i in range(len(evaluations) - k + 1))
    whole = [window for window in windows if all(step in saved for step, _ in window)]
    mean = lambda window: sum(math.log(perplexity) for _, perplexity in window)  # noqa: E731
    return [step for step, _ in min(whole, key=mean, default=())]


@contextmanager
def manager(
    directory: Path, t: Training, history: Callable[[], History] = History
) -> Iterator[ocp.CheckpointManager]:
    """The manager of a run's checkpoints, which keeps those that `_Retention` names.

    Checkpoints are saved in the background; leaving the context waits for the last.

    Raises:
      RunError: on leaving, if the last checkpoint cannot be written.
    """

    def before_commit() -> None:
        for unfinished in directory.glob("*.orbax-checkpoint-tmp"):
            manifest.write(unfinished)

    options = ocp.CheckpointManagerOptions(
        preservation_policy=_Retention(t, history),
        async_options=ocp.AsyncOptions(post_finalization_callback=before_commit),
    )
    source = ocp.CheckpointManager(directory.absolute(), options=options)
    try:
        yield source
    finally:
        with writing(directory, Exception):
            source.close()


def save(target: ocp.CheckpointManager, state: State, history: History) -> None:
    """Saves a run after `state.step` steps, once the previous save has finished.

    Raises:
      RunError: the disk has no room, or the previous save failed.
    """
    finish(target)
    directory, needed = Path(target.directory), sum(x.nbytes for x in jax.tree.leaves(state))

    def check_room() -> None:  # Orbax would fail with a long traceback
        free = shutil.disk_usage(directory).free
        if free < needed:
            raise RunError(
                f"a checkpoint takes {needed / 2**20:,.1f} MiB, but {directory} has only "
                f"{free / 2**20:,.1f} free: make room, then the same command resumes from the "
                "last checkpoint."
            )

    hosts.decide(check_room)
    trees = {name: ocp.args.StandardSave(tree) for name, tree in _trees(state).items()}
    standing = ocp.args.JsonSave(history._asdict())  # the name that stored checkpoints have
    with writing(directory, Exception):
        target.save(int(state.step), args=ocp.args.Composite(**trees, standing=standing))


def _trees(state: State) -> dict[str, Any]:
    """The trees of a checkpoint; Orbax refuses one without arrays, as the state of plain SGD."""
    trees = {"params": state.params, "optimizer": state.optimizer}
    return {name: tree for name, tree in trees.items() if jax.tree.leaves(tree)}


def finish(source: ocp.CheckpointManager) -> None:
    """Waits until the save in the background has finished."""
    with writing(Path(source.directory), Exception):
        source.wait_until_finished()


def whole_steps(source: ocp.CheckpointManager, report: Callable[[str], object]) -> set[int]:
    """The steps with a complete checkpoint; damaged ones are reported and moved aside."""

    def move_damaged() -> None:
        for step in source.all_steps():
            directory = _directory(source, step)
            if (damage := manifest.damage(directory)) is None:
                continue
            aside = directory.parent.parent / f"damaged-{step}"
            with writing(aside):
                shutil.rmtree(aside, ignore_errors=True)
                directory.rename(aside)
            report(
                f"the checkpoint of step {step:,} is damaged ({damage}) and was moved to {aside}."
            )

    hosts.decide(move_damaged)
    source.reload()
    return set(source.all_steps())


def delete_after(source: ocp.CheckpointManager, step: int) -> None:
    """Deletes the checkpoints after `step`, from which a run resumes: it makes them again.

    Orbax does not save a checkpoint if there is a later one.
    """
    for later in source.all_steps():
        if later > step:
            source.delete(later)


def restore(source: ocp.CheckpointManager, like: State, step: int) -> tuple[State, History]:
    """The state and history saved at `step`, laid out as `like`.

    Raises:
      UsageError: the checkpoint is of another model, or Orbax cannot read it.
    """
    directory = _directory(source, step)
    trees = {name: ocp.args.StandardRestore(tree) for name, tree in _trees(like).items()}
    args = ocp.args.Composite(**trees, standing=ocp.args.JsonRestore())
    with _readable(directory):
        _check_shapes(directory / "params", like.params)
        saved = source.restore(step, args=args)
    count = jax.device_put(jnp.int32(step), like.step.sharding)
    moments = saved.get("optimizer", like.optimizer)
    saved["standing"].pop("population_size", None)  # older checkpoints have it
    return State(count, saved["params"], moments), History(**saved["standing"])


def newest(checkpoints: Path) -> Path | None:
    """The directory of the last checkpoint that a manager wrote to `checkpoints`."""
    steps = [int(p.name) for p in checkpoints.glob("*") if p.name.isdigit()]
    return checkpoints / str(max(steps)) if steps else None


def average(
    source: ocp.CheckpointManager, like: Any, history: History, t: Training
) -> tuple[Any, list[int]]:
    """Mean of the parameters of `t.average` evaluated checkpoints (section 6.1), and their steps.

    They are the last or, with patience, the best ones in a row; `like` is as in `read_params`.
    """
    saved = sorted({step for step, _ in history.evaluations}.intersection(source.all_steps()))
    best = best_window(history.evaluations, t.average, saved) if t.patience else []
    steps = best or saved[-t.average :]
    add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
    total = read_params(_directory(source, steps[0]), like)
    for step in steps[1:]:
        total = add(total, read_params(_directory(source, step), like))
    return jax.jit(lambda t: jax.tree.map(lambda x: x / len(steps), t))(total), steps


def write_params(directory: Path, params: Any) -> None:
    """Writes parameters alone to `directory`, and replaces it; it is complete once it exists."""
    aside = directory.absolute().with_name(f"{directory.name}.part")
    with writing(directory, Exception), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(aside / "params", params, force=True)

    def commit() -> None:
        with writing(directory):
            manifest.write(aside)
            shutil.rmtree(directory, ignore_errors=True)
            aside.rename(directory)

    hosts.decide(commit)


def read_params(directory: Path, like: Any) -> Any:
    """The parameters that `write_params` or a manager wrote, laid out as `like`.

    `like` has arrays, or their shapes and shardings.

    Raises:
      UsageError: they are of a model of other shapes, or the directory is damaged.
    """
    if (damage := manifest.damage(directory)) is not None:
        raise UsageError(
            f"{directory} is damaged ({damage}): remove it, and result.json beside it if there is "
            "one, and train again; training resumes from the last complete checkpoint."
        )
    with _readable(directory), ocp.StandardCheckpointer() as checkpointer:
        _check_shapes(directory / "params", like)
        return checkpointer.restore(directory.absolute() / "params", like)


def _check_shapes(directory: Path, like: Any) -> None:
    """Raises a UsageError that names the first parameter whose shape differs."""

    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(p, simple=True, separator="/"): x.shape for p, x in leaves}

    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.metadata(directory.absolute()).item_metadata.tree
    theirs, ours = shapes(saved), shapes(like)
    for name in sorted(theirs | ours, key=lambda n: (n in theirs and n in ours, n)):
        if theirs.get(name) != ours.get(name):
            raise UsageError(
                f"{directory} holds another model: its parameter {name} is "
                f"{theirs.get(name, 'absent')} where the config makes it "
                f"{ours.get(name, 'absent')}; use the config.json it was trained with."
            )


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Turns any error of Orbax into a UsageError that names the directory."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{directory} cannot be read ({type(error).__name__}): was it written by another "
            "version of orbax-checkpoint?"
        ) from error


def _directory(source: ocp.CheckpointManager, step: int) -> Path:
    return Path(source.directory) / str(step)
