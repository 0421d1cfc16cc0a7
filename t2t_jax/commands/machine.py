"""`doctor`, `prune`, `list` and `help`: this machine, and what the package has."""

import shutil
from argparse import Namespace
from pathlib import Path

from t2t_jax.commands import doctor as checks
from t2t_jax.commands.arguments import HELP, TOPICS
from t2t_jax.commands.listing import list_runs, listing
from t2t_jax.errors import Busy, RunError, UsageError, near, writing
from t2t_jax.runs import claim, published, results
from t2t_jax.runs.names import title
from t2t_jax.terminal import say

_LEFT = ".pruned"  # suffix of a directory that is being deleted


def doctor(arguments: Namespace) -> None:
    """Prints the finding of each check of this machine."""
    problems = 0
    for finding in checks.examine(arguments.cache, arguments.store, arguments.mesh):
        print(f"{'fix' if finding.remedy else 'ok':4}  {finding.check:10}  {finding.result}")
        if finding.remedy:
            print(f"{'':16}  {finding.remedy}")
            problems += 1
    if problems:
        raise RunError(f"{problems} of these checks found a problem: fix it as they say.")


def prune(arguments: Namespace) -> None:
    """Deletes the checkpoints of the finished runs of a store, and prints the bytes that frees."""
    size = runs = unfinished = 0
    for directory, _ in results.stored(arguments.store, print):
        if published.is_published(directory):
            continue
        if results.state(directory).status != "finished":
            unfinished += 1
            continue
        try:
            with claim.lock(directory):  # no process scores, continues or replaces the run
                freed = _prune(directory, arguments.dry_run)
        except Busy:
            print(f"{title(directory)} is in use by another process, and is kept as it is")
            continue
        if freed:
            print(f"{title(directory)}: {freed / 1e6:,.1f} MB")
            size, runs = size + freed, runs + 1
    freed_text = "would be freed" if arguments.dry_run else "freed"
    kept = f"; {unfinished} unfinished runs are kept as they are" * bool(unfinished)
    print(f"{runs} finished runs: {size / 1e6:,.1f} MB {freed_text}{kept}")


def _prune(directory: Path, dry_run: bool) -> int:
    """Deletes what a finished run does not need; returns the number of bytes."""
    paths = [*directory.glob(f"*{_LEFT}")]
    if (directory / "final").exists():  # checkpoints may be the only parameters
        paths += [directory / "checkpoints", *directory.glob("damaged-*")]
    paths = [path for path in paths if path.exists()]
    size = sum(file.stat().st_size for path in paths for file in path.rglob("*") if file.is_file())
    for path in [] if dry_run else paths:
        with writing(path):  # if the process is killed, no directory that is left looks whole
            aside = path if path.suffix == _LEFT else path.with_name(f"{path.name}{_LEFT}")
            path.rename(aside)
            shutil.rmtree(aside)
    return size


def list_(arguments: Namespace) -> None:
    """Prints the entries of a kind, the rows of a study, or the runs of a store."""
    if arguments.what != "runs":
        print("\n".join(listing(arguments.what, arguments.store)))
        return
    lines, summary = list_runs(arguments.store or Path("runs"))
    print("\n".join(lines), flush=True)
    if summary:
        say(summary)


def help_(arguments: Namespace) -> None:
    """Prints the text on a topic, or the topics."""
    if not arguments.topic:
        titles = {x: (HELP / f"{x}.md").read_text("utf-8").partition("\n")[0] for x in TOPICS}
        print("\n".join(f"{name:18}{title.removeprefix('# ')}" for name, title in titles.items()))
        return
    if arguments.topic not in TOPICS:
        raise UsageError(
            f"there is no help on {arguments.topic!r}: {near(arguments.topic, TOPICS)}"
        )
    print((HELP / f"{arguments.topic}.md").read_text("utf-8"), end="")
