"""Study files: files outside of this package that define studies, mechanisms and other parts.

A run that uses a part which such a file defines keeps a copy of the file, `study.py`. Commands that
are given a run, not a study file, read the copy.
"""

import ast
import hashlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from t2t_jax import config
from t2t_jax.attention import registry
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.extend import TABLE_OF, TABLES, in_files
from t2t_jax.files import write
from t2t_jax.runs import published

COPY = "study.py"
NOTHING = SimpleNamespace()  # the entry of a value that no table has
Entries = Mapping[str, Mapping[str, Any]]  # by table and name


def load(path: Path, text: str | None = None) -> ModuleType:
    """Returns the module of a study file, which is executed once per process.

    Args:
      text: its content; None reads the path.

    Raises:
      UsageError: it cannot be read or executed, or defines a name that another file defines with
        other code. Then none of its entries are kept.
    """
    name = str(path.resolve())
    if name in sys.modules:
        return sys.modules[name]
    text = _read(path) if text is None else text
    module, before = ModuleType(name), entries()
    vars(module).update(__file__=name, __source__=text)
    sys.modules[name] = module
    try:
        exec(compile(text, name, "exec"), vars(module))
        _set_versions(before)
        _check_other_files(path, before)
    except Exception as error:
        forget(path, before)
        raise UsageError(_message(path, error)) from None
    return module


def entries() -> Entries:
    """Returns the entries of all tables at present."""
    return {table: dict(of_table) for table, of_table in TABLES.items()}


def forget(path: Path, before: Entries) -> None:
    """Removes the module of a study file, and restores the tables to earlier entries."""
    sys.modules.pop(str(path.resolve()), None)
    for table, of_table in TABLES.items():
        of_table.clear()
        of_table.update(before[table])


def file_of(c: Config) -> str | None:
    """Returns the path of the study file that defines what a config names; None if none does.

    Raises:
      UsageError: several files do, as a run keeps a copy of one.
    """
    flat = config.flatten(c)
    files = {
        where.rpartition(":")[0]: field
        for field, table in TABLE_OF.items()
        for piece in registry.pieces(flat[field])  # only attention may name several, for layers
        for where in in_files(TABLES[table].get(piece.partition(":")[0], NOTHING))
    }
    if len(files) > 1:
        (one, field), (other, another) = list(files.items())[:2]
        raise UsageError(
            f"{field} is declared in {one} and {another} in {other}, but a run keeps a copy of one "
            "file: declare both in the same one."
        )
    return next(iter(files), None)


def text_of(c: Config) -> str:
    """Returns the text of the study file that defines what a config names; empty if none does."""
    path = file_of(c)
    return _text(path) if path else ""


def keep_copy(directory: Path, path: str) -> None:
    """Writes a copy of a loaded study file into the directory of a run."""
    write(directory / COPY, _text(path))


def load_copy(directory: Path) -> bool:
    """Loads the copy of a study file that a run keeps; returns whether there is one.

    Raises:
      UsageError: as `load`.
    """
    text = published.read(directory, COPY)
    if text is not None:
        load(directory / COPY, text)
    return text is not None


def _text(path: str) -> str:
    """Returns the text of a loaded study file, as it was executed."""
    return getattr(sys.modules[path], "__source__", None) or _read(Path(path))


def _digest(where: str) -> str:
    """Returns twelve hex digits of the code of the file that `/PATH.py:name` names."""
    tree = ast.parse(_text(where.rpartition(":")[0]))  # without comments and layout
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: convert it.") from None


def _message(path: Path, error: Exception) -> str:
    """Returns why a study file cannot be loaded, with the line."""
    name = str(path.resolve())
    lines = [x.lineno for x in traceback.extract_tb(error.__traceback__) if x.filename == name]
    if isinstance(error, SyntaxError) and error.filename == name:
        lines, error = [error.lineno], SyntaxError(error.msg)
    line = f", line {lines[-1]}" if lines else ""
    if isinstance(error, UsageError):
        return f"{path}{line}: {error}" if line else str(error)
    return f"{path} cannot be loaded ({type(error).__name__}: {error}{line}): correct it."


def _set_versions(before: Entries) -> None:
    """Sets the version of each new corpus to a digest of its code, so that changed code counts."""
    corpora = TABLES["corpus"]
    for name in [name for name, entry in corpora.items() if before["corpus"].get(name) != entry]:
        version = _digest(corpora[name].where)
        corpora[name] = replace(corpora[name], version=version)


def _check_other_files(path: Path, before: Entries) -> None:
    """Raises an error if a new entry replaces an entry of another file with other code."""
    for table, of_table in TABLES.items():
        for name, entry in of_table.items():
            old = before[table].get(name, entry)
            if old is not entry and _content(old) != _content(entry):
                other = in_files(old)[0].rpartition(":")[0]
                raise UsageError(
                    f"{path} and {other} define {table} {name!r} with different code: rename one."
                )


def _content(entry: Any) -> dict[str, Any]:
    """Returns the values of an entry that have an effect; code hashes take the place of paths."""
    wheres = in_files(entry)
    return {
        field: _digest(x) if isinstance(x, str) and x in wheres else x
        for field, x in vars(entry).items()
        if field != "about" and not callable(x)
    }
