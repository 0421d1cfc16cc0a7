"""The command line: parsing, errors and exit codes.

Exit codes: 0 success, 1 failure, 2 wrong usage, 75 interrupted (the same command resumes).
"""

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from t2t_jax.commands.arguments import add_commands
from t2t_jax.errors import Interrupted, RunError, UsageError, closest
from t2t_jax.terminal import warn


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help).")


def main(words: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    # LAPACK's threads and XLA's would wait for each other, above all in workers with a core each.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):  # tables and texts have characters beyond ASCII
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax logs the errors that it raises
    try:
        arguments = _parse(sys.argv[1:] if words is None else words)
        if arguments.imports:  # every command then knows what these files declare
            from t2t_jax.runs import study_file

            for file in arguments.imports:
                study_file.load(file)
        module, _, function = arguments.command.rpartition(".")
        getattr(import_module(f"t2t_jax.commands.{module}"), function)(arguments)
    except UsageError as error:
        warn(str(error))
        return 2
    except RunError as error:
        warn(str(error))
        return Interrupted.CODE if isinstance(error, Interrupted) else 1
    except KeyboardInterrupt:
        warn("interrupted.")
        return Interrupted.CODE
    except BrokenPipeError:  # the reader of a pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        warn(f"{error}.")
        return 1
    except (RuntimeError, OverflowError) as error:  # JAX's own types are RuntimeErrors
        if "memory" not in str(error).lower() and not isinstance(error, OverflowError):
            raise
        reason = str(error).splitlines()[0].rstrip(".")
        warn(
            f"the arrays of this model are too large for the device ({reason}): lower "
            "batch_tokens or the widths of the model, or divide it by --mesh."
        )
        return 1
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="t2t-jax", description="Ablations of the Transformer.", allow_abbrev=False
    )
    add_commands(parser)
    arguments, rest = parser.parse_known_args(words)
    arguments.words = list(words)
    if rest:
        raise UsageError(_unknown(rest[0].partition("=")[0], arguments.parser))
    return arguments


def _unknown(word: str, parser: argparse.ArgumentParser) -> str:
    options = [o for o in parser._option_string_actions if o.startswith("--")]
    close = closest(word, options) if word.startswith("-") else ""
    hint = f"did you mean {close!r}?" if close else f"see {parser.prog} --help."
    what = f"there is no option {word!r} here" if word.startswith("-") else f"unexpected {word!r}"
    return f"{what}: {hint}"


if __name__ == "__main__":
    sys.exit(main())
