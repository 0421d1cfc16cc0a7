"""The result table of a study, with our values beside the paper's; its trials and its costs."""

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from t2t_jax import config
from t2t_jax.errors import UsageError, near
from t2t_jax.evaluation.metrics import METRICS, PPL, of_split
from t2t_jax.runs.results import Run
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import comparable, paper_value
from t2t_jax.study.declaration import Row, Study
from t2t_jax.study.grid import Grid
from t2t_jax.study.notes import EDGE, mean_score, notes
from t2t_jax.study.typeset import Cell, Table, table

_TESTED = "difference", "95% interval", "p"  # from base, corrected for all tests of the table
COUNTS = "n", "params"  # columns that are neither fields nor metrics
_COSTS = ("", ""), ("params", "(M)"), ("training FLOPs", "paper"), ("training FLOPs", "counted")
_ON_DEVICE = "compiled FLOPs", "time x peak FLOP/s", "training (min)", "a step (ms)", "memory (MB)"
_COSTS_NOTE = (
    "Counted FLOPs are matmul FLOPs, with a backward pass of twice the forward pass; compiled "
    "FLOPs are XLA's count, which takes the body of a loop once. Training time is the median time "
    "of a step times the number of steps, so that it contains neither pauses of the machine nor "
    "compiling; time x peak is this time times the device's peak FLOP/s, as in the paper. Costs "
    "are medians over seeds. Runs that are trained together share their time equally."
)


def quality(grid: Grid, lines: Lines, columns: Sequence[str] = (), p: bool = False) -> Table:
    """Returns the paper's table, with our columns beside the paper's.

    The columns of fields and counts (`COUNTS`) are the study's and all counts if none are named.
    With `p`, the tests of each score have columns (`_TESTED`).
    """
    for name in columns:
        if name not in (names := (*config.SECTION_OF, *COUNTS)):
            raise UsageError(f"--columns {name}: there is no such column: {near(name, names)}")
    shown = columns or (*grid.study.columns, *COUNTS)
    fields = [name for name in shown if name not in COUNTS]
    ours = "tuned" if grid.sweep else "ours"
    header = (
        ("", ""),
        *(("", name) for name in fields),
        *(("tuned", name) for name in grid.sweep),
        *((name, x) for name in grid.scores for x in ("paper", "untuned", ours, *_TESTED)),
        ("valid trees", "(%)"),
        ("", "n"),
        ("params (M)", "paper"),
        ("params (M)", "ours"),
    )
    best = {name: _best(name, lines) for name in grid.scores}
    groups: dict[str, list[list[str]]] = {}
    for line in lines:
        row, runs = line.row, line.runs
        n, parameters = len(runs), f"{runs[0].result['parameters'] / 1e6:.2f}" if runs else ""
        cells = [
            _label(grid.study, row, fields),
            *_changes(grid, line, fields),
            *_chosen(grid, line),
            *(text for name in grid.scores for text in _scores(grid, line, name, best[name], p)),
            mean_score(line, grid.study.split, "valid"),
            str(n) if n and "n" in shown else "",
            *((_number(row.paper.get("params"), 0), parameters) if "params" in shown else ("", "")),
        ]
        groups.setdefault(row.group, []).append(cells)
    return table(f"{grid.title}.", header, groups.values(), notes(grid, lines))


def _label(study: Study, row: Row, fields: Sequence[str]) -> str:
    """Returns a row's label: its group, as `(A)`, or its name if nothing else would identify it."""
    own = row.changes.keys() & {*study.columns}  # which the study's own columns would show
    shown = fields and (row.label or own) and own <= {*fields}
    return f"({row.group})" if shown and row.name_lists_changes else row.name


def _changes(grid: Grid, line: RowResult, fields: Sequence[str]) -> list[str]:
    """Returns the cells of fields: all that base has; of other rows, those named or changed."""
    study, row, c = grid.study, line.row, line.c
    paper, ours = config.flatten(study.config(row)), config.flatten(c)
    base = config.flatten(grid.config(study.rows[0]))
    shown = {n for n in fields if config.has(c.model, n)}
    if row is not study.rows[0]:
        shown = {n for n in shown if ours[n] != base[n]} | {*row.changes}
    if study.equal_flops:
        shown |= {"steps"}
    scaled = {n: f"{_short(paper[n])}→{_short(ours[n])}" for n in shown if paper[n] != ours[n]}
    cells = [scaled.get(n, str(paper[n])) if n in shown else "" for n in fields]
    if row.label and cells and not any(cells):
        cells[0] = row.label
    return cells


def _chosen(grid: Grid, line: RowResult) -> list[str]:
    """Returns the chosen value of each swept field, with a mark at the edge of its range."""
    values, at_edge = line.choice.values, line.choice.at_edge
    return [f"{values.get(name, '')}{EDGE * (name in at_edge)}" for name in grid.sweep]


def _short(value: Any) -> str:
    thousands = isinstance(value, int) and value >= 10_000 and value % 1000 == 0
    return f"{value // 1000}K" if thousands else str(value)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _best(name: str, lines: Lines) -> float:
    """Returns the best mean of a column, among rows without †, which base can be compared with."""
    usual = [x for x in lines if not x.unusual]
    compared = [x for x in usual if comparable(name, x, lines[0])]
    means = [measure.spread.mean for x in compared if (measure := x.measure(name))]
    if len(means) < 2:  # a value that nothing can be compared with is not the best
        return math.nan
    return (min if METRICS[of_split(name)[0]].lower_is_better else max)(means)


def _scores(grid: Grid, line: RowResult, name: str, best: float, p: bool) -> list[str]:
    """Returns the cells of a metric: the paper's, ours without tuning, and ours; then `_TESTED`."""
    measure, digits = line.measure(name), 3 if name == PPL else 2
    papers = _number(paper_value(grid, line.row, name), 2 if name == PPL else 1)
    cells = [papers, _measured(line.untuned, name, digits), _measured(line, name, digits, best)]
    if not p or measure is None or measure.difference is None:
        return cells + [""] * len(_TESTED)
    d = measure.difference
    interval = f"{d.low:+.{digits}f} to {d.high:+.{digits}f}"
    return [*cells, f"{d.size:+.{digits}f}", interval, "" if d.p is None else f"{d.p:.2g}"]


def _measured(line: RowResult | None, name: str, digits: int, best: float = math.nan) -> str:
    if line is None or (measure := line.measure(name)) is None:
        return ""
    spread = measure.spread
    deviation = "" if spread.n == 1 else f" ± {spread.deviation:.{digits}f}"
    marks = "*" * measure.significant + "†" * line.unusual
    return Cell(f"{spread.mean:.{digits}f}{deviation}{marks}", spread.mean == best)


def trials(grid: Grid, lines: Lines) -> Table:
    """Returns the perplexity of every trial; the chosen ones count as the best of their rows."""
    fields = ", ".join(grid.sweep)
    tried = (x.values.values() for x in lines[0].choice.trials)
    header = [("", ""), *((fields, ", ".join(map(str, values))) for values in tried)]
    groups: dict[str, list[list[str]]] = {}
    for line in lines:
        cells, choice = [line.row.name], line.choice
        for trial in choice.trials:
            chosen = trial is choice.chosen
            failed = "unfinished" if trial.PPL is None else "diverged"
            text = f"{trial.PPL:.3f}" if trial.PPL and math.isfinite(trial.PPL) else failed
            cells.append(Cell(text + EDGE * bool(chosen and choice.at_edge), chosen))
        groups.setdefault(line.row.group, []).append(cells)
    note = (
        "The perplexity on the sentences of dev by which a trial is chosen. The chosen trial of a "
        f"row is in bold; {EDGE}: a chosen value is at the edge of its range."
    )
    return table("Trials.", header, groups.values(), (note,))


def costs(rows: Lines) -> Table:
    """Returns the costs of every row that has runs, with columns for each device."""
    devices = sorted({run.device for row in rows for run in row.runs})
    groups: dict[str, list[list[str]]] = {}
    for row in rows:
        if row.runs:
            paper = row.row.paper.get("FLOPs")
            cells = [
                row.row.name,
                f"{row.runs[0].result['parameters'] / 1e6:.2f}",
                f"{paper:.1e}" if paper else "",
                f"{median(x.result['flops'] for x in row.runs):.2e}",
                *(text for device in devices for text in _on_device(row.runs, device)),
            ]
            groups.setdefault(row.row.group, []).append(cells)
    header = (*_COSTS, *((f"on {device}", name) for device in devices for name in _ON_DEVICE))
    return table("Cost of a run", header, groups.values(), (_COSTS_NOTE,))


def _on_device(every: Sequence[Run], device: str) -> Iterator[str]:
    """Yields the cells of `_ON_DEVICE`; cells of what is unknown are empty."""
    runs = [run for run in every if run.device == device]
    of_runs, peaks = [run.costs for run in runs], [run.result.get("peak_flops") for run in runs]
    seconds = [x["training_seconds"] for x in of_runs]
    timed = [(x, run) for x, run in zip(seconds, runs, strict=True) if x is not None]
    at_peak = [x * peak for x, peak in zip(seconds, peaks, strict=True) if x and peak]
    for values, unit, form in (
        ([x["compiled_flops"] for x in of_runs], 1, ".2e"),
        (at_peak, 1, ".2e"),
        ([x for x, _ in timed], 60, ".1f"),
        ([x / run.result["steps"] for x, run in timed], 1e-3, ".0f"),
        ([x["memory"] for x in of_runs], 1e6, ".0f"),
    ):
        yield f"{median(values) / unit:{form}}" if values else ""
