"""The code of a run: every definition that its config reaches, with a hash.

A definition is a function, class or constant at the top level of a module. A run reaches the
definitions that it starts from, and every definition that a reached one names. The registries
themselves are not followed, because the config says which of their entries a run uses: a new
mechanism, model or metric does not change the code of any other run.

What a study file defines (`t2t_jax.extend`) is a part of the code of the runs that use it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from t2t_jax import parts
from t2t_jax.attention import MECHANISMS, registry
from t2t_jax.config import Config, has
from t2t_jax.evaluation import metric
from t2t_jax.runs import syntax
from t2t_jax.runs.syntax import PACKAGE, Definition, content_hash

# Modules that cannot change a result: they report, store files, or declare configs, corpora and
# parts, whose values are hashed separately.
WITHOUT_EFFECT = (
    "config",
    "data.registry",
    "errors",
    "extend",
    "runs.claim",
    "runs.code",
    "runs.identity",
    "runs.names",
    "runs.provenance",
    "runs.published",
    "runs.store",
    "runs.study_file",
    "runs.syntax",
    "environment",
    "files",
    "parts",
    "training.hosts",
    "training.manifest",
    "training.progress",
    "training.trackers",
)
# Modules of kernels, which a run on a CPU uses only if its config asks for them.
KERNELS = (
    "ops.feed_forward",
    "ops.flash_attention",
    "ops.linear_attention",
    "ops.predicted_attention",
    "ops.sparse_attention",
    "ops.window_attention",
)
REGISTRIES = (
    Definition("attention.registry", "MECHANISMS"),
    Definition("evaluation.metric", "metric_of"),
    Definition("training.throughput", "_PEAK"),
)


def code_of(c: Config) -> dict[str, str]:
    """Returns every definition that a run of this config reaches, with its hash."""
    mechanisms = {
        piece
        for name in ("encoder_attention", "decoder_attention", "cross_attention")
        if has(c.model, name)
        for piece in registry.pieces(getattr(c.model, name))
    }
    corpus_metric = metric.metric_of(c.data.corpus)
    name = next(name for name, value in vars(metric).items() if value is corpus_metric)
    return dict(_code(c.model.architecture, frozenset(mechanisms), _parts(c), name))


def reached_from(where: str) -> dict[str, str]:
    """Returns every definition that a class or function of a file reaches, with its hash.

    Args:
      where: the class or function, as an entry of a table names it: `/PATH.py:name`.
    """
    return _hashes(_reached([_located("", where)]))


def digest(code: Mapping[str, str]) -> str:
    """Returns twelve hex digits that identify the whole code of a run."""
    return hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()[:12]


def used(code: Mapping[str, str], c: Config, device: str) -> dict[str, str]:
    """Returns the part of the code of a run that it can use on a device, such as `1 x cpu`."""
    kernels = "cpu" not in device or c.model.kernels == "fused"
    return {n: x for n, x in code.items() if kernels or n.rpartition(".")[0] not in KERNELS}


def changed(code: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Returns the definitions in which the code of two runs of one config differs."""
    different = (n for n in code.keys() | other.keys() if code.get(n) != other.get(n))
    return sorted(n for n in different if _has_effect(n))


def _has_effect(name: str) -> bool:
    """Returns whether an entry of a table, or a definition that an older version kept, matters."""
    return name.endswith("]") or name.rpartition(".")[0] not in WITHOUT_EFFECT


def conflict(code: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Returns whether a definition that both reach differs; others are not compared."""
    different = (name for name, value in code.items() if other.get(name, value) != value)
    return any(map(_has_effect, different))


def abbreviated(names: Sequence[str], kind: str = "definitions") -> str:
    """Returns the first three names, and the number of the remaining ones, as text."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more {kind}" if more > 0 else "")


def _parts(c: Config) -> frozenset[tuple[str, str]]:
    """Returns the entries of `parts` that a run uses, as (table, entry)."""
    tables = dict(norm="NORMS", qk_norm="NORMS", feed_forward="FEED_FORWARD", positions="POSITIONS")
    named = {
        (table, getattr(c.model, field)) for field, table in tables.items() if has(c.model, field)
    }
    if parts.SCHEDULES[c.training.schedule].code:  # those of this package are in `learning_rate`
        named.add(("SCHEDULES", c.training.schedule))
    return frozenset(named - {("NORMS", "none")})


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
        starts += [_located("attention", entry.where)]
        starts += [d for f in (entry.products, entry.gates) for d in _of_function(f)]
        entries[f"attention.registry.MECHANISMS[{text}]"] = content_hash(registry.attributes(text))
    for table, name in named_parts:
        part = getattr(parts, table)[name]
        starts += [_located("models", where) for where in part.code]
        entries[f"parts.{table}[{name}]"] = content_hash(part.facts)
    return _hashes(_reached(starts)) | entries


def _hashes(definitions: Iterable[Definition]) -> dict[str, str]:
    """Returns the hash of each definition, by its name."""
    return {str(d): _hash(d) for d in definitions}


@cache
def _hash(definition: Definition) -> str:
    return content_hash(syntax.parse(definition.module).definitions[definition.name])


def _reached(starts: Iterable[Definition]) -> set[Definition]:
    """Returns these definitions and all that they name, directly or through others."""
    reached: set[Definition] = set()
    pending = list(starts)
    while pending:
        definition = pending.pop()
        if definition not in reached:
            reached.add(definition)
            pending += _named_by(definition)
    return reached


@cache
def _named_by(definition: Definition) -> list[Definition]:
    """Returns the definitions of this package that a definition names."""
    module = syntax.parse(definition.module)
    named = []
    for statement in module.definitions[definition.name]:
        for name, attribute in syntax.free_names(statement):
            named.append(_resolve(definition.module, name))
            if attribute is not None:
                named.append(_resolve(_imported_module(module, name), attribute))
    return [d for d in named if d is not None]


def _resolve(module: str | None, name: str) -> Definition | None:
    """Returns the definition that a name means in a module; None if its code has no effect."""
    while module is not None and module not in WITHOUT_EFFECT:
        parsed = syntax.parse(module)
        if name in parsed.definitions:
            definition = Definition(module, name)
            return None if definition in REGISTRIES else definition
        module, name = parsed.imports.get(name, (None, name))
    return None


def _imported_module(module: syntax.Module, name: str) -> str | None:
    """Returns the module of this package that a name is bound to, if it is bound to one."""
    package, imported = module.imports.get(name, (None, ""))
    nested = f"{package}.{imported}".strip(".")
    return nested if package is not None and syntax.module_path(nested) else None


def _located(package: str, where: str) -> Definition:
    """Returns the definition that a table writes as `file:name`, or as `/PATH.py:name`."""
    module, _, name = where.rpartition(":")
    return Definition(module if syntax.is_file(module) else f"{package}.{module}", name)


def _of_function(function: Any) -> list[Definition]:
    """Returns the definition of a function, in a list; an empty list for a lambda of a registry."""
    module, name = function.__module__.removeprefix(f"{PACKAGE.name}."), function.__name__
    return [Definition(module, name)] if name in syntax.parse(module).definitions else []
