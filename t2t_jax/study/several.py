"""One table of several studies and stores, which states the origin of each row.

Rows are compared only with rows of the same study in the same store: the best of a column, the
significance tests and the origins of the runs are those of each part alone.
"""

import csv
import io
import itertools
import json
from collections.abc import Sequence
from typing import Any

from t2t_jax.study import cost, tables
from t2t_jax.study.comparison import Line
from t2t_jax.study.formats import FORMATS, TYPESET, records
from t2t_jax.study.grid import Grid
from t2t_jax.study.typeset import Cell, Table

Part = tuple[Grid, Sequence[Line]]
_NOTE = "Rows are compared, for bold and for tests, within one study and store."


def table(
    parts: Sequence[Part], format: str, columns: Sequence[str] = (), costs: bool = True
) -> str:
    """Returns one table of parts, each a grid and its lines; parts without runs are left out.

    Args:
      columns, costs: the arguments of the formats in `formats.TYPESET`.
    """
    parts = [part for part in parts if _has_runs(part)] or parts[:1]
    if len(parts) == 1:
        options = {"columns": columns, "costs": costs} if format in TYPESET else {}
        return FORMATS[format](*parts[0], **options)
    if format == "json":
        return json.dumps([x for part in parts for x in _records(*part)], indent=1) + "\n"
    if format == "csv":
        return _csv(parts)
    every = [tables.quality(grid, lines, columns) for grid, lines in parts]
    titles = dict.fromkeys(grid.title for grid, _ in parts)
    typeset, label = TYPESET[format], "-".join(dict.fromkeys(grid.name for grid, _ in parts))
    out = [typeset(_merge(f"{'; '.join(titles)}.", parts, every, _NOTE), label)]
    run = [(grid, lines) for grid, lines in parts if any(line.entry.runs for line in lines)]
    if costs and run:
        of_costs = [cost.table([line.entry for line in lines]) for _, lines in run]
        out.append(typeset(_merge(of_costs[0].title, run, of_costs), f"{label}-cost"))
    return "\n".join(out)


def _has_runs(part: Part) -> bool:
    """Returns whether the store has a run of the study, finished or not."""
    return any(line.entry.runs or line.entry.status for line in part[1])


def _merge(title: str, parts: Sequence[Part], every: Sequence[Table], *notes: str) -> Table:
    """Returns one table with the columns of all, and the study and store of each line."""
    header = _union([table.header for table in every])
    grids = [grid for grid, _ in parts]
    of_study = [grid.name for grid in grids], "study"
    of_store = [str(grid.home) for grid in grids], "store"
    sources = [(texts, name) for texts, name in (of_study, of_store) if len(set(texts)) > 1]
    groups = []
    for i, part in enumerate(every):
        places = {column: j for j, column in enumerate(part.header)}
        source = tuple(Cell(texts[i]) for texts, _ in sources)
        for group in part.groups:
            lines = (
                tuple(line[places[column]] if column in places else Cell("") for column in header)
                for line in group
            )
            groups.append(tuple(line + source for line in lines))
    labels = [" in ".join(texts[i] for texts, _ in sources) for i in range(len(every))]
    named = (*header, *(("from", name) for _, name in sources))
    return Table(title, named, tuple(groups), (*notes, *_notes(labels, every)))


def _union(headers: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Returns the columns of all headers, each after the one that precedes it in its header."""
    union = list(headers[0])
    for header in headers[1:]:
        for before, column in itertools.pairwise(header):
            if column not in union:
                union.insert(union.index(before) + 1, column)
    return union


def _notes(labels: Sequence[str], every: Sequence[Table]) -> list[str]:
    """Returns the notes of all tables; a note that not all have begins with its table's label."""
    shared = [note for note in every[0].notes if all(note in table.notes for table in every)]
    own = (
        f"{label}: {note}"
        for label, table in zip(labels, every, strict=True)
        for note in table.notes
        if note not in shared
    )
    return [*own, *shared]


def _records(grid: Grid, lines: Sequence[Line]) -> list[dict[str, Any]]:
    source = {"study": grid.name, "store": str(grid.home)}
    return [source | record for record in records(grid, lines)]


def _csv(parts: Sequence[Part]) -> str:
    """Returns a line for each run; a metric that a study does not have is blank."""
    lines = [
        {"study": grid.name, "store": str(grid.home), **line}
        for grid, of_grid in parts
        for line in csv.DictReader(io.StringIO(FORMATS["csv"](grid, of_grid)))
    ]
    names = dict.fromkeys(name for line in lines for name in line) or ("study", "store")
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
