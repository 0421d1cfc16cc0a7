"""Quality against distance: curves of a study, its accuracy on minimal pairs, one diagnostic run.

The corpus must know the dependencies of its sentences, as grammar does. The curves show at which
distance attention with a window fails.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation import contrastive, teacher_forced
from t2t_jax.evaluation.contrastive import DISTANCES, Accuracy, accuracies
from t2t_jax.evaluation.metrics import metric_of, percentage
from t2t_jax.runs import judging, store
from t2t_jax.study import statistics
from t2t_jax.study.collecting import Lines, RowResult
from t2t_jax.study.typeset import Table, table

Accuracies = Mapping[str, Sequence[Accuracy]]  # by the name of the row
_PARTS = 7  # number of parts of the sentences, as equal as ties allow
_CONTRASTIVE_NOTE = (
    "Percent of the minimal pairs whose translation is likelier than its version with an error, "
    "the mean over seeds; in brackets Wilson's 95% interval, over pairs alone. Distances are in "
    "words, between the two that must agree; pairs without one count in the column of all."
)
_DIAGNOSTIC_NOTES = (
    "Intervals: 95%, by bootstrap over sequences. They have no width if all sequences are right, "
    "or all are wrong.",
    f"accuracy: {teacher_forced.SIGNATURE}; exact: {teacher_forced.EXACT}.",
    "length: tokens of the longest sequence; distance: words from an answer's place to the question"
    ", the largest of several.",
)


class Curves(NamedTuple):
    """The metric of every row, by name, on each part of the sentences, the mean over seeds."""

    what: str  # the quantity by which the sentences are divided
    parts: Sequence[tuple[str, int]]  # its range in each part, as text, and the number of sentences
    rows: Mapping[str, Sequence[float]]
    ends: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({})  # of 95% intervals


def curves(lines: Lines, split: Split, part: slice) -> list[Curves]:
    """Returns the curves of a part of a split by dependency and by length, if both are known."""
    if not split.extras or "dependency" not in split.extras[0]:
        return []
    every, out = np.arange(len(split.extras)), list[Curves]()
    # Language models have no score, and runs of other data may have other sentences.
    scored = [x for x in lines if x.score and {len(r.statistics) for r in x.runs} == {len(every)}]
    for what, sizes in (
        ("longest dependency, in words", [x["dependency"] for x in split.extras]),
        ("words of the sentence", [len(r.split()) for r in split.references]),
    ):
        values = np.array(sizes)
        indices = [every[part][i] for i in parts(values[part])]
        spans = [(span(values[i]), len(i)) for i in indices]
        out.append(Curves(what, spans, {x.row.name: curve(x, indices) for x in scored}))
    return out


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Returns the indices of values [sentences] in parts by size; equal values stay together."""
    edges = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS, method="nearest"))
    part_of = np.searchsorted(edges, values, side="left")
    return [np.flatnonzero(part_of == i) for i in np.unique(part_of)]


def curve(row: RowResult, indices: Sequence[np.ndarray]) -> list[float]:
    """Returns the metric on each part of the sentences, the mean over seeds."""
    of_sums = metric_of(row.c.data.corpus).of_sums
    counts = [np.array(run.statistics) for run in row.runs]
    return [float(np.mean([of_sums(x[i].sum(axis=0)) for x in counts])) for i in indices]


def span(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"


def contrastive_accuracies(lines: Lines) -> Accuracies:
    """Returns the accuracies of the rows whose runs have all been judged on the same set.

    That is the set of the first judged row. The judgement of a pair is the mean over seeds.
    """
    found, sets = dict[str, Sequence[Accuracy]](), set[str]()
    for line in lines:
        runs = line.runs
        signatures = {run.result.get(store.CONTRASTIVE, {}).get("signature", "") for run in runs}
        every = [judging.kept(run.directory, run.result) for run in runs]
        if len(signatures) == 1:  # else, its runs were judged on different pairs
            sets = sets or signatures - {""}
        if runs and all(every) and signatures == sets:
            pairs = zip(*every, strict=True)
            means = (x[0]._replace(right=sum(y.right for y in x) / len(x)) for x in pairs)
            found[line.row.name] = accuracies(means)
    return found


def contrastive_curves(rows: Accuracies) -> list[Curves]:
    """Returns the accuracy against distance for each type of error that has several distances."""
    first, out = next(iter(rows.values()), ()), []
    for kind in dict.fromkeys(x.type for x in first if x.distance):
        far = {n: [x for x in row if x.type == kind and x.distance] for n, row in rows.items()}
        parts = [(x.distance, x.n) for x in first if x.type == kind and x.distance]
        shares = {name: [x.share for x in row] for name, row in far.items()}
        ends = {name: [(x.low, x.high) for x in row] for name, row in far.items()}
        out.append(Curves(f"{kind}: distance, in words", parts, shares, ends))
    return out


def contrastive_table(rows: Accuracies) -> Table:
    """Returns a line for each row and type of error, with a column for each distance."""
    spans, groups = [contrastive.span(*ends) for ends in DISTANCES], []
    header = ("", ""), ("", "error"), ("", "n"), ("", "all"), *(("distance", x) for x in spans)
    for name, row in rows.items():
        texts = {(x.type, x.distance): f"{x.share:.1f} ({x.low:.1f} to {x.high:.1f})" for x in row}
        every = ((x.type, x.n) for x in row if not x.distance)
        groups.append([
            (name, kind, f"{n:,}", *(texts.get((kind, span), "") for span in ("", *spans)))
            for kind, n in every
        ])  # fmt: skip
    return table("Contrastive accuracy.", header, groups, (_CONTRASTIVE_NOTE,))


def diagnostic_table(title: str, predicted: Mapping[str, tuple[Sequence[str], Split]]) -> Table:
    """Returns a table with a group for each split: all of it, and its parts by distance.

    `predicted` has the predictions (`predictions.predict`) and the split as the model reads it.
    """
    header = ("", "split"), ("", "length"), ("", "distance"), ("", "n"), ("", "accuracy")
    groups = []
    for name, (outputs, split) in predicted.items():
        counts = np.array(teacher_forced.sentence_statistics(outputs, split.references))
        length = str(max(split.source.lengths.max(), split.target.lengths.max()))
        lines = [(name, length, "", *_measured(counts))]
        if split.extras and "dependency" in split.extras[0]:
            distances = np.array([extra["dependency"] for extra in split.extras])
            every = parts(distances)
            lines += [("", "", span(distances[i]), *_measured(counts[i])) for i in every]
        groups.append(lines)
    if max(map(len, groups)) == 1:  # without parts, nothing needs to be separated
        groups = [[line for (line,) in groups]]
    return table(title, (*header, ("", "exact")), groups, _DIAGNOSTIC_NOTES)


def _measured(counts: np.ndarray) -> tuple[str, str, str]:
    """Returns the number of [sequences, counts], and both accuracies with their intervals."""

    def text(of_sums: Callable[[np.ndarray], np.ndarray]) -> str:
        (draws,) = statistics.resampled([counts], of_sums)
        low, high = np.percentile(draws, (2.5, 97.5))
        return f"{of_sums(counts.sum(axis=0)):.1f} ({low:.1f} to {high:.1f})"

    return f"{len(counts):,}", text(percentage), text(teacher_forced.exact_of_sums)
