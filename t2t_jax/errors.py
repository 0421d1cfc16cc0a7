"""Errors for users: one sentence each, which says what is wrong, where, and what to do."""

import difflib
import traceback
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


def near(name: str, choices: Iterable[str]) -> str:
    """Returns a clause with the choice closest to a misspelt name, or with all choices."""
    choices = list(choices)
    if close := closest(name, choices):
        return f"did you mean {close!r}?"
    return f"the choices are {', '.join(sorted(choices))}."


def closest(name: str, choices: Iterable[str]) -> str:
    """Returns the choice closest to a misspelt name; empty if none is close.

    Case, hyphens and leading dashes do not matter.
    """
    plain = {_plain(choice): choice for choice in choices}
    words = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.51)  # more than half
    return plain[words[0]] if words else ""


def _plain(word: str) -> str:
    return word.lstrip("-").replace("-", "_").lower()


def alternatives(choices: Iterable[str]) -> str:
    """Returns choices as text: `'a', 'b' or 'c'`."""
    *others, last = map(repr, choices)
    return f"{', '.join(others)} or {last}" if others else last


def in_function(what: str, error: Exception) -> UsageError:
    """Returns the error of a user's function that raised an exception: what it is, and where."""
    line = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{line.filename}, line {line.lineno}"
    return UsageError(f"{what} fails in {where}: {type(error).__name__}: {error}.")


@contextmanager
def writing(path: Path, kind: type[Exception] = OSError) -> Iterator[None]:
    """Context in which `path` is written; turns an exception into a RunError of one sentence."""
    try:
        yield
    except kind as error:
        why = getattr(error, "strerror", None) or str(error).split("\n")[0].split(": ")[-1]
        raise RunError(
            f"cannot write {path} ({why}); once that is fixed, the same command continues."
        ) from error
