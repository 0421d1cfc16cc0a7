"""The output of `t2t-jax list`: the entries of a kind, the rows of a study, the runs of a store."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.attention import MECHANISMS
from t2t_jax.config import SECTIONS, Config
from t2t_jax.errors import UsageError, near
from t2t_jax.evaluation.metrics import metric_of
from t2t_jax.extend import PARTS
from t2t_jax.recipes import RECIPES
from t2t_jax.runs import names, published, results, store, view
from t2t_jax.runs.results import State
from t2t_jax.runs.view import Standing
from t2t_jax.study.declaration import PAPER, Study, declared, find, path_of
from t2t_jax.study.presets import PRESETS, shrink
from t2t_jax.terminal import align, warn


def listing(what: str, home: Path | None) -> list[str]:
    """Returns lines about a kind of entry or a study."""
    if home is not None:
        raise UsageError("--store is for the runs of a store: `list runs --store DIR` shows them.")
    if path_of(what) or what in (known := declared()):
        return _rows(find(what))
    if topic := _TOPICS.get(what):
        raise UsageError(f"there is no list of {what}: `t2t-jax help {topic}` describes them.")
    if what and what not in _LISTS:
        hint = near(what, ["runs", *_LISTS, *known])
        raise UsageError(f"there is nothing called {what!r} to list: {hint}")
    if what:
        return _LISTS[what]()
    runnable = ("studies", "presets", "recipes")
    return [line for kind in runnable for line in (kind, *(f"  {x}" for x in _LISTS[kind]()))]


def _presets() -> list[str]:
    lines = []
    for name, preset in PRESETS.items():
        lines.append(f"{name:18}{preset.about}")
        fields, indent = config.describe(shrink(Config(), {}, preset), Config()), " " * 18
        lines += textwrap.wrap(fields, 100, initial_indent=indent, subsequent_indent=indent)
    return [*lines, "The fields are Table 3's base; the same factors scale all other rows."]


def _rows(study: Study) -> list[str]:
    """Returns a study's rows with the paper's values and their changes."""
    width = max(len(row.name) for row in study.rows) + 2
    columns = [n for n in PAPER if any(n in row.paper for row in study.rows)]
    titles = [f"{'params (M)' if n == 'params' else n:>12}" for n in columns]
    heading = f"{'':{width}}{''.join(titles)}   (paper)"
    lines = [heading] if columns else []
    for row in study.rows:
        cells = "".join(f"{row.paper.get(n, ''):>12}" for n in columns)
        listed = (f"{n}={v}" for n, v in row.changes.items())
        changes = "" if row.name_lists_changes else " ".join(listed)
        lines.append(f"{row.name:{width}}{cells}{changes:>{len(changes) + 2}}".rstrip())
    return lines


def list_runs(home: Path) -> tuple[list[str], str]:
    """Returns a line for each name of each run of a store, and a line on how many have ended."""
    rows, standings = list[tuple[str, ...]](), list[Standing]()
    for directory, c in results.stored(home, warn):
        try:
            state, own = results.state(directory, warn), names.names(directory)
            standing = view.standing(state.status, c, state.records)
            cells = _cells(directory, c, state, standing.record)
        except UsageError as error:
            warn(str(error))
            continue
        standings.append(standing)
        rows += [(name, *cells) for name in own]
    begun = {*published.directories(home)}
    for directory in sorted({x.parent for x in home.glob(f"*/{published.FAILURE}")} - begun):
        own, why = names.names(directory), f"{directory}: {store.read_failure(directory)}"
        standings.append(Standing("failed", 0, 0, 0.0, {}))
        rows += [(name, "failed", "", "", "", why) for name in own]
        begun.add(directory)
    waiting = {x.parent for x in home.glob(f"*/{names.FILE}")} - begun
    summary = view.summary(standings, len(waiting)) if standings or waiting else ""
    if not rows:
        return [f"{home} has no runs."], summary
    heading = "run", "status", "step", "dev PPL", "scores", "location"
    table = [heading, *sorted(rows)]
    aligned = align([row[:-1] for row in table])
    width = max(map(len, aligned))
    return [f"{x:{width}}  {row[-1]}" for x, row in zip(aligned, table, strict=True)], summary


def _cells(directory: Path, c: Config, state: State, last: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the columns of a run after its name; `last` has the last value of each quantity."""
    metric = metric_of(c.data.corpus)
    ppl = state.result.get("dev_perplexity", last.get("dev_perplexity"))
    scores: dict[str, Any] = state.result.get("scores", {})
    texts = [f"{split} {s[metric.key]['score']:.2f}" for split, s in scores.items()]
    location = str(published.location(directory))
    return (
        state.status,
        f"{state.step:,}/{c.training.steps:,}",
        "" if ppl is None else f"{ppl:.3f}",
        f"{metric.name} {', '.join(texts)}" if texts else "",
        location if state.failure is None else f"{location}: {state.failure}",
    )


def _fields() -> list[str]:
    out = []
    for section, cls in SECTIONS.items():
        out.append(section)
        for f in fields(cls):
            kind = config.field_type(f.name)
            choices = f" [{'|'.join(kind)}]" if isinstance(kind, tuple) else ""
            out.append(f"  {f.name:20}{f.default!s:20}{f.metadata['help']}{choices}")
    return out


def _mechanisms() -> list[str]:
    out = []
    for name, entry in MECHANISMS.items():
        options = ",".join(f"{n}={v}" for n, v in entry.options.items())
        out.append(
            f"{name + ':' * bool(options) + options:32}{', '.join(entry.roles):25}{entry.about}"
        )
    return out


def _parts() -> list[str]:
    out = []
    for field, table in PARTS.items():
        out += [field, *(f"  {name:20}{part.about}" for name, part in table.items())]
    return out


_TOPICS = {"architectures": "architecture", "corpora": "corpus", "metrics": "metric"}
_LISTS: dict[str, Callable[[], list[str]]] = {
    "fields": _fields,
    "mechanisms": _mechanisms,
    "parts": _parts,
    "presets": _presets,
    "studies": lambda: [f"{name:18}{title}" for name, (title, _) in declared().items()],
    "recipes": lambda: [f"{name:18}{about}" for name, (about, _) in RECIPES.items()],
}
