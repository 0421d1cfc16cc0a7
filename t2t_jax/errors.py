"""Errors for the person at the keyboard: one sentence each, with the place and the remedy."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class UsageError(Exception):
    """What was asked cannot be done as asked; commands exit with code 2."""


class RunError(Exception):
    """The work was well asked for and failed; commands exit with code 1."""


class Interrupted(RunError):
    """A person or a scheduler stopped the work; the same command goes on from there (code 75)."""

    CODE = 75  # EX_TEMPFAIL of sysexits.h: try again


class Busy(UsageError):
    """Another process is at work on what was asked for."""


def warn(line: str) -> None:
    """Tells the person at the keyboard what was left out or assumed, on standard error."""
    print(f"t2t-jax: {line}", file=sys.stderr, flush=True)


def near(name: str, choices: Iterable[str]) -> str:
    """A clause naming the choice nearest to a misspelt `name`, or else all the choices."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    if not close:  # a wrong letter case in a one-letter symbol, say
        close = [c for c in choices if c.lower() == name.lower()][:1]
    return f"did you mean {close[0]!r}?" if close else f"the choices are {', '.join(choices)}."


@contextmanager
def writing(path: Path, kind: type[Exception] = OSError) -> Iterator[None]:
    """What keeps `path` from being written, in a sentence.

    Raises:
      RunError: in place of any exception of the kind.
    """
    try:
        yield
    except kind as error:
        why = getattr(error, "strerror", None) or str(error).split("\n")[0].split(": ")[-1]
        raise RunError(
            f"cannot write {path} ({why}); once that is mended, the same command goes on."
        ) from error
