"""The code that decides a run's result: every definition that its config reaches, with a hash.

A definition is a function, class or constant at the top level of a module. It is reached if a run
starts from it, or if a reached definition names it. The hash leaves out what decides no number:
comments, layout, docstrings, annotations, the text of errors and what is reported. Which entry of a
registry a run uses, its config says: the registries themselves are not followed, so that a new
mechanism, model or metric changes no other run's code.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax import parts
from t2t_jax.attention import MECHANISMS, registry
from t2t_jax.config import Config, Model, has
from t2t_jax.evaluation import metric

PACKAGE = Path(__file__).parents[1]
# They report, store files, or declare configs and parts, whose values are hashed on their own.
WITHOUT_EFFECT = (
    "config",
    "errors",
    "runs.store",
    "runs.code",
    "runs.identity",
    "runs.names",
    "runs.published",
    "environment",
    "files",
    "parts",
    "training.hosts",
    "training.manifest",
    "training.progress",
)
_REPORTS = ("say", "show", "report", "warn")


class Definition(NamedTuple):
    """A name at the top level of a module, such as `training.step`, `make_step`."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


REGISTRIES = (
    Definition("attention.registry", "MECHANISMS"),
    Definition("evaluation.metric", "metric_of"),
    Definition("training.throughput", "_PEAK"),
)


def code_of(c: Config) -> dict[str, str]:
    """Every definition that a run of this config reaches, with ten hex digits of its sha256."""
    mechanisms = {
        getattr(c.model, name)
        for name in ("encoder_attention", "decoder_attention", "cross_attention")
        if has(c.model, name)
    }
    scored = metric.metric_of(c.data.corpus)
    name = next(name for name, value in vars(metric).items() if value is scored)
    return dict(_code(c.model.architecture, frozenset(mechanisms), _parts(c.model), name))


def _parts(c: Model) -> frozenset[tuple[str, str]]:
    """The parts of `parts` that a model has, as (table, entry)."""
    tables = dict(norm="NORMS", qk_norm="NORMS", feed_forward="FEED_FORWARD", positions="POSITIONS")
    named = {(table, getattr(c, field)) for field, table in tables.items() if has(c, field)}
    return frozenset(named - {("NORMS", "none")})


def digest(code: Mapping[str, str]) -> str:
    """Twelve hex digits that stand for the whole of a run's code."""
    return hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()[:12]


def changed(code: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The definitions in which the code of two runs of one config differs."""
    return sorted(n for n in code.keys() | other.keys() if code.get(n) != other.get(n))


def conflict(code: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a definition that both reach differs: two configs need not reach the same ones."""
    return any(other.get(name, value) != value for name, value in code.items())


def several(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more definitions" if more > 0 else "")


@cache
def _code(
    architecture: str,
    mechanisms: frozenset[str],
    named_parts: frozenset[tuple[str, str]],
    metric_name: str,
) -> dict[str, str]:
    starts = [
        Definition("runs.execution", "execute"),
        Definition("data.cache", "open_dataset"),
        Definition("evaluation.metric", metric_name),
        _located("models", parts.ARCHITECTURES[architecture].where),
        _located("models", parts.ARCHITECTURES[architecture].products),
    ]
    entries = {}
    for text in mechanisms:
        entry = MECHANISMS[registry.parse(text)[0]]
        starts += [_located("attention", entry.where), *_origin(entry.products)]
        entries[f"attention.registry.MECHANISMS[{text}]"] = _hash(registry.attributes(text))
    for table, name in named_parts:
        part = getattr(parts, table)[name]
        starts += [_located("models", where) for where in part.code]
        entries[f"parts.{table}[{name}]"] = _hash(part.facts)
    return {
        str(d): _hash(_module(d.module).definitions[d.name]) for d in _reached(starts)
    } | entries


def _reached(starts: Iterable[Definition]) -> set[Definition]:
    """The definitions that these name, directly or through others, and themselves."""
    reached: set[Definition] = set()
    left = list(starts)
    while left:
        definition = left.pop()
        if definition not in reached:
            reached.add(definition)
            left += _names(definition)
    return reached


@cache
def _names(definition: Definition) -> list[Definition]:
    """The definitions of this package that a definition names."""
    module = _module(definition.module)
    out = []
    for statement in module.definitions[definition.name]:
        for name, attribute in _free(statement):
            out.append(_resolve(definition.module, name))
            if attribute is not None:
                out.append(_resolve(_imported_module(module, name), attribute))
    return [d for d in out if d is not None]


def _free(node: ast.AST) -> set[tuple[str, str | None]]:
    """Names, with the attribute taken of each, that a function does not bind itself."""
    if isinstance(node, ast.Name):
        return {(node.id, None)}
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return {(node.value.id, node.attr)}
    free = set().union(*map(_free, ast.iter_child_nodes(node)))
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        return free
    bound = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
    for inner in _own(node):
        if isinstance(inner, ast.FunctionDef):
            bound.add(inner.name)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            bound.add(inner.id)
    return {(name, attribute) for name, attribute in free if name not in bound}


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but not in the functions within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from _own(child)


def _resolve(module: str | None, name: str) -> Definition | None:
    """What a name means in a module; None if it is not a definition whose code counts."""
    while module is not None and module not in WITHOUT_EFFECT:
        read = _module(module)
        if name in read.definitions:
            definition = Definition(module, name)
            return None if definition in REGISTRIES else definition
        module, name = read.imports.get(name, (None, name))
    return None


def _imported_module(module: "_Module", name: str) -> str | None:
    """The module of this package that a name stands for."""
    package, imported = module.imports.get(name, (None, ""))
    nested = f"{package}.{imported}".strip(".")
    return nested if package is not None and _path(nested) else None


class _Module(NamedTuple):
    """A module as its text has it.

    Attributes:
      definitions: the statements that make each top-level name.
      imports: each imported name, as (module, name in it); modules of this package alone.
    """

    definitions: Mapping[str, list[ast.stmt]]
    imports: Mapping[str, tuple[str | None, str]]


@cache
def _module(name: str) -> _Module:
    path = _path(name)
    assert path is not None, name
    tree = _Essence().visit(ast.parse(path.read_text()))
    imports: dict[str, tuple[str | None, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE.name}."):
            source = (node.module or "").removeprefix(PACKAGE.name).strip(".")
            imports |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for name in _defined(statement):
            definitions.setdefault(name, []).append(statement)
    for statement in tree.body:
        if (owner := _completed(statement)) in definitions:
            definitions[owner].append(statement)
    return _Module(definitions, imports)


def _defined(statement: ast.stmt) -> set[str]:
    """The top-level names that a statement makes."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    stores = (n for n in ast.walk(statement) if isinstance(getattr(n, "ctx", None), ast.Store))
    return {n.id for n in stores if isinstance(n, ast.Name)}


def _completed(statement: ast.stmt) -> str:
    """The name that a statement such as `f.defvjp(...)`, or a decorator of `f`, adds to."""
    calls: list[ast.expr] = []
    if isinstance(statement, ast.FunctionDef):
        calls = statement.decorator_list
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        calls = [statement.value.func]
    owners = [c.value for c in calls if isinstance(c, ast.Attribute)]
    return next((o.id for o in owners if isinstance(o, ast.Name)), "")


class _Essence(ast.NodeTransformer):
    """Leaves out what decides no number."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
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


def _hash(content: Any) -> str:
    return hashlib.sha256(repr(_plain(content)).encode()).hexdigest()[:10]


def _plain(node: Any) -> Any:
    """A syntax tree as nested lists that every version of Python makes alike."""
    if isinstance(node, ast.AST):
        fields = [(n, _plain(x)) for n, x in ast.iter_fields(node) if x is not None and x != []]
        return [type(node).__name__, *(f for f in fields if f[0] not in ("kind", "ctx"))]
    return [_plain(x) for x in node] if isinstance(node, list) else node


def _path(module: str) -> Path | None:
    stem = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.exists()), None)


def _located(package: str, where: str) -> Definition:
    """Of `file:name`, as registries write it."""
    module, _, name = where.partition(":")
    return Definition(f"{package}.{module}", name)


def _origin(function: Any) -> list[Definition]:
    """The definition of a function; none if it is a lambda of a registry."""
    module, name = function.__module__.removeprefix(f"{PACKAGE.name}."), function.__name__
    return [Definition(module, name)] if name in _module(module).definitions else []
