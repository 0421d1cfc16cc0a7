"""Accuracy of one run of a diagnostic task on its test sets, by length and by distance."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation import accuracy
from t2t_jax.study import statistics
from t2t_jax.study.distances import parts, span
from t2t_jax.study.typeset import Cell, Table

NOTES = (
    "Intervals: 95%, by bootstrap over sequences. They have no width if all sequences are right, "
    "or all are wrong.",
    f"accuracy: {accuracy.SIGNATURE}; exact: {accuracy.EXACT}.",
    "length: tokens of the longest sequence; distance: words from an answer's place to the question"
    ", the largest of several.",
)


def table(title: str, predicted: Mapping[str, tuple[Sequence[str], Split]]) -> Table:
    """Returns a table with a group for each split: all of it, and its parts by distance.

    Args:
      predicted: by split the predictions (`predictions.predict`) and the split as the model reads
        it.
    """
    header = ("", "split"), ("", "length"), ("", "distance"), ("", "n"), ("", "accuracy")
    groups = []
    for name, (outputs, split) in predicted.items():
        counts = np.array(accuracy.sentence_statistics(outputs, split.references))
        length = str(max(split.source.lengths.max(), split.target.lengths.max()))
        lines = [_line(name, length, "", counts)]
        if split.extras:
            distances = np.array([extra["dependency"] for extra in split.extras])
            lines += [_line("", "", span(distances[i]), counts[i]) for i in parts(distances)]
        groups.append(tuple(lines))
    if max(map(len, groups)) == 1:  # without parts, nothing needs to be separated
        groups = [tuple(line for (line,) in groups)]
    return Table(title, (*header, ("", "exact")), tuple(groups), NOTES)


def _line(name: str, length: str, distance: str, counts: np.ndarray) -> tuple[Cell, ...]:
    measured = (_interval(counts, x) for x in (accuracy.of_sums, accuracy.exact_of_sums))
    return tuple(map(Cell, (name, length, distance, f"{len(counts):,}", *measured)))


def _interval(counts: np.ndarray, of_sums: Callable[[np.ndarray], np.ndarray]) -> str:
    """Returns a metric of statistics [sequences, counts] with its interval, as text."""
    (draws,) = statistics.resampled([counts], of_sums)
    low, high = np.percentile(draws, (2.5, 97.5))
    return f"{of_sums(counts.sum(axis=0)):.1f} ({low:.1f} to {high:.1f})"
