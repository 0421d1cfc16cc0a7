"""The runs of stores as tidy data: one row per run, and one row per run and step of its curves.

A run that several tables share, of studies or of settings of `run`, has a row for each of them.
"""

import csv
import datetime
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import files
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near
from t2t_jax.runs import names, provenance, published, results, store
from t2t_jax.runs.store import Report
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.formats import row_config
from t2t_jax.study.grid import Grid

Row = dict[str, Any]
Shown = Mapping[Path, Sequence[Row]]  # by the directory of a run: what tables say about it
NAMES = "name", "study", "preset", "changes", "row", "sweep", "seed", "store", "directory"
ROLES = "trial", "untuned", "chosen"  # of a run in a table


def shown(parts: Iterable[tuple[Grid, Lines]]) -> Shown:
    """Returns the runs that tables show, and the trials that chose values: a row for each table.

    A row has the scores as the table counts them: after a sweep, on the sentences of dev that chose
    nothing, so that a run that is only a trial has none. Of its roles, a run without a sweep is
    both `untuned` and `chosen`.
    """
    out: dict[Path, list[Row]] = {}
    for grid, lines in parts:
        for line in lines:
            for directory, row in _of_line(grid, line).items():
                out.setdefault(directory, []).append(row)
    return out


def _of_line(grid: Grid, line: RowResult) -> dict[Path, Row]:
    rows: dict[Path, Row] = {}
    sweep = " ".join(f"{n}={','.join(map(str, x))}" for n, x in grid.sweep.items())

    def row_of(directory: Path, seed: int) -> Row:
        name = grid.run_name(line.row, seed)
        row = _name(name, directory, seed, grid.home) | dict.fromkeys(ROLES, False)
        return rows.setdefault(directory, row | {"sweep": sweep, "PPL": None})

    for role, of in (("untuned", line.untuned or line), ("chosen", line)):
        for i, run in enumerate(of.runs):
            row = row_of(run.directory, run.seed)
            scores = {n: x.values[i] for n in grid.scores if (x := of.measure(n))}
            row.update(scores, name=of.run_name(grid, run.seed), **{role: True})
    for trial in line.choice.finished:
        if trial.directory:
            row = row_of(trial.directory, trial.seed)
            if not (row["untuned"] or row["chosen"]):
                row["name"] = grid.at(trial.values).run_name(line.row, trial.seed)
            row.update(trial=True, PPL_choosing=trial.PPL)
    return rows


def tables(
    homes: Sequence[Path], studies: Sequence[str], report: Report, shown: Shown
) -> tuple[list[Row], list[Row]]:
    """Returns the runs of stores, and the records of their curves.

    If studies such as `table3` or `table3-demo` are named, others are left out. Runs that are not
    `shown` have a row for each of their names, without a role. Those that cannot be read are
    reported; a store that does not exist, or has no run of any of the studies, is a UsageError.
    """
    runs: list[Row] = []
    curves: list[Row] = []
    known: set[str] = set()
    every = (
        (directory, c, home) for home in homes for directory, c in results.stored(home, report)
    )
    for directory, c, home in every:
        called = [*shown.get(directory, ())]
        own = reversed(names.names(directory))  # of those in one row of a table, the first counts
        named = (_name(x, directory, c.training.seed, home) for x in own)
        others = {_table_row(x): x | dict.fromkeys(ROLES, False) for x in named}
        called += [x for row, x in others.items() if row not in map(_table_row, called)]
        known |= {x["study"] for x in called if x["study"]}
        if studies:
            called = [x for x in called if {x["study"], f"{x['study']}-{x['preset']}"} & {*studies}]
        if called:
            run, curve = _run(directory, c), _curve(directory)
            runs += [x | {n: y for n, y in run.items() if n not in x} for x in called]
            curves += [{n: x[n] for n in NAMES} | record for x in called for record in curve]
    if not runs:
        where, of = " and ".join(map(str, homes)), " of " * bool(studies) + " or ".join(studies)
        hint = near(studies[0], known) if studies and known else "train one first."
        raise UsageError(f"{where} has no run{of}: {hint}")
    return _sorted(runs), _sorted(curves)


def _table_row(row: Row) -> tuple[Any, ...]:
    return row["store"], row["study"], row["preset"], row["row"]


def _name(name: str, directory: Path, seed: int, home: Path) -> Row:
    """Returns the columns that identify the run of a row, outside of a sweep."""
    values = name, *names.parts(name), "", seed, str(home), directory.name
    return dict(zip(NAMES, values, strict=True))


def _run(directory: Path, c: Config) -> Row:
    """Returns the state, config, scores, cost and origins of a run."""
    state = results.state(directory)
    result, costs = state.result, {}
    if result:
        costs = results.costs(result, state.records)
        costs["trained_together"] = result["trained_together"]
        costs["averaged_steps"] = " ".join(map(str, result["averaged_steps"]))
    seconds, facts = store.finished_at(directory), published.read(directory, "data.json") or {}
    finished = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    environment = result.get("environment") or published.read(directory, "environment.json") or {}
    origins = {n: x for n, x in environment.items() if n not in ("programs", "source")}
    changes = provenance.changes(directory, c, environment)
    return {
        "status": state.status,
        "step": state.step,
        "failure": state.failure,
        "finished": finished.isoformat(timespec="seconds") if seconds else None,
        **row_config(c),
        "PPL": result.get("dev_perplexity"),
        **_scores(result),
        **costs,
        **{n: x if isinstance(x, int) else str(x) for n, x in origins.items()},
        **{f"{n}_program": x for n, x in environment.get("programs", {}).items()},
        "source_sha256": environment.get("source"),  # of the code; the field `source` is a language
        "changed_programs": None if changes is None else " ".join(changes),
        "compute_dtype": facts.get("dtype"),
        "subwords": facts.get("subwords"),
        "data_sha256": facts.get("data"),
        "vocabulary_sha256": facts.get("vocabulary"),
    }


def _scores(result: Row) -> Row:
    """Returns the scores of every split, and their signatures: `dev_bleu`, `dev_bleu_signature`.

    Contrastive accuracy, if it has been computed, belongs to no split.
    """
    splits, columns = result.get("scores", {}), {}
    named = {f"{split}_{key}": s for split, of in splits.items() for key, s in of.items()}
    named |= {n: result[n] for n in (store.CONTRASTIVE,) if n in result}
    for name, s in named.items():
        columns[name], columns[f"{name}_signature"] = s["score"], s["signature"]
    return columns


def _curve(directory: Path) -> list[Row]:
    """Returns one record per step: what was measured in training, and on dev."""
    merged: dict[int, Row] = {}
    for record in store.read_curves(directory):
        merged.setdefault(record["step"], {}).update(record)
    return [merged[step] for step in sorted(merged)]


def _sorted(rows: list[Row]) -> list[Row]:
    """Returns rows sorted by store and name, all with the same columns; a blank cell is None."""
    rows.sort(key=lambda row: (row["store"], row["name"]))  # stable: steps stay in order
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as CSV; the curves of runs that have taken no step are a line of names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0] if rows else NAMES), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write(path, out.getvalue())
