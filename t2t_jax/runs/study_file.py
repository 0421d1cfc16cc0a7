"""Study files: files outside of this package that define studies, mechanisms and other parts.

A study file may import modules beside it, at its top level; what they define counts as the file's.
A run that uses a part which such a file defines keeps a copy of the file, `study.py`, and of these
modules, `modules.json`. Commands that are given a run, not a study file, read the copies.
"""

import ast
import hashlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from t2t_jax import config
from t2t_jax.attention import choice
from t2t_jax.config import Config
from t2t_jax.errors import UsageError
from t2t_jax.extend import TABLE_OF, TABLES, in_files
from t2t_jax.files import write, write_json
from t2t_jax.runs import published

COPIES = COPY, MODULES = "study.py", "modules.json"
NOTHING = SimpleNamespace()  # the entry of a value that no table has
Entries = Mapping[str, Mapping[str, Any]]  # by table and name


class _Beside(MetaPathFinder, Loader):
    """Imports the modules beside a study file, or copies of them, while the file is executed."""

    def __init__(self, study: str, copies: Mapping[str, str] | None) -> None:
        self.study, self.copies, self.texts = study, copies, dict[str, str]()

    def _path(self, name: str) -> Path:
        return Path(self.study).with_name(f"{name}.py")

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        beside = self._path(fullname).is_file() if self.copies is None else fullname in self.copies
        return ModuleSpec(fullname, self) if beside and path is None else None

    def exec_module(self, module: ModuleType) -> None:
        name, path = module.__name__, self._path(module.__name__)
        text = self.texts[name] = _read(path) if self.copies is None else self.copies[name]
        vars(module).update(__file__=str(path), __study__=self.study)
        sys.modules[str(path)] = module
        exec(compile(text, str(path), "exec"), vars(module))


def load(
    path: Path, text: str | None = None, copies: Mapping[str, str] | None = None
) -> ModuleType:
    """Returns the module of a study file, which is executed once per process.

    Without its text, or `copies` of the modules beside it, by name, their files are read.

    Raises:
      UsageError: it cannot be read or executed, or defines a name that another file defines with
        other code. Then none of its entries are kept.
    """
    name = str(path.resolve())
    if name in sys.modules:
        return sys.modules[name]
    text = _read(path) if text is None else text
    module, before, beside = ModuleType(name), entries(), _Beside(name, copies)
    vars(module).update(__file__=name, __source__=text, __beside__=beside.texts)
    # Another study file may have imported a module of the same name from its own folder.
    for other in [x for x in sys.modules if hasattr(sys.modules[x], "__study__") and "/" not in x]:
        del sys.modules[other]
    sys.modules[name] = module
    sys.meta_path.insert(0, beside)
    try:
        exec(compile(text, name, "exec"), vars(module))
        _set_versions(before)
        _check_other_files(path, before)
    except Exception as error:
        forget(path, before)
        raise UsageError(_message(path, error)) from None
    finally:
        sys.meta_path.remove(beside)
    return module


def entries() -> Entries:
    """Returns the entries of all tables at present."""
    return {table: dict(of_table) for table, of_table in TABLES.items()}


def forget(path: Path, before: Entries) -> None:
    """Removes the modules of a study file, and restores the tables to earlier entries."""
    name = str(path.resolve())
    for other in [x for x, m in sys.modules.items() if getattr(m, "__study__", "") == name]:
        del sys.modules[other]
    sys.modules.pop(name, None)
    for table, of_table in TABLES.items():
        of_table.clear()
        of_table.update(before[table])


def file_of(c: Config) -> str | None:
    """Returns the path of the study file that defines what a config names; None if none does."""
    flat = config.flatten(c)
    files = {
        _study(where): field
        for field, table in TABLE_OF.items()
        for piece in choice.pieces(flat[field])  # only attention may name several, for layers
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
    """Returns the text of a config's study file and of modules beside it; empty without one."""
    path = file_of(c)
    return "\n".join(_texts(*contents(path))) if path else ""


def keep_copy(directory: Path, path: str) -> None:
    """Writes a copy of a loaded study file into the directory of a run."""
    text, beside = contents(path)
    write(directory / COPY, text)
    if beside:
        write_json(directory / MODULES, beside)


def copy_to(folder: Path, path: Path) -> None:
    """Writes a loaded study file and the modules beside it to a folder, under their own names."""
    text, beside = contents(str(path.resolve()))
    for name, content in {path.stem: text, **beside}.items():
        write(folder / f"{name}.py", content)


def load_copy(directory: Path) -> bool:
    """Loads the copy of a study file that a run keeps; returns whether there is one."""
    if copy := _copy(directory):
        load(directory / COPY, *copy)
    return bool(copy)


def _copy(directory: Path) -> tuple[str, dict[str, str]] | None:
    """Returns the texts that `keep_copy` wrote, like `contents`; None if there are none."""
    text = published.read(directory, COPY)
    return None if text is None else (text, published.read(directory, MODULES) or {})


def check_copy(directory: Path, c: Config) -> None:
    """Raises an error if a config's loaded study file has other code than the copy of a run."""
    path, copy = file_of(c), _copy(directory)
    if path and copy and _parts(*copy) != _parts(*contents(path)):
        raise UsageError(
            f"{directory} was trained with other code than the file {path} has now, and one "
            "process cannot use both: use the run without that file, or train it again."
        )


def _parts(text: str, beside: Mapping[str, str]) -> list[str]:
    """Returns the statements of a file and of modules beside it, without comments and studies."""
    statements = (ast.dump(x) for text in _texts(text, beside) for x in ast.parse(text).body)
    return [x for x in statements if "'study'" not in x.partition("decorator_list=")[2]]


def _study(where: str) -> str:
    """Returns the study file to which `/PATH.py:name` belongs."""
    path = where.rpartition(":")[0]
    return getattr(sys.modules[path], "__study__", path)


def contents(path: str) -> tuple[str, dict[str, str]]:
    """Returns the text of a loaded study file, and the texts of the modules beside it by name."""
    module = sys.modules[path]
    text = getattr(module, "__source__", None) or _read(Path(path))
    return text, getattr(module, "__beside__", {})


def _texts(text: str, beside: Mapping[str, str]) -> list[str]:
    return [text, *(x for _, x in sorted(beside.items()))]


def _digest(where: str) -> str:
    """Returns twelve hex digits of the code of the study file of `/PATH.py:name`."""
    trees = map(ast.parse, _texts(*contents(_study(where))))  # without comments and layout
    return hashlib.sha256("".join(map(ast.dump, trees)).encode()).hexdigest()[:12]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: convert it.") from None


def _message(path: Path, error: Exception) -> str:
    """Returns why a study file or a module beside it cannot be loaded, with the line."""
    folder = path.resolve().parent
    frames = [(x.filename, x.lineno) for x in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
        error = SyntaxError(error.msg)
    frames = [(file, line) for file, line in frames if Path(file).parent == folder]
    line = f", line {frames[-1][1]}" if frames else ""
    path = path.with_name(Path(frames[-1][0]).name) if frames else path
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
    ours = {_digest(f"{path.resolve()}:")}
    for table, of_table in TABLES.items():
        for name, entry in of_table.items():
            old = before[table].get(name, entry)
            if old is not entry and {*map(_digest, in_files(old))} != ours:
                other = in_files(old)[0].rpartition(":")[0]
                raise UsageError(
                    f"{path} and {other} define {table} {name!r} with different code: rename one."
                )
