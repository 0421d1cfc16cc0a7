"""Modules as syntax trees: their definitions, and the names that these use.

A module of this package is named by its path in the package, `training.step`; a file outside of it
(`t2t_jax.extend`) by its absolute path.

The trees leave out what cannot change a number: comments, layout, docstrings, annotations, the
text of errors and calls that only report. Two definitions with the same tree have the same hash.
"""

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[1]
_REPORTS = ("say", "show", "report", "warn")  # functions whose calls are left out
# Decorators of `t2t_jax.extend` are left out, as the entries that they make are hashed separately.
_DECORATORS = ("mechanism", "norm", "feed_forward", "positions", "schedule", "corpus")


class Definition(NamedTuple):
    """A function, class or constant at the top level of a module: `training.step`, `make_step`."""

    module: str
    name: str

    def __str__(self) -> str:
        """Its name; the path of a file is left out, so that the file can be moved."""
        return f"file:{self.name}" if is_file(self.module) else f"{self.module}.{self.name}"


class Module(NamedTuple):
    """The definitions and imports of a parsed module.

    Attributes:
      definitions: top-level name -> the statements that define it.
      imports: imported name -> (module, name in that module), for modules of this package.
    """

    definitions: Mapping[str, list[ast.stmt]]
    imports: Mapping[str, tuple[str, str]]


@cache
def parse(name: str) -> Module:
    """Returns a parsed module; `training.step` names t2t_jax/training/step.py."""
    tree = _Simplifier().visit(ast.parse(_text(name)))
    imports: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE.name}."):
            source = (node.module or "").removeprefix(PACKAGE.name).strip(".")
            imports |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for defined in _defined_names(statement):
            definitions.setdefault(defined, []).append(statement)
    for statement in tree.body:
        if (owner := _extended_name(statement)) in definitions:
            definitions[owner].append(statement)
    return Module(definitions, imports)


def is_file(module: str) -> bool:
    """Returns whether a module is a file outside of this package."""
    return module.startswith("/")


def _text(module: str) -> str:
    """Returns the text of a module; that of a loaded study file is what was executed."""
    if is_file(module):
        executed = getattr(sys.modules.get(module), "__source__", None)
        return Path(module).read_text("utf-8") if executed is None else executed
    path = module_path(module)
    assert path is not None, module
    return path.read_text("utf-8")


def module_path(module: str) -> Path | None:
    """Returns the file of a module of this package, or None if there is no such module."""
    stem = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.exists()), None)


def free_names(node: ast.AST) -> set[tuple[str, str | None]]:
    """Returns the (name, attribute) pairs that a node uses and does not bind.

    The attribute is None if the name is used by itself.
    """
    if isinstance(node, ast.Name):
        return {(node.id, None)}
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return {(node.value.id, node.attr)}
    free = set().union(*map(free_names, ast.iter_child_nodes(node)))
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        return free
    bound = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
    for inner in _own_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            bound.add(inner.name)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            bound.add(inner.id)
    return {(name, attribute) for name, attribute in free if name not in bound}


def content_hash(content: Any) -> str:
    """Returns ten hex digits of the sha256 of syntax trees or plain data."""
    return hashlib.sha256(repr(_as_lists(content)).encode()).hexdigest()[:10]


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a function, without those of the functions nested in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from _own_nodes(child)


def _defined_names(statement: ast.stmt) -> set[str]:
    """Returns the top-level names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    stores = (n for n in ast.walk(statement) if isinstance(getattr(n, "ctx", None), ast.Store))
    return {n.id for n in stores if isinstance(n, ast.Name)}


def _extended_name(statement: ast.stmt) -> str:
    """Returns `f` for a statement that adds to f: `f.defvjp(...)`, or a function under `@f.x`."""
    calls: list[ast.expr] = []
    if isinstance(statement, ast.FunctionDef):
        calls = statement.decorator_list
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        calls = [statement.value.func]
    owners = [c.value for c in calls if isinstance(c, ast.Attribute)]
    return next((o.id for o in owners if isinstance(o, ast.Name)), "")


def _extends(decorator: ast.expr) -> bool:
    """Returns whether a decorator is of `t2t_jax.extend`, as in `@mechanism("cosine")`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return isinstance(decorator, ast.Call) and name in _DECORATORS


class _Simplifier(ast.NodeTransformer):
    """Removes what cannot change a number."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [d for d in node.decorator_list if not _extends(d)]
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = [d for d in node.decorator_list if not _extends(d)]
        return self._without_docstring(node)

    def _without_docstring(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Expr(node.target)
        return self.generic_visit(ast.Assign([node.target], node.value))

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise()

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        called = node.value.func if isinstance(node.value, ast.Call) else None
        if isinstance(called, ast.Attribute | ast.Name):
            name = called.attr if isinstance(called, ast.Attribute) else called.id
            if name in _REPORTS:
                return None
        return self.generic_visit(node)


def _as_lists(node: Any) -> Any:
    """Returns a syntax tree as nested lists that are the same in every version of Python."""
    if isinstance(node, ast.AST):
        fields = [(n, _as_lists(x)) for n, x in ast.iter_fields(node) if x is not None and x != []]
        return [type(node).__name__, *(f for f in fields if f[0] not in ("kind", "ctx"))]
    return [_as_lists(x) for x in node] if isinstance(node, list) else node
