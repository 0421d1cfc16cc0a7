"""What `t2t-jax list` prints: what there is, by kind, the rows of a study, the runs of a store."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax import config
from t2t_jax.attention import MECHANISMS
from t2t_jax.config import SECTIONS, Config
from t2t_jax.errors import UsageError, near, warn
from t2t_jax.parts import FEED_FORWARD, NORMS, POSITIONS
from t2t_jax.recipes import RECIPES

if TYPE_CHECKING:
    from t2t_jax.study.registry import Study


def listing(what: str, format: str, home: Path | None) -> list[str]:
    """Lines about a kind of thing, a study or the runs of a store.

    Args:
      what: its name; if it is empty, the lines are about what can be run.
      home: the store, for the runs alone [runs].

    Raises:
      UsageError: there is nothing of that name, or it is not to be had as JSON.
    """
    from t2t_jax.study.registry import studies

    if home is not None and what != "runs":
        raise UsageError("--store is for the runs of a store: `list runs --store DIR` shows them.")
    if what in (found := studies()):
        return _rows(found[what], format)
    if what and what != "runs" and what not in _LISTS:
        hint = near(what, ["runs", *_LISTS, *found])
        raise UsageError(f"there is nothing called {what!r} to list: {hint}")
    if format != "text":
        raise UsageError(f"--format {format} is for the rows of a study: name one of them.")
    if what == "runs":
        return _runs(home or Path("runs"))
    if what:
        return _LISTS[what]()
    runnable = ("studies", "presets", "recipes")
    return [line for kind in runnable for line in (kind, *(f"  {x}" for x in _LISTS[kind]()))]


def _studies() -> list[str]:
    from t2t_jax.study.registry import studies

    return [f"{s.name:18}{s.title}: {len(s.rows)} rows" for s in studies().values()]


def _presets() -> list[str]:
    from t2t_jax.study.presets import PRESETS, shrink

    lines = []
    for name, preset in PRESETS.items():
        lines.append(f"{name:18}{preset.about}")
        fields = config.describe(shrink(Config(), {}, preset), Config())
        lines += textwrap.wrap(fields, 100, initial_indent=" " * 18, subsequent_indent=" " * 18)
    return [*lines, "Of Table 3's base; other tables and rows are scaled by the same factors."]


def _rows(study: "Study", format: str) -> list[str]:
    """A study's rows; as JSON with their configs and parameters at the paper's scale."""
    from t2t_jax.study.registry import PAPER

    if format == "json":
        from t2t_jax.study.cost import parameters

        rows = [
            {
                "row": row.name,
                "group": row.group,
                "changes": dict(row.changes),
                "config": config.flatten(study.config(row)),
                "parameters": parameters(study.config(row), study.V),
                "vocabulary": study.V,
                "paper": {name: getattr(row, name) for name in PAPER},
            }
            for row in study.rows
        ]
        return json.dumps(rows, indent=1).split("\n")
    width = max(len(row.name) for row in study.rows) + 2
    known = [n for n in PAPER if any(getattr(row, n) is not None for row in study.rows)]
    names = [f"{'params (M)' if n == 'params' else n:>12}" for n in known]
    lines = [f"{'':{width}}{''.join(names)}" + "   (paper)" * bool(known)]
    for row in study.rows:
        cells = (getattr(row, n) for n in known)
        lines.append(
            f"{row.name:{width}}" + "".join(f"{'' if x is None else x:>12}" for x in cells)
        )
    return lines


def _runs(home: Path) -> list[str]:
    """Every run of a store under each of its names: how it stands, how good it is, and where."""
    from t2t_jax.runs import names, results

    lines: list[tuple[str, ...]] = [("run", "state", "step", "dev PPL", "scores", "where")]
    for directory, c in results.stored(home, warn):
        try:
            facts = _about(directory, c)
        except UsageError as error:
            warn(str(error))
            continue
        lines += [(name, *facts) for name in names.names(directory)]
    if len(lines) == 1:
        return [f"{home} has no runs."]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = "step", "dev PPL"
    return [
        "  ".join(
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, lines[0], strict=True)
        ).rstrip()
        for line in (lines[0], *sorted(lines[1:]))
    ]


def _about(directory: Path, c: Config) -> tuple[str, ...]:
    """State, step, perplexity and scores of a run, and where it is."""
    from t2t_jax.evaluation.metric import metric_of
    from t2t_jax.runs import published, results, store

    state, step = results.standing(directory)
    metric, result = metric_of(c.data.corpus), store.read_result(directory, warn) or {}
    ppl = result.get("dev_perplexity")
    if ppl is None:
        evaluated = (r.get("dev_perplexity") for r in reversed(store.read_curves(directory)))
        ppl = next((x for x in evaluated if x is not None), None)
    scores: dict[str, Any] = result.get("scores", {})
    shown = [f"{split} {s[metric.key]['score']:.2f}" for split, s in scores.items()]
    where = published.where(directory)
    failure = store.read_failure(directory)
    return (
        state,
        f"{step:,}/{c.training.steps:,}",
        "" if ppl is None else f"{ppl:.3f}",
        f"{metric.name} {', '.join(shown)}" if shown else "",
        str(where) if failure is None else f"{where}: {failure}",
    )


def _profiles() -> list[str]:
    """How tensor2tensor's Transformer differs from the paper's."""
    rows = config.difference(config.profile("t2t"), config.profile("paper"))
    lines = [f"{'':18}{'paper':>12}{'t2t':>18}"]
    lines += [f"{n:18}{paper!s:>12}{t2t!s:>18}" for n, (t2t, paper) in rows.items()]
    return [
        *lines,
        "Everything else is the same. `train base --profile t2t`, or big, is the right column.",
        "Other recipes set warm-up, schedule and peak themselves and take no profile.",
    ]


def _fields() -> list[str]:
    out = []
    for section, cls in SECTIONS.items():
        out.append(section)
        out += [f"  {f.name:20}{f.default!s:20}{f.metadata['help']}" for f in fields(cls)]
    return out


def _mechanisms() -> list[str]:
    out = []
    for name, entry in MECHANISMS.items():
        options = ",".join(f"{n}={v}" for n, v in entry.options.items())
        out.append(
            f"{name + ':' * bool(options) + options:30}{', '.join(entry.roles):25}{entry.about}"
        )
    return out


def _parts() -> list[str]:
    out = []
    for field, table in (("norm", NORMS), ("feed_forward", FEED_FORWARD), ("positions", POSITIONS)):
        out += [field, *(f"  {name:18}{part.about}" for name, part in table.items())]
    return out


_LISTS: dict[str, Callable[[], list[str]]] = {
    "fields": _fields,
    "mechanisms": _mechanisms,
    "parts": _parts,
    "profiles": _profiles,
    "presets": _presets,
    "studies": _studies,
    "recipes": lambda: [f"{name:18}{about}" for name, (about, _) in RECIPES.items()],
}
