"""Lines of UTF-8 text, from files and standard input."""

import io
import os
import select
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from t2t_jax.data import parallel
from t2t_jax.errors import UsageError

_PAUSE = 0.2  # seconds to wait for further lines before those that have arrived are translated


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a text file, which may be compressed, as the corpus `text` reads it."""
    try:
        return _decoded(str(path), parallel.lines_of(path), 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None


def arriving_lines(name: str, file: BinaryIO) -> Iterator[list[str]]:
    """Yields the lines of a stream in batches, each of the lines that have arrived until then."""
    content, number, ended = bytearray(), 1, False
    while not ended:
        while b"\n" not in content or select.select([file], [], [], _PAUSE)[0]:
            read = os.read(file.fileno(), 1 << 20)
            content += read
            if ended := not read:
                break
        if number == 1:
            parallel.refuse_utf16(name, bytes(content[: 1 << 16]))
            content = content.removeprefix(b"\xef\xbb\xbf")
        whole = len(content) if ended else content.rindex(b"\n") + 1
        if lines := _decoded(name, io.BytesIO(content[:whole]), number):
            yield lines
        number, content = number + len(lines), content[whole:]


def _decoded(name: str, lines: Iterable[bytes], first: int) -> list[str]:
    """Returns lines as text; only the newline separates lines."""
    out = []
    for number, line in enumerate(lines, first):
        try:
            out.append(line.removesuffix(b"\n").decode())
        except UnicodeDecodeError:
            raise UsageError(f"{name}, line {number}, is not UTF-8: convert it.") from None
    return out
