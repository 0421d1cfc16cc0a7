"""The notes under a study's table: its scale, its metrics, its tests, its code, what is missing."""

import math
import statistics
from collections.abc import Sequence

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.evaluation.metrics import BPC, CONTRASTIVE, METRICS, Outputs, metric_of, of_split
from t2t_jax.runs.results import Run
from t2t_jax.study import agreement
from t2t_jax.study.comparison import RowResult, comparable, same_subwords, tests
from t2t_jax.study.grid import Grid
from t2t_jax.study.statistics import LEVEL
from t2t_jax.study.sweep import TRIAL_SEED

EDGE = "‡"  # marks a chosen value at the edge of its range
_FOLLOWING = "evaluate_every", "steps"  # fields that a preset or equal FLOPs derive from others

_UNKNOWN = "as the counts of each sentence were not kept"


class Note(str):
    """A sentence below a table.

    Attributes:
      rows: the names of the rows that it is about; empty if it is about the table.
      detail: whether it is shown on request only.
    """

    rows: tuple[str, ...] = ()
    detail = False


def note(text: str, *rows: str, detail: bool = False) -> Note:
    made = Note(text)
    made.rows, made.detail = rows, detail
    return made


def notes(grid: Grid, lines: Sequence[RowResult]) -> list[Note]:
    """Returns all notes, the most important first: the scale, what is measured, and the tests."""
    first = [note(scale(grid)), *_other_subwords(lines)]
    unnamed = _unnamed(grid, lines)
    runs = [run for line in lines for run in line.runs]
    if not runs:
        none = note("No run of this table is finished yet.")
        return [*first, *_missing(lines), none, *unnamed]
    versions = ", ".join(sorted({run.version for run in runs}))
    return [
        *first,
        note(_measured(grid, runs)),
        *map(note, _tests(grid, lines)),
        *_unusual(lines),
        *_cut(grid.study.split, lines),
        *_tuning(grid, lines),
        *_unmeasured(grid, lines),
        *_missing(lines),
        *map(note, _agreements(grid, lines)),
        *unnamed,
        *_populations(lines),
        *_baseline(grid, lines[0]),
        *_memorised(grid),
        note(f"Made by code {versions}.", detail=True),
    ]


def scale(grid: Grid) -> str:
    """Returns the fields in which base differs from the paper's at this scale, as a sentence."""
    base, study = grid.study.rows[0], grid.study
    reported = any(row.paper for row in study.rows)
    paper = study.config(base) if reported else Config()  # a table of the paper has its own base
    fields = config.describe(grid.config(base), paper)
    return f"Base differs from the paper's in {fields}." if fields else "Base is the paper's."


def _unnamed(grid: Grid, lines: Sequence[RowResult]) -> list[Note]:
    """Names the fields in which a row differs from base without naming them."""
    base, notes = grid.config(grid.study.rows[0]), []
    for line in lines:
        c, row = line.c, line.row
        fields = config.difference(config.replace(c, seed=base.training.seed), base)
        others = {*row.changes, *grid.study.columns, *_FOLLOWING, *config.PATHS, *grid.sweep}
        both = (n for n in fields if config.has(c.model, n) and config.has(base.model, n))
        unnamed = [f"{n} {fields[n][0]} (base: {fields[n][1]})" for n in both if n not in others]
        if unnamed:
            text = f"{row.name} also differs from base in {', '.join(unnamed)}."
            notes.append(note(text, row.name, detail=True))
    return notes


def mean_score(line: RowResult, split: str, key: str) -> str:
    """Returns the mean of a score over a row's runs, as text; empty if its corpus has none."""
    scores = [run.result["scores"].get(split, {}) for run in line.runs]
    values = [s[key]["score"] for s in scores if key in s]
    return f"{math.fsum(values) / len(values):.1f}" if values else ""


def _other_subwords(lines: Sequence[RowResult]) -> list[Note]:
    """Names the rows whose PPL cannot be compared with base's."""
    base, notes = lines[0], []
    sided = [line.row.name for line in lines if not comparable(BPC, line, base)]
    subwords = [line.row.name for line in lines if not same_subwords(line, base)]
    if subwords:
        text = (
            f"PPL is per subword, so it cannot be compared with {base.row.name}'s where the "
            f"subwords differ: {'; '.join(subwords)}. BPC, bits per character, can."
        )
        notes.append(note(text, *subwords))
    if sided:
        text = (
            f"PPL cannot be compared with {base.row.name}'s where it predicts tokens from both "
            f"sides: {'; '.join(sided)}."
        )
        notes.append(note(text, *sided))
    return notes


def _measured(grid: Grid, runs: Sequence[Run]) -> str:
    """Says what the columns measure."""
    metric, split = metric_of(grid.data.corpus), grid.study.split
    signatures = {"PPL": "PPL per subword on dev"}
    scored = [run.result["scores"][split] for run in runs if split in run.result["scores"]]
    if scored:  # language models are not
        own = {scores[metric.key]["signature"] for scores in scored}
        signatures[metric.name] = f"{metric.name} on {split}: {'; '.join(sorted(own))}"
    for name in grid.computed:
        signatures[name] = _signature(grid, name, runs)
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
    own = metric == metric_of(grid.data.corpus).name
    how = "the same" if own else METRICS[metric].describe(Outputs((), (), (), data=grid.data))
    return f"{metric} on {split or grid.study.split}: {how}"


def _requirements(name: str) -> tuple[str, str]:
    """Returns what a metric on request needs to be computed, and why it may not be tested."""
    if name == CONTRASTIVE:
        return "`--metrics` or `run`, and parameters", "as base was not judged on the same pairs"
    if name == BPC:
        return "the corpus, and the likelihoods of sentences", _UNKNOWN
    if of_split(name)[1]:
        return "`run` with this metric", _UNKNOWN
    return "translations, which are not stored", _UNKNOWN


def _unmeasured(grid: Grid, lines: Sequence[RowResult]) -> list[Note]:
    """Says for each metric that is computed on request which rows lack it, or are not tested."""
    finished, notes = [line for line in lines if line.runs], []
    for name in grid.computed:
        measures = [(line.row.name, line.measure(name)) for line in finished]
        blank = [row for row, measure in measures if measure is None]
        untested = [row for row, measure in measures if measure and measure.draws is None]
        needed, reason = _requirements(name)
        for rows, lack in (
            (blank, f"{name} needs {needed}"),
            (untested, f"{name} is not tested, {reason}"),
        ):
            of_rows = "" if len(rows) == len(finished) else f" for {'; '.join(rows)}"
            notes += [note(f"{lack}{of_rows}.", *rows)] * bool(rows)
    return notes


def _tuning(grid: Grid, lines: Sequence[RowResult]) -> list[Note]:
    """Says how the values of a sweep were chosen, and which are at the edge of their range."""
    if not grid.sweep:
        return []
    values = "; ".join(f"{n} from {', '.join(map(str, x))}" for n, x in grid.sweep.items())
    on = "PPL and the score are" if grid.study.split == "dev" else "PPL is"
    tried = [(line.row.name, line.choice) for line in lines if line.choice.trials]
    seed = tried[0][1].trials[0].seed if tried else TRIAL_SEED
    own = f"seed {seed}, which is not scored" if seed else "seed 0"
    text = (
        f"Tuned: {values}; of {len(grid.trials)} trials of each row with {own}, the best by PPL "
        f"on every other sentence of dev is chosen. {on} measured on the remaining sentences of "
        "dev, both untuned and tuned."
    )
    if any(choice.at_edge for _, choice in tried):
        text += f" {EDGE}: at the edge of its range; a wider range may have a better value."
    notes = [note(text)]
    if not seed:
        text = (
            "The trials' seed is also scored, which favours the tuned rows, most those whose "
            "trials are close: `run` again gives trials a seed of their own."
        )
        notes.append(note(text))
    for name, choice in tried:
        if choice.missing:
            unfinished = f"{choice.missing} of {len(choice.trials)} trials not finished"
            notes.append(note(f"{name}: {unfinished}.", name))
        for trial in choice.trials:
            if trial.unusual:
                text = f"The trial of {name} at {trial.setting} is of {trial.unusual}."
                notes.append(note(text, name, detail=True))
    return notes


def _agreements(grid: Grid, lines: Sequence[RowResult]) -> list[str]:
    """Says how far the table agrees with the paper's: tuned and untuned if there is a sweep."""
    sentences = [agreement.sentence(x) for x in agreement.agreements(grid, lines)]
    untuned = [line.untuned for line in lines if line.untuned]
    of_untuned = agreement.agreements(grid, untuned) if untuned else []
    return sentences + [f"Untuned: {agreement.sentence(x)}" for x in of_untuned]


def _tests(grid: Grid, lines: Sequence[RowResult]) -> list[str]:
    """Says what a star means, what the tests could have found, and what is not tested."""
    tested, sentences = {n: x for n, x in tests(grid, lines).items() if x}, []
    if tested:
        count = max(x.tests for found in tested.values() for x in found)
        family = "1 test" if count == 1 else f"the {count} tests of this table, in all columns"
        sizes = {n: [x.detectable for x in found if x.scales] for n, found in tested.items()}
        units = {"PPL": "nats per token (PPL)"}
        least = [f"{statistics.median(x):.2g} {units.get(n, n)}" for n, x in sizes.items() if x]
        sentences += [
            f"*: differs from {lines[0].row.name} (a moderated t over seeds, variance over "
            f"sentences added; p < {LEVEL} after Bonferroni's correction for {family}; Welch's t "
            "must agree). Intervals are corrected likewise, so that they exclude 0 where there is "
            "a star." + " PPL is tested as its logarithm, NLL per token." * ("PPL" in tested),
            "No star is not equality: these tests find, with a probability of 80%, differences of "
            f"{', '.join(least) or 'no known size'} (in the median row).",
        ]
    kept = [name for name in grid.scores if name not in grid.computed]  # `_unmeasured` has others
    for name in kept if tested else ():
        measures = [x for line in lines[1:] if (x := line.measure(name))]
        if measures and name not in tested:
            sentences.append(f"{name} is not tested, {_UNKNOWN}.")
    columns = (x for line in lines for name in grid.scores if (x := line.measure(name)))
    if any(x.difference and x.p is None for x in columns):
        sentences.append(
            "Rows with one seed are not tested, as one run does not show how much seeds differ."
        )
    return sentences


def _baseline(grid: Grid, base: RowResult) -> list[Note]:
    f1 = mean_score(base, grid.study.split, "baseline")
    return [note(f"Right-branching trees reach an F1 of {f1}.", detail=True)] if f1 else []


def _memorised(grid: Grid) -> list[Note]:
    """Says that a model may know dev by heart; experiments/grades.py measures it."""
    data = grid.config(grid.study.rows[0]).data
    if data.corpus != "grammar" or data.grade != "easy" or 0 < data.pairs < 20_000:
        return []
    return [
        note(
            "Of the dev sentences of grade easy, 43% differ by at most one word from one of 60,000 "
            "training sentences (normal: 9%), so that memorising flatters."
        )
    ]


def _unusual(lines: Sequence[RowResult]) -> list[Note]:
    """Says why rows have a dagger: what differs in code, data or hardware from most runs."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        shown = {run.directory: run for x in (line, line.untuned) if x for run in x.runs}
        for run in shown.values():
            if run.unusual:
                reasons.setdefault(run.unusual, {}).setdefault(line.row.name, []).append(
                    str(run.seed)
                )
    notes = []
    for reason, rows in reasons.items():
        named = (f"{row}, seed {' and '.join(seeds)}" for row, seeds in rows.items())
        text = f"†, not compared with other rows: {reason} ({'; '.join(named)})."
        notes.append(note(text, *rows))
    return notes


def _cut(split: str, lines: Sequence[RowResult]) -> list[Note]:
    """Says how many outputs of the scored split ended at the limit of their length."""
    scoring = {x.row.name: [r.result["scoring"].get(split, {}) for r in x.runs] for x in lines}
    cut = {row: sum(x.get("cut", 0) for x in of_runs) for row, of_runs in scoring.items()}
    rows = [f"{row} {n:,}" for row, n in cut.items() if n]
    if not rows:
        return []
    said = f"Outputs for {split} that were cut at the limit of their length (max_extra), all runs"
    return [note(f"{said}: {', '.join(rows)}.", *(row for row, n in cut.items() if n))]


def _populations(lines: Sequence[RowResult]) -> list[Note]:
    """Names the rows that were trained together with others, if some were and some were not."""
    together = {
        line.row.name: any(run.result["trained_together"] > 1 for run in line.runs)
        for line in lines
        if line.runs
    }
    names = [name for name, vectorised in together.items() if vectorised]
    if not names or len(names) == len(together):
        return []
    text = f"Trained at once with others, in one vectorised program: {'; '.join(names)}."
    return [note(text, *names, detail=True)]


def _missing(lines: Sequence[RowResult]) -> list[Note]:
    """Gives the status of unfinished runs, and names the rows that lack seeds."""
    others = lines[1:] or lines  # base may have more seeds than they
    most = max(1, *(len(line.runs) for line in others))
    notes = [note(f"{x.row.name}: {x.status.rstrip('.')}.", x.row.name) for x in lines if x.status]
    lacking = [(x, most - len(x.runs)) for x in lines if not x.status and len(x.runs) < most]
    names = [x.row.name + (f" ({n} seed{'s' * (n > 1)})" if x.runs else "") for x, n in lacking]
    if names:
        notes.append(note(f"Missing: {'; '.join(names)}.", *(x.row.name for x, _ in lacking)))
    return notes
