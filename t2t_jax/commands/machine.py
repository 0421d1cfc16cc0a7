"""`doctor`, `prune`, `list` and `help`: this machine, and what the package has."""

import sys
from argparse import Namespace
from pathlib import Path

from t2t_jax.errors import RunError, UsageError, near

_HELP = Path(__file__).parents[1] / "help"


def doctor(arguments: Namespace) -> None:
    """Prints the finding of each check of this machine.

    Raises:
      RunError: there is a problem.
    """
    from t2t_jax import doctor

    problems = 0
    for finding in doctor.examine(arguments.cache, arguments.store, arguments.mesh):
        print(f"{'fix' if finding.remedy else 'ok':4}  {finding.check:10}  {finding.result}")
        if finding.remedy:
            print(f"{'':16}  {finding.remedy}")
            problems += 1
    if problems:
        raise RunError(f"{problems} of these checks found a problem: fix it as they say.")


def prune(arguments: Namespace) -> None:
    """Deletes the checkpoints of finished runs, and prints how many bytes that frees."""
    from t2t_jax.runs import pruning

    options = arguments.parameters, arguments.dry_run
    pruned = pruning.prune(arguments.store, *options, report=print)
    freed = "would be freed" if arguments.dry_run else "freed"
    kept = f"; {pruned.unfinished} unfinished runs are kept as they are" * bool(pruned.unfinished)
    print(f"{pruned.runs} finished runs: {pruned.size / 1e6:,.1f} MB {freed}{kept}")


def list_(arguments: Namespace) -> None:
    """Prints the entries of a kind, the rows of a study, or the runs of a store.

    With --watch it prints the progress of the runs until all have ended.
    """
    from t2t_jax.listing import listing

    if arguments.watch:
        if arguments.what != "runs":
            raise UsageError("--watch is for the runs of a store: `list runs --watch`.")
        from t2t_jax.runs.view import watch
        from t2t_jax.training.progress import Progress

        watch(arguments.store or Path("runs"), Progress(sys.stdout))
        return
    print("\n".join(listing(arguments.what, arguments.format, arguments.store)))


def topics() -> list[str]:
    """Returns the topics of `help`."""
    return sorted(path.stem for path in _HELP.glob("*.md"))


def help_(arguments: Namespace) -> None:
    """Prints the text on a topic."""
    if arguments.topic not in topics():
        raise UsageError(
            f"there is no help on {arguments.topic!r}: {near(arguments.topic, topics())}"
        )
    print((_HELP / f"{arguments.topic}.md").read_text("utf-8"), end="")
