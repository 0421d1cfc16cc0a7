"""What `t2t-jax list` prints: what there is, by kind, and the rows of a study."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from t2t_jax import config
from t2t_jax.attention import MECHANISMS
from t2t_jax.config import SECTIONS, Config
from t2t_jax.errors import UsageError, near
from t2t_jax.models.parts import FEED_FORWARD, NORMS, POSITIONS
from t2t_jax.recipes import RECIPES

if TYPE_CHECKING:
    from t2t_jax.study.registry import Study


def listing(what: str, format: str) -> list[str]:
    """Lines about a kind of thing or a study; about what can be run if `what` is empty.

    Raises:
      UsageError: there is nothing of that name, or it is not to be had as JSON.
    """
    from t2t_jax.study.registry import studies

    if what in (found := studies()):
        return _rows(found[what], format)
    if what and what not in _LISTS:
        hint = near(what, [*_LISTS, *found])
        raise UsageError(f"there is nothing called {what!r} to list: {hint}")
    if format != "text":
        raise UsageError(f"--format {format} is for the rows of a study: name one of them.")
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
