"""What is printed for the person at the keyboard: lines, progress, durations, columns."""

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

PIPE_SECONDS = 60.0  # between lines about what is going on, in a pipe


def say(line: str) -> None:
    """Prints progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Prints what was left out or assumed to standard error."""
    say(f"t2t-jax: {line}")


class Progress:
    """Prints to a stream: on a terminal one line that is overwritten, in a pipe plain lines."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = sys.stderr if out is None else out
        self.live = self.out.isatty()
        self.last = 0.0
        self.open = False  # whether the cursor is behind a line that `show` wrote

    def show(self, line: str) -> None:
        """Shows a line that the next one overwrites, at most one a second.

        In a pipe, it waits until a minute has passed since the last line of any kind.
        """
        if time.monotonic() - self.last < (1 if self.live else PIPE_SECONDS):
            return
        self.last, self.open = time.monotonic(), self.live
        if self.live:  # a line that is wrapped would not be overwritten as a whole
            line = line[: shutil.get_terminal_size().columns - 1]
        self._write(line, "" if self.live else "\n")

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._write(line, "\n")
        self.open = False
        if not self.live:
            self.last = time.monotonic()

    def _write(self, line: str, end: str) -> None:
        self.out.write("\r\x1b[K" * self.live + line + end)
        self.out.flush()

    def close(self) -> None:
        """Ends a line that `show` wrote, so that further output begins a new one."""
        if self.open:
            print(file=self.out, flush=True)
            self.open = False


def duration(seconds: float) -> str:
    """Seconds as text: 12 s, 3 min 05 s, 2 h 07 min."""
    whole, minutes = round(seconds), round(seconds / 60)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of cells as lines; all columns but the first are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [x.rjust(width) for x, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
