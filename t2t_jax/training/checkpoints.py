"""Checkpoints with Orbax: save in the background, resume from the last, average the last k."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as policy

from t2t_jax.errors import UsageError
from t2t_jax.training.step import State


class Standing(NamedTuple):
    """Where a run stands beside its state."""

    epoch: int = 0  # of the next batch
    batch: int = 0  # within the epoch
    seconds: float = 0.0  # of training
    evaluations: list[tuple[int, float]] = []  # noqa: RUF012  (step, dev perplexity), replaced whole


def manager(directory: Path, keep: int = 1) -> ocp.CheckpointManager:
    """Keeps the last `keep` checkpoints and the one with the best dev perplexity.

    Saving goes on in the background until `close`, without which the last one is lost.
    """
    best = policy.BestN(
        get_metric_fn=lambda m: m["perplexity"],
        reverse=True,
        n=1,
        keep_checkpoints_without_metrics=False,
    )
    options = ocp.CheckpointManagerOptions(
        preservation_policy=policy.AnyPreservationPolicy([policy.LatestN(keep), best])
    )
    return ocp.CheckpointManager(directory.absolute(), options=options)


def save(to: ocp.CheckpointManager, state: State, standing: Standing) -> None:
    """Keeps a run as it stands after `state.step` steps."""
    step = int(state.step)
    scores = dict(standing.evaluations)
    items = ocp.args.Composite(
        params=ocp.args.StandardSave(state.params),
        optimizer=ocp.args.StandardSave(state.optimizer),
        standing=ocp.args.JsonSave(standing._asdict()),
    )
    metrics = {"perplexity": scores[step]} if step in scores else None
    to.save(step, args=items, metrics=metrics)


def restore(source: ocp.CheckpointManager, like: State) -> tuple[State, Standing] | None:
    """The run as last saved, laid out as `like`; None if nothing is saved."""
    step = source.latest_step()
    if step is None:
        return None
    args = ocp.args.Composite(
        params=ocp.args.StandardRestore(_abstract(like.params)),
        optimizer=ocp.args.StandardRestore(_abstract(like.optimizer)),
        standing=ocp.args.JsonRestore(),
    )
    saved = source.restore(step, args=args)
    count = jax.device_put(jnp.int32(step), like.step.sharding)
    return State(count, saved["params"], saved["optimizer"]), Standing(**saved["standing"])


def average(
    source: ocp.CheckpointManager, like: Any, standing: Standing, k: int
) -> tuple[Any, list[int]]:
    """Mean of the parameters of the last k evaluated checkpoints (section 6.1), and their steps.

    What an interruption saved between two evaluations does not count.
    """
    evaluated = {step for step, _ in standing.evaluations}
    steps = sorted(evaluated.intersection(source.all_steps()))[-k:]
    args = ocp.args.Composite(params=ocp.args.StandardRestore(_abstract(like)))
    add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b), donate_argnums=0)
    total = source.restore(steps[0], args=args)["params"]
    for step in steps[1:]:
        total = add(total, source.restore(step, args=args)["params"])
    return jax.jit(lambda t: jax.tree.map(lambda x: x / len(steps), t))(total), steps


def write_params(directory: Path, params: Any) -> None:
    """Parameters alone, replacing what is there; complete once the directory exists."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.absolute(), params, force=True)


def read_params(directory: Path, like: Any) -> Any:
    """What `write_params` wrote, laid out as `like`.

    Raises:
      UsageError: it belongs to a model of other shapes.
    """
    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.metadata(directory.absolute()).item_metadata.tree
        check_shapes(directory, saved, like)
        return checkpointer.restore(directory.absolute(), _abstract(like))


def check_shapes(directory: Path, saved: Any, like: Any) -> None:
    """Refuses, by the name of the first parameter that differs, a checkpoint of another model."""

    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(p, simple=True, separator="/"): x.shape for p, x in leaves}

    theirs, ours = shapes(saved), shapes(like)
    for name in sorted(theirs | ours, key=lambda n: (n in theirs and n in ours, n)):
        if theirs.get(name) != ours.get(name):
            raise UsageError(
                f"{directory} holds another model: its parameter {name} is "
                f"{theirs.get(name, 'absent')} where the config makes it "
                f"{ours.get(name, 'absent')}; use the config.json it was trained with."
            )


def _abstract(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
