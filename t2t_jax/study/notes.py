"""The notes under a study's table: its scale, its metrics, its tests, its code, what is missing."""

import math
import statistics
from collections.abc import Iterator, Sequence

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.evaluation.metrics import BPC, CONTRASTIVE, METRICS, PPL, Outputs, metric_of, of_split
from t2t_jax.runs.results import Run
from t2t_jax.study import agreement
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.comparison import comparable, same_subwords, tests
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import LEVEL
from t2t_jax.study.sweep import TRIAL_SEED

EDGE = "‡"  # marks a chosen value at the edge of its range
_FOLLOWING = "evaluate_every", "steps"  # fields that a preset or equal FLOPs derive from others
_UNKNOWN = "the counts of each sentence were not kept"
_NEEDED = {
    CONTRASTIVE: "`--metrics` or `run`, and parameters",
    BPC: "the corpus, and the likelihoods of sentences",
}


class Note(str):
    """A sentence below a table."""

    rows: tuple[str, ...]  # the names of those that it is about; empty if it is about the table
    detail: bool  # whether it is shown on request only

    def __new__(cls, text: str, *rows: str, detail: bool = False) -> "Note":
        note = super().__new__(cls, text)
        note.rows, note.detail = rows, detail
        return note


def notes(grid: Grid, lines: Lines) -> list[Note]:
    """Returns all notes, the most important first: the scale, what is measured, and the tests."""
    first, unnamed = [Note(scale(grid)), *_other_subwords(lines)], _unnamed(grid, lines)
    runs = [run for line in lines for run in line.runs]
    if not runs:
        none = Note("No run of this table is finished yet.")
        return [*first, *_missing(lines), none, *unnamed]
    versions = "; ".join(sorted({run.version for run in runs}))
    return [
        *first,
        Note(_measured(grid, runs)),
        *_tests(grid, lines),
        *_unusual(lines),
        *_cut(grid.study.split, lines),
        *_tuning(grid, lines),
        *_unmeasured(grid, lines),
        *_missing(lines),
        *_agreements(grid, lines),
        *unnamed,
        *_populations(lines),
        *_baseline(grid, lines[0]),
        Note(f"Made by code {versions}.", detail=True),
    ]


def scale(grid: Grid) -> str:
    """Returns the fields in which base differs from the paper's at this scale, as a sentence."""
    base, study = grid.study.rows[0], grid.study
    reported = any(row.paper for row in study.rows)
    paper = study.config(base) if reported else Config()  # a table of the paper has its own base
    fields = config.describe(grid.config(base), paper)
    return f"Base differs from the paper's in {fields}." if fields else "Base is the paper's."


def _unnamed(grid: Grid, lines: Lines) -> Iterator[Note]:
    """Names the fields in which a row differs from base without naming them."""
    base = grid.config(grid.study.rows[0])
    for line in lines:
        c, row = line.c, line.row
        fields = config.difference(config.replace(c, seed=base.training.seed), base)
        others = {*row.changes, *grid.study.columns, *_FOLLOWING, *config.PATHS, *grid.sweep}
        both = (n for n in fields if config.has(c.model, n) and config.has(base.model, n))
        unnamed = [f"{n} {fields[n][0]} (base: {fields[n][1]})" for n in both if n not in others]
        if unnamed:
            text = f"{row.name} also differs from base in {', '.join(unnamed)}."
            yield Note(text, row.name, detail=True)


def mean_score(line: RowResult, split: str, key: str) -> str:
    """Returns the mean of a score over a row's runs, as text; empty if its corpus has none."""
    scores = [run.result["scores"].get(split, {}) for run in line.runs]
    values = [s[key]["score"] for s in scores if key in s]
    return f"{math.fsum(values) / len(values):.1f}" if values else ""


def _other_subwords(lines: Lines) -> Iterator[Note]:
    """Names the rows whose PPL cannot be compared with base's."""
    base, no = lines[0], f"cannot be compared with {lines[0].row.name}'s where"
    if rows := [line.row.name for line in lines if not same_subwords(line, base)]:
        named = f"it {no} the subwords differ: {'; '.join(rows)}"
        yield Note(f"PPL is per subword, so {named}. BPC, bits per character, can.", *rows)
    if rows := [line.row.name for line in lines if not comparable(BPC, line, base)]:
        yield Note(f"PPL {no} it predicts tokens from both sides: {'; '.join(rows)}.", *rows)


def _measured(grid: Grid, runs: Sequence[Run]) -> str:
    """Says what the columns measure."""
    metric, split = metric_of(grid.data.corpus), grid.study.split
    signatures = {PPL: "PPL per subword on dev"}
    scored = [run.result["scores"][split] for run in runs if split in run.result["scores"]]
    if scored:  # language models are not
        own = {scores[metric.key]["signature"] for scores in scored}
        signatures[metric.name] = f"{metric.name} on {split}: {'; '.join(sorted(own))}"
    signatures |= {name: _signature(grid, name, runs) for name in grid.computed}
    measured = ", ".join(signatures[name] for name in grid.scores if name in signatures)
    return f"{measured}; mean ± standard deviation over n seeds; best in bold."


def _signature(grid: Grid, name: str, runs: Sequence[Run]) -> str:
    """Says how a metric that is computed on request is computed."""
    if name == CONTRASTIVE:
        sets = sorted({run.result[name]["signature"] for run in runs if name in run.result})
        return f"{name} {METRICS[name].describe()}: {'; '.join(sets)}".removesuffix(": ")
    if name == BPC:
        return f"{BPC}: {METRICS[BPC].describe()}"
    metric, split = of_split(name)
    own = metric == metric_of(grid.data.corpus).name and metric in grid.scores
    how = "the same" if own else METRICS[metric].describe(Outputs((), (), (), data=grid.data))
    return f"{metric} on {split or grid.study.split}: {how}"


def _unmeasured(grid: Grid, lines: Lines) -> Iterator[Note]:
    """Says for each metric that is computed on request which rows lack it, or are not tested."""
    finished = [line for line in lines if line.runs]
    for name in grid.computed:
        of_split_alone = "`run` with this metric" if of_split(name)[1] else ""
        needed = _NEEDED.get(name, of_split_alone or "translations, which are not stored")
        reason = "base was not judged on the same pairs" if name == CONTRASTIVE else _UNKNOWN
        measures = [(line.row.name, line.measure(name)) for line in finished]
        blank = [row for row, measure in measures if measure is None]
        untested = [row for row, measure in measures if measure and measure.draws is None]
        for rows, lack in ((blank, f"needs {needed}"), (untested, f"is not tested, as {reason}")):
            if rows:
                of_rows = "" if len(rows) == len(finished) else f" for {'; '.join(rows)}"
                yield Note(f"{name} {lack}{of_rows}.", *rows)


def _tuning(grid: Grid, lines: Lines) -> Iterator[Note]:
    """Says how the values of a sweep were chosen, and which are at the edge of their range."""
    if not grid.sweep:
        return
    values = "; ".join(f"{n} from {', '.join(map(str, x))}" for n, x in grid.sweep.items())
    on = "PPL and the score are" if grid.study.split == "dev" else "PPL is"
    seed = next((trial.seed for line in lines for trial in line.choice.trials), TRIAL_SEED)
    own = f"seed {seed}, which is not scored" if seed else "seed 0"
    text = (
        f"Tuned: {values}; of {len(grid.trials)} trials of each row with {own}, the best by PPL "
        f"on every other sentence of dev is chosen. {on} measured on the remaining sentences of "
        "dev, both untuned and tuned."
    )
    if any(line.choice.at_edge for line in lines):
        text += f" {EDGE}: at the edge of its range; a wider range may have a better value."
    yield Note(text)
    if not seed:
        yield Note(
            "The trials' seed is also scored, which favours the tuned rows, most those whose "
            "trials are close: `run` again gives trials a seed of their own."
        )
    for line in lines:
        name, choice = line.row.name, line.choice
        if choice.missing:
            yield Note(
                f"{name}: {choice.missing} of {len(choice.trials)} trials not finished.", name
            )
        for trial in (x for x in choice.trials if x.unusual):
            yield Note(f"The trial of {name} at {trial.setting} is of {trial.unusual}.", name)


def _agreements(grid: Grid, lines: Lines) -> Iterator[Note]:
    """Says how far the table agrees with the paper's: tuned and untuned if there is a sweep."""
    for found in agreement.agreements(grid, lines):
        yield Note(agreement.sentence(found))
    if untuned := [line.untuned for line in lines if line.untuned]:
        for found in agreement.agreements(grid, untuned):
            yield Note(f"Untuned: {agreement.sentence(found)}")


def _tests(grid: Grid, lines: Lines) -> Iterator[Note]:
    """Says what a star means, what the tests could have found, and what is not tested."""
    tested = {n: x for n, x in tests(grid, lines).items() if x}
    if tested:
        count = max(x.tests for found in tested.values() for x in found)
        family = "1 test" if count == 1 else f"the {count} tests of this table, in all columns"
        sizes = {n: [x.detectable for x in found if x.scales] for n, found in tested.items()}
        units = {PPL: "nats per token (PPL)"}
        least = [f"{statistics.median(x):.2g} {units.get(n, n)}" for n, x in sizes.items() if x]
        yield Note(
            f"*: differs from {lines[0].row.name} (a moderated t over seeds, variance over "
            f"sentences added; p < {LEVEL} after Bonferroni's correction for {family}; Welch's t "
            "must agree). Intervals are corrected likewise, so that they exclude 0 where there is "
            "a star." + " PPL is tested as its logarithm, NLL per token." * (PPL in tested)
        )
        yield Note(
            "No star is not equality: these tests find, with a probability of 80%, differences of "
            f"{', '.join(least) or 'no known size'} (in the median row)."
        )
    base = lines[0].row.name
    for name in (x for x in grid.scores if x not in grid.computed):  # `_unmeasured` has these
        measures = {x.row.name: m for x in lines if (m := x.measure(name))}
        untested = [row for row, m in measures.items() if m.draws is None]
        if untested and len(measures) > 1:
            of = "" if base in untested else f" for {'; '.join(untested)}"
            yield Note(f"{name} is not tested{of}, as it is infinite or {_UNKNOWN}.", *untested)
    columns = (x for line in lines for name in grid.scores if (x := line.measure(name)))
    if any(x.difference and x.p is None for x in columns):
        rows = "Rows with one seed are not tested, as"
        if len(lines[0].runs) == 1 < max(len(line.runs) for line in lines):
            rows = f"No row is tested, as {base} has one seed, and"
        yield Note(f"{rows} one run does not show how much seeds differ.")


def _baseline(grid: Grid, base: RowResult) -> Iterator[Note]:
    if f1 := mean_score(base, grid.study.split, "baseline"):
        yield Note(f"Right-branching trees reach an F1 of {f1}.", detail=True)


def _unusual(lines: Lines) -> Iterator[Note]:
    """Says why rows have a dagger: what differs in code, data or hardware from most runs."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        shown = {run.directory: run for x in (line, line.untuned) if x for run in x.runs}
        for run in (run for run in shown.values() if run.unusual):
            seeds = reasons.setdefault(run.unusual, {}).setdefault(line.row.name, [])
            seeds.append(str(run.seed))
    for reason, rows in reasons.items():
        named = "; ".join(f"{row}, seed {' and '.join(seeds)}" for row, seeds in rows.items())
        yield Note(f"†, not compared with other rows: {reason} ({named}).", *rows)


def _cut(split: str, lines: Lines) -> Iterator[Note]:
    """Says how many outputs of the scored split ended at the limit of their length."""
    scoring = {x.row.name: [r.result["scoring"].get(split, {}) for r in x.runs] for x in lines}
    cut = {row: sum(x.get("cut", 0) for x in of_runs) for row, of_runs in scoring.items()}
    if cut := {row: n for row, n in cut.items() if n}:
        rows = ", ".join(f"{row} {n:,}" for row, n in cut.items())
        said = f"Outputs for {split} that were cut at the limit of their length (max_extra)"
        yield Note(f"{said}, all runs: {rows}.", *cut)


def _populations(lines: Lines) -> Iterator[Note]:
    """Names the rows that were trained together with others, if some were and some were not."""
    finished = [line for line in lines if line.runs]
    together = [x for x in finished if any(run.result["trained_together"] > 1 for run in x.runs)]
    if 0 < len(together) < len(finished):
        names = [line.row.name for line in together]
        text = f"Trained at once with others, in one vectorised program: {'; '.join(names)}."
        yield Note(text, *names, detail=True)


def _missing(lines: Lines) -> Iterator[Note]:
    """Gives the status of unfinished runs, and names the rows that lack seeds."""
    others = lines[1:] or lines  # base may have more seeds than they
    most = max(1, *(len(line.runs) for line in others))
    for line in (line for line in lines if line.status):
        yield Note(f"{line.row.name}: {line.status.rstrip('.')}.", line.row.name)
    lacking = [(x, most - len(x.runs)) for x in lines if not x.status and len(x.runs) < most]
    names = [x.row.name + (f" ({n} seed{'s' * (n > 1)})" if x.runs else "") for x, n in lacking]
    if names:
        yield Note(f"Missing: {'; '.join(names)}.", *(x.row.name for x, _ in lacking))
