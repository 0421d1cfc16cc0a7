"""Training of one run, or of several that share a compiled program."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import flax.linen as nn
import jax
from jax.sharding import Mesh

from t2t_jax.errors import RunError, UsageError
from t2t_jax.models.flops import run_flops
from t2t_jax.terminal import Progress
from t2t_jax.training import checkpoints, sharding
from t2t_jax.training.checkpoints import History
from t2t_jax.training.population import Member, Trained
from t2t_jax.training.trainer import Evaluate, Programs, Trainer

IDLE = 1e12  # a step of fewer FLOPs leaves an accelerator mostly idle


def train(
    model: nn.Module,
    members: Sequence[Member],
    evaluate: Evaluate,
    progress: Progress,
    mesh: Mesh,
    vectorised: bool | None = None,
) -> Iterator[tuple[Member, Trained | RunError]]:
    """Trains runs that share a compiled program, each from its last checkpoint if it has one.

    Args:
      members: their configs differ only in `config.TRACED` fields.
      evaluate: function from parameters to dev perplexity.
      vectorised: whether all runs are trained at once, as one wider computation, instead of in
        turn. By default they are if the mesh has a population axis, or if an accelerator would idle
        in the small steps of one; on a CPU, one run keeps the cores busy and fills the caches.

    Yields:
      Each member when it has ended, with its outcome: an error if its loss is not finite.

    Raises:
      UsageError: the mesh's population axis does not divide the number of members.
      RunError: a checkpoint or a record cannot be written.
      Interrupted: by SIGINT or SIGTERM; the same call resumes from the checkpoint of that step.
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
            name = group[0].directory.name
            progress.say(f"{name}: run {i} of {len(groups)} that share a program")
        outcomes: list[tuple[Member, Trained | RunError]] = []
        with sharding.use_mesh(mesh), ExitStack() as stack:
            for run in group:
                home, history = run.directory / "checkpoints", partial(getattr, run, "history")
                opened = checkpoints.manager(home, run.c.training, history)
                run.manager = stack.enter_context(opened)
            saved = [checkpoints.whole_steps(run.manager, progress.say) for run in group]
            for start, indices in _resume_points(saved):
                if len(indices) % mesh.shape["population"]:
                    raise UsageError(
                        f"population={mesh.shape['population']} of the mesh does not divide the "
                        f"{len(indices)} runs that share a program: choose another --mesh."
                    )
                runs = [group[k] for k in indices]
                for index, run in enumerate(runs):
                    checkpoints.delete_after(run.manager, start)
                    run.index, run.history, run.error = index, History(), None
                trainer = Trainer(model, runs, start, evaluate, progress, mesh, programs)
                outcomes += trainer.train()
        yield from outcomes


def _resume_points(saved: Sequence[set[int]]) -> list[tuple[int, list[int]]]:
    """The steps to resume from, each with the indices of the members that resume there.

    All members resume from the newest step of which each has saved a checkpoint. If there is none,
    those with the same newest step are trained at once.
    """
    common = set.intersection(*saved)
    if common or not any(saved):
        return [(max(common, default=0), list(range(len(saved))))]
    newest = [max(s, default=0) for s in saved]
    return [(n, [i for i, other in enumerate(newest) if other == n]) for n in sorted(set(newest))]
