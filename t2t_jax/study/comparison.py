"""Comparison of the rows of a study: means over seeds, and significance of their differences."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from t2t_jax.evaluation.metric import metric_of
from t2t_jax.study import statistics
from t2t_jax.study.entries import Entry
from t2t_jax.study.grid import Grid
from t2t_jax.study.registry import Row
from t2t_jax.study.statistics import Difference, Spread

LEVEL = 0.05  # significance level of the corrected p


@dataclass(frozen=True)
class Line:
    """The numbers of a row.

    Attributes:
      score: the grid's metric.
      difference: of the score from base's; None for base, and for rows that are not comparable.
      p: of no difference from base, corrected for the number of rows.
    """

    entry: Entry
    PPL: Spread | None
    score: Spread | None
    difference: Difference | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        return self.p is not None and self.p < LEVEL

    @property
    def unusual(self) -> bool:
        """Whether a run has other origins than most runs of the table."""
        return any(run.unusual for run in self.entry.runs)


def compare_with_base(grid: Grid, entries: Sequence[Entry]) -> list[Line]:
    """Returns the numbers of every row, and how it differs from base, the first row."""
    scores, draws = _scores(grid, entries)
    lines: list[Line] = []
    for i, entry in enumerate(entries):
        perplexities = [run.result["dev_perplexity"] for run in entry.runs]
        ppl = statistics.spread(perplexities) if perplexities else None
        score = statistics.spread(scores[i]) if scores[i] else None
        line = Line(entry, ppl, score)
        row_draws, base_draws = draws[i], draws[0]
        comparable = i and not line.unusual and not lines[0].unusual
        if comparable and row_draws is not None and base_draws is not None:
            difference = statistics.compare(scores[i], scores[0], row_draws, base_draws)
            line = replace(line, difference=difference)
        lines.append(line)
    p = statistics.corrected([line.difference and line.difference.p for line in lines])
    return [replace(line, p=x) for line, x in zip(lines, p, strict=True)]


def compare_pairs(
    grid: Grid, lines: Sequence[Line]
) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Returns the difference of any two comparable rows, and p corrected for all pairs, by name."""
    entries = [line.entry for line in lines if line.score and not line.unusual]
    scores, draws = _scores(grid, entries)
    differences = {}
    for i, j in itertools.combinations(range(len(entries)), 2):
        draws_i, draws_j = draws[i], draws[j]
        assert draws_i is not None
        assert draws_j is not None
        differences[i, j] = statistics.compare(scores[i], scores[j], draws_i, draws_j)
    corrected = statistics.corrected([difference.p for difference in differences.values()])
    pairs = {}
    for ((i, j), difference), p in zip(differences.items(), corrected, strict=True):
        name_i, name_j = entries[i].row.name, entries[j].row.name
        pairs[name_i, name_j] = difference.size, p
        pairs[name_j, name_i] = -difference.size, p
    return pairs


def paper_score(grid: Grid, row: Row) -> float | None:
    """Returns the paper's value of the grid's metric; None for a sample, whose test set differs."""
    sample = grid.data.corpus.endswith("_sample")
    return None if sample else getattr(row, metric_of(grid.data.corpus).name)


def opposes_paper(grid: Grid, line: Line, base: Line) -> bool:
    """Returns whether a difference from base is significant and opposite in sign to the paper's."""
    row_score, base_score = (paper_score(grid, x.entry.row) for x in (line, base))
    if not line.significant or line.difference is None or row_score is None or base_score is None:
        return False
    return line.difference.size * (row_score - base_score) < 0


def _scores(
    grid: Grid, entries: Sequence[Entry]
) -> tuple[list[list[float]], list[np.ndarray | None]]:
    """Returns the metric of each row's seeds, and the same of `statistics.resampled` sentences."""
    of_sums = metric_of(grid.data.corpus).of_sums
    scores = [[run.score for run in e.runs if run.score is not None] for e in entries]
    draws = [
        statistics.resampled([np.array(run.statistics) for run in e.runs], of_sums)
        if score
        else None
        for e, score in zip(entries, scores, strict=True)
    ]
    return scores, draws
