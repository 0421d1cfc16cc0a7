"""Lines of UTF-8 text, from files and standard input."""

import codecs
import gzip
import zlib
from pathlib import Path

from t2t_jax.errors import UsageError


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a text file, which may be compressed with gzip."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not a complete gzip file"
        raise UsageError(f"cannot read {path}: {reason}.") from None
    return split_lines(str(path), content)


def split_lines(name: str, content: bytes) -> list[str]:
    """Returns the lines of a text; only the newline separates lines.

    Args:
      name: of the text, for the error message.

    Raises:
      UsageError: a line is not UTF-8.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    try:
        return [line.decode() for line in lines]
    except UnicodeDecodeError:
        number = next(i for i, line in enumerate(lines, 1) if not _is_utf8(line))
        raise UsageError(f"{name}, line {number}, is not UTF-8: convert it.") from None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
