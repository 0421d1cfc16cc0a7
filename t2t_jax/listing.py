"""The output of `t2t-jax list`: the entries of a kind, the rows of a study, the runs of a store."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.attention import MECHANISMS
from t2t_jax.config import SECTIONS, Config
from t2t_jax.errors import UsageError, near
from t2t_jax.extend import PARTS
from t2t_jax.recipes import RECIPES

if TYPE_CHECKING:
    from t2t_jax.study.declaration import Row, Study
    from t2t_jax.study.presets import Preset


def listing(what: str, format: str, home: Path | None) -> list[str]:
    """Returns lines about a kind of entry, a study or the runs of a store.

    Args:
      what: `runs`, a kind of entry, or a study; empty for everything that can be run.
      home: the store that `runs` lists; None means the directory `runs`.

    Raises:
      UsageError: there is nothing with that name, or it is not available as JSON.
    """
    from t2t_jax.study.declaration import find, path_of, study_files

    if home is not None and what != "runs":
        raise UsageError("--store is for the runs of a store: `list runs --store DIR` shows them.")
    if path_of(what) or what in (known := study_files()):
        return _rows(find(what), format)
    if topic := _TOPICS.get(what):
        raise UsageError(f"there is no list of {what}: `t2t-jax help {topic}` describes them.")
    if what and what != "runs" and what not in _LISTS:
        hint = near(what, ["runs", *_LISTS, *known])
        raise UsageError(f"there is nothing called {what!r} to list: {hint}")
    if format != "text":
        raise UsageError(f"--format {format} is for the rows of a study, as in `list table3`.")
    if what == "runs":
        from t2t_jax.runs import overview

        return overview.lines(home or Path("runs"))
    if what:
        return _LISTS[what]()
    runnable = ("studies", "presets", "recipes")
    return [line for kind in runnable for line in (kind, *(f"  {x}" for x in _LISTS[kind]()))]


def _studies() -> list[str]:
    from t2t_jax.study.declaration import studies

    return [f"{s.name:18}{s.title}: {len(s.rows)} rows" for s in studies().values()]


def _presets() -> list[str]:
    from t2t_jax.study.presets import PRESETS, shrink

    lines = []
    for name, preset in PRESETS.items():
        lines.append(f"{name:18}{preset.about}")
        fields = config.describe(shrink(Config(), {}, preset), Config())
        for text in (fields, *_agreement(preset)):
            indent = " " * 18
            lines += textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=indent)
    return [
        *lines,
        "The fields are Table 3's base; the same factors scale all other rows.",
    ]


def _agreement(preset: "Preset") -> list[str]:
    """Says how far the stored Table 3 of a preset, if there is one, agrees with the paper's."""
    from t2t_jax.study import agreement, collecting, comparison
    from t2t_jax.study.declaration import EXPERIMENTS, find
    from t2t_jax.study.requests import Request

    home = EXPERIMENTS / "results" / f"table3-{preset.name}"
    if not home.is_dir():
        return []
    grid = Request("table3", preset.name).grid(find("table3"), home)
    lines = comparison.compare_with_base(grid, collecting.collect(grid, mix=True))
    runs = sum(len(line.runs) for line in lines)
    taus = (f"{x.tau:.2f} ({x.metric})" for x in agreement.agreements(grid, lines))
    return [
        f"Kendall's tau of Table 3 with the paper's: {', '.join(taus)}; "
        f"{runs} runs in experiments/results/{home.name}."
    ]


def _rows(study: "Study", format: str) -> list[str]:
    """Returns a study's rows with the paper's values and their changes; JSON has configs, too."""
    from t2t_jax.study.declaration import PAPER

    if format == "json":
        return json.dumps([_row_record(study, row) for row in study.rows], indent=1).split("\n")
    width = max(len(row.name) for row in study.rows) + 2
    columns = [n for n in PAPER if any(n in row.paper for row in study.rows)]
    names = [f"{'params (M)' if n == 'params' else n:>12}" for n in columns]
    heading = f"{'':{width}}{''.join(names)}   (paper)"
    lines = [heading] if columns else []
    for row in study.rows:
        cells = "".join(f"{row.paper.get(n, ''):>12}" for n in columns)
        listed = (f"{n}={v}" for n, v in row.changes.items())
        changes = "" if row.name_lists_changes else " ".join(listed)
        lines.append(f"{row.name:{width}}{cells}{changes:>{len(changes) + 2}}".rstrip())
    return lines


def _row_record(study: "Study", row: "Row") -> dict[str, Any]:
    """Returns a row as JSON, at the paper's scale."""
    from t2t_jax.study.declaration import PAPER
    from t2t_jax.study.tables import parameters

    c = study.config(row)
    return {
        "row": row.name,
        "group": row.group,
        "changes": dict(row.changes),
        "config": config.flatten(c),
        "parameters": parameters(c, study.V),
        "vocabulary": study.V,
        "paper": {name: row.paper.get(name) for name in PAPER},
    }


def _profiles() -> list[str]:
    """Returns the fields in which tensor2tensor's Transformer differs from the paper's."""
    rows = config.difference(config.profile("t2t"), config.profile("paper"))
    lines = [f"{'':18}{'paper':>12}{'t2t':>18}"]
    lines += [f"{n:18}{paper!s:>12}{t2t!s:>18}" for n, (t2t, paper) in rows.items()]
    return [
        *lines,
        "All other fields are equal. `train base --profile t2t`, or big, trains the right column.",
        "Other recipes set warm-up, schedule and peak themselves, and take no profile.",
    ]


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
        out += [field, *(f"  {name:18}{part.about}" for name, part in table.items())]
    return out


_TOPICS = {"architectures": "architecture", "corpora": "corpus", "metrics": "metric"}
_LISTS: dict[str, Callable[[], list[str]]] = {
    "fields": _fields,
    "mechanisms": _mechanisms,
    "parts": _parts,
    "profiles": _profiles,
    "presets": _presets,
    "studies": _studies,
    "recipes": lambda: [f"{name:18}{about}" for name, (about, _) in RECIPES.items()],
}
