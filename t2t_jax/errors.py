"""Errors for users: one sentence each, which says what is wrong, where, and what to do."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class UsageError(Exception):
    """The request is wrong; commands exit with code 2."""


class RunError(Exception):
    """The request was right, but the work failed; commands exit with code 1."""


class Interrupted(RunError):
    """A user or a scheduler stopped the work; the same command resumes it (exit code 75)."""

    CODE = 75  # EX_TEMPFAIL of sysexits.h: try again


class Busy(UsageError):
    """Another process is already doing this work."""


def warn(line: str) -> None:
    """Prints what was left out or assumed to standard error."""
    print(f"t2t-jax: {line}", file=sys.stderr, flush=True)


def near(name: str, choices: Iterable[str]) -> str:
    """Returns a clause with the choice closest to a misspelt name, or with all choices."""
    choices = sorted(choices)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    if not close:  # for example, a one-letter symbol in the wrong case
        close = [c for c in choices if c.lower() == name.lower()][:1]
    return f"did you mean {close[0]!r}?" if close else f"the choices are {', '.join(choices)}."


@contextmanager
def writing(path: Path, kind: type[Exception] = OSError) -> Iterator[None]:
    """Turns an exception of a kind, raised while `path` is written, into a sentence.

    Raises:
      RunError: in place of the exception.
    """
    try:
        yield
    except kind as error:
        why = getattr(error, "strerror", None) or str(error).split("\n")[0].split(": ")[-1]
        raise RunError(
            f"cannot write {path} ({why}); once that is fixed, the same command continues."
        ) from error
