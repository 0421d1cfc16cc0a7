"""A study's result table as in the paper, ours beside the paper's, from stored results alone."""

import csv
import io
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.evaluation.metric import metric_of
from t2t_jax.runs.results import Run
from t2t_jax.study import cost, statistics
from t2t_jax.study.entries import Entry
from t2t_jax.study.grid import Grid
from t2t_jax.study.registry import PAPER, Row
from t2t_jax.study.statistics import Difference, Spread
from t2t_jax.study.typeset import Cell, Table, as_latex, as_markdown, as_text, without_empty

LEVEL = 0.05  # of p, corrected for the number of comparisons


@dataclass(frozen=True)
class Line:
    """A row with its numbers; `p` of its difference from base is corrected for all rows."""

    entry: Entry
    PPL: Spread | None
    score: Spread | None
    difference: Difference | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < LEVEL


def lines(grid: Grid, entries: Sequence[Entry]) -> list[Line]:
    """The numbers of every row; the first row is base, which the others are compared with."""
    scores, drawn = _scores(grid, entries)
    out = []
    for i, e in enumerate(entries):
        ppl = (
            statistics.spread([run.result["dev_perplexity"] for run in e.runs]) if e.runs else None
        )
        score = statistics.spread(scores[i]) if scores[i] else None
        difference = None
        comparable = not any(run.odd for run in (*e.runs, *entries[0].runs))
        if i and comparable and (ours := drawn[i]) is not None and (base := drawn[0]) is not None:
            difference = statistics.compare(scores[i], scores[0], ours, base)
        out.append(Line(e, ppl, score, difference))
    p = statistics.corrected([line.difference and line.difference.p for line in out])
    return [replace(line, p=x) for line, x in zip(out, p, strict=True)]


def _scores(
    grid: Grid, entries: Sequence[Entry]
) -> tuple[list[list[float]], list[np.ndarray | None]]:
    """The metric of every row's seeds, and `statistics.resampled` of them."""
    of_sums = metric_of(grid.data.corpus).of_sums
    scores = [[run.score for run in e.runs if run.score is not None] for e in entries]
    drawn = [
        statistics.resampled([np.array(run.statistics) for run in e.runs], of_sums)
        if score
        else None
        for e, score in zip(entries, scores, strict=True)
    ]
    return scores, drawn


def pairs(grid: Grid, found: Sequence[Line]) -> dict[tuple[str, str], tuple[float, float | None]]:
    """For the names of any two comparable rows their difference, and p corrected for all pairs."""
    shown = [line.entry for line in found if line.score and not _odd(line)]
    scores, drawn = _scores(grid, shown)
    compared = {}
    for i, j in itertools.combinations(range(len(shown)), 2):
        a, b = drawn[i], drawn[j]
        assert a is not None
        assert b is not None
        compared[i, j] = statistics.compare(scores[i], scores[j], a, b)
    p = statistics.corrected([difference.p for difference in compared.values()])
    out = {}
    for ((i, j), difference), x in zip(compared.items(), p, strict=True):
        a_name, b_name = shown[i].row.name, shown[j].row.name
        out[a_name, b_name] = difference.size, x
        out[b_name, a_name] = -difference.size, x
    return out


def quality(grid: Grid, found: Sequence[Line]) -> Table:
    """The paper's table, with our columns beside the paper's where it has any."""
    study, metric = grid.study, metric_of(grid.data.corpus)
    alike = [x for x in found if _subwords(x) == _subwords(found[0])]
    lowest = min((x.PPL.mean for x in alike if x.PPL), default=math.nan)
    highest = max((x.score.mean for x in found if x.score), default=math.nan)
    header = (
        ("", ""),
        *(("", name) for name in study.columns),
        ("PPL", "paper"),
        ("PPL", "ours"),
        (metric.name, "paper"),
        (metric.name, "ours"),
        ("valid trees", "(%)"),
        ("", "n"),
        ("params (M)", "paper"),
        ("params (M)", "ours"),
    )
    groups: dict[str, list[tuple[Cell, ...]]] = {}
    for line in found:
        row, at_scale = line.entry.row, config.flatten(line.entry.c)
        full = config.flatten(study.config(row))
        told = {*row.changes, "steps"} if study.equal_flops else row.changes.keys()
        if row is study.rows[0]:
            told = {n for n in study.columns if config.has(line.entry.c.model, n)}
        changed = [Cell(_scaled(full[n], at_scale[n]) if n in told else "") for n in study.columns]
        if row.label and not any(changed):
            changed[0] = Cell(row.label)
        cells = [Cell(row.group if row.name == row.group else f"({row.group})"), *changed]
        cells += [
            Cell(_number(row.PPL, 2)),
            _ours(line.PPL, 3, lowest),
            Cell(_number(papers(grid, row), 1)),
            _ours(line.score, 2, highest, "*" * line.significant + "†" * _odd(line)),
            Cell(_mean(line, study.split, "valid")),
            Cell(str(len(line.entry.runs)) if line.entry.runs else ""),
            Cell(_number(row.params, 0)),
            Cell(f"{line.entry.runs[0].result['parameters'] / 1e6:.2f}" if line.entry.runs else ""),
        ]
        groups.setdefault(row.group, []).append(tuple(cells))
    notes = [scale(grid), *_of_vocabularies(found), *_notes(grid, found)]
    return without_empty(f"{grid.title}.", header, groups, notes)


def scale(grid: Grid) -> str:
    """In which fields base, as it is run here, differs from the paper's, as a sentence."""
    base = grid.study.rows[0]
    fields = config.describe(grid.config(base), grid.study.config(base))
    return f"Base differs from the paper's in {fields}." if fields else "Base is the paper's."


def _of_vocabularies(found: Sequence[Line]) -> list[str]:
    """Rows whose PPL cannot be compared with base's, as a sentence if there are any."""
    base = found[0]
    others = [line.entry.row.name for line in found if _subwords(line) != _subwords(base)]
    return [
        f"PPL is per subword, so that of a row with other subwords than {base.entry.row.name}'s "
        f"cannot be compared with it: {'; '.join(others)}."
    ] * bool(others)


def _subwords(line: Line) -> int:
    return line.entry.c.data.vocabulary


def papers(grid: Grid, row: Row) -> float | None:
    """What the paper has in our metric; nothing beside a sample, whose test set is another."""
    sample = grid.data.corpus.endswith("_sample")
    return None if sample else getattr(row, metric_of(grid.data.corpus).name)


def _mean(line: Line, split: str, key: str) -> str:
    """Of a score over a row's runs; nothing where its corpus has none."""
    scores = [run.result["scores"].get(split, {}) for run in line.entry.runs]
    found = [s[key]["score"] for s in scores if key in s]
    return f"{math.fsum(found) / len(found):.1f}" if found else ""


def _scaled(paper: Any, ours: Any) -> str:
    return str(paper) if paper == ours else f"{_short(paper)}→{_short(ours)}"


def _short(value: Any) -> str:
    thousands = isinstance(value, int) and value >= 10_000 and value % 1000 == 0
    return f"{value // 1000}K" if thousands else str(value)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _ours(value: Spread | None, digits: int, best: float, mark: str = "") -> Cell:
    if value is None:
        return Cell("")
    deviation = "" if value.n == 1 else f" ± {value.deviation:.{digits}f}"
    cell = Cell(f"{value.mean:.{digits}f}{deviation}{mark}")
    cell.best = value.mean == best
    return cell


def _odd(line: Line) -> bool:
    return any(run.odd for run in line.entry.runs)


def _notes(grid: Grid, found: Sequence[Line]) -> list[str]:
    metric, split = metric_of(grid.data.corpus), grid.study.split
    runs = [run for line in found for run in line.entry.runs]
    if not runs:
        return [*_missing(found), "No run of this table is finished yet."]
    measured = "PPL per subword on dev"
    if split:
        signatures = {run.result["scores"][split][metric.key]["signature"] for run in runs}
        measured += f", {metric.name} on {split}: {'; '.join(sorted(signatures))}"
    notes = [f"{measured}; mean ± standard deviation over n seeds; best in bold."]
    notes += _about_stars(found)
    if baseline := _mean(found[0], split, "baseline"):
        notes.append(f"Right-branching trees reach an F1 of {baseline}.")
    notes += [
        f"†, and not compared with others: {run.odd} ({grid.run_name(line.entry.row, run.seed)})."
        for line in found
        for run in line.entry.runs
        if run.odd
    ]
    notes += _versions(runs) + _populations(found)
    unlike = [line.entry.row.name for line in found if _unlike_the_paper(grid, line, found[0])]
    if unlike:
        notes.append(f"Significant, and opposite in sign to the paper's: {'; '.join(unlike)}.")
    return notes + _missing(found)


def _versions(runs: Sequence[Run]) -> list[str]:
    """Which code made the table."""
    return [f"Made by code {', '.join(sorted({run.version for run in runs}))}."]


def _populations(found: Sequence[Line]) -> list[str]:
    """Which rows were trained at once with others, where some were and some were not."""
    together = {
        line.entry.row.name: any(run.result["trained_together"] > 1 for run in line.entry.runs)
        for line in found
        if line.entry.runs
    }
    names = [name for name, vectorised in together.items() if vectorised]
    if not names or len(names) == len(together):
        return []
    return [f"Trained at once with others, in one vectorised program: {'; '.join(names)}."]


def _about_stars(found: Sequence[Line]) -> list[str]:
    """What a star means, and where there can be none."""
    compared = [line for line in found if line.difference]
    tested, notes = sum(line.p is not None for line in compared), []
    if tested:
        notes.append(
            f"*: differs from {found[0].entry.row.name} (Welch's t over seeds, variance over "
            f"sentences added; Bonferroni's p < {LEVEL} over {tested} rows)."
        )
    if tested < len(compared):
        notes.append(
            "Rows with one seed are not tested, as one run does not show how much seeds differ."
        )
    return notes


def _unlike_the_paper(grid: Grid, line: Line, base: Line) -> bool:
    """Whether a significant difference from base has the other sign than the paper's."""
    theirs, reference = (papers(grid, x.entry.row) for x in (line, base))
    if not line.significant or line.difference is None or theirs is None or reference is None:
        return False
    return line.difference.size * (theirs - reference) < 0


def _missing(found: Sequence[Line]) -> list[str]:
    most = max(1, *(len(line.entry.runs) for line in found))
    standing = [f"{x.entry.row.name}: {x.entry.standing}." for x in found if x.entry.standing]
    rest = [x.entry for x in found if not x.entry.standing]
    lacks = [(e, most - len(e.runs)) for e in rest if len(e.runs) < most]
    missing = [e.row.name + (f" ({n} seed{'s' * (n > 1)})" if e.runs else "") for e, n in lacks]
    return standing + ([f"Missing: {'; '.join(missing)}."] if missing else [])


def records(grid: Grid, found: Sequence[Line]) -> list[dict[str, Any]]:
    """Every row with all that is known of it, as JSON."""
    metric, out = metric_of(grid.data.corpus), []
    for line in found:
        e = line.entry
        out.append(
            {
                "row": e.row.name,
                "group": e.row.group,
                "changes": dict(e.row.changes),
                "config": store_config(e.c),
                "paper": {n: getattr(e.row, n) for n in PAPER} | {metric.name: papers(grid, e.row)},
                "PPL": _spread(line.PPL),
                metric.name: _spread(line.score),
                "difference": None if line.difference is None else line.difference._asdict(),
                "p_bonferroni": line.p,
                "standing": e.standing,
                "runs": [
                    {
                        "seed": run.seed,
                        "name": grid.run_name(e.row, run.seed),
                        "directory": str(run.directory),
                        "odd": run.odd,
                        "PPL": run.result["dev_perplexity"],
                        metric.name: run.score,
                        "device": run.result["environment"]["device"],
                        "code": run.result["environment"]["code"],
                        "version": run.version,
                    }
                    | cost.costs(run)
                    for run in e.runs
                ],
            }
        )
    return out


def store_config(c: Config) -> dict[str, Any]:
    """A config without where files lie and without its seed."""
    flat = config.flatten(c)
    return {n: v for n, v in flat.items() if n not in (*config.PATHS, "seed")}


def _spread(value: Spread | None) -> dict[str, Any] | None:
    if value is None:
        return None
    deviation = None if math.isnan(value.deviation) else value.deviation
    return {"mean": value.mean, "deviation": deviation, "n": value.n}


def _csv(grid: Grid, found: Sequence[Line]) -> str:
    """A line a run, nothing rounded."""
    names = [
        "row",
        "seed",
        "PPL",
        metric_of(grid.data.corpus).name,
        *cost.COSTS,
        "device",
        "code",
        "name",
        "directory",
    ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for record in records(grid, found):
        for run in record["runs"]:
            writer.writerow([record["row"], *(run[name] for name in names[1:])])
    return out.getvalue()


def _both(set_one: Callable[[Table], str]) -> Callable[[Grid, Sequence[Line]], str]:
    """Quality, and cost below it."""

    def both(grid: Grid, found: Sequence[Line]) -> str:
        made = [quality(grid, found)] + [cost.table([x.entry for x in found])] * any(
            line.entry.runs for line in found
        )
        return "\n".join(map(set_one, made))

    return both


FORMATS: dict[str, Callable[[Grid, Sequence[Line]], str]] = {
    "text": _both(as_text),
    "md": _both(as_markdown),
    "latex": _both(as_latex),
    "csv": _csv,
    "json": lambda grid, found: json.dumps(records(grid, found), indent=1) + "\n",
}
