"""Contrastive accuracy of the rows of a study by type of error, and against distance."""

from collections.abc import Mapping, Sequence

from t2t_jax.data.grammar.contrastive import DISTANCES
from t2t_jax.evaluation.contrastive import Accuracy, Judgement, accuracies, span
from t2t_jax.runs import judging, store
from t2t_jax.study.comparison import Line
from t2t_jax.study.distances import Curves
from t2t_jax.study.typeset import Cell, Table, without_empty

Accuracies = Mapping[str, Sequence[Accuracy]]  # by the name of the row
_NOTE = (
    "Percent of the minimal pairs whose translation is likelier than its version with an error, "
    "the mean over seeds; in brackets Wilson's 95% interval, over pairs alone. Distances are in "
    "words, between the two that must agree; pairs without one count in the column of all."
)


def of_rows(lines: Sequence[Line]) -> Accuracies:
    """Returns the accuracies of the rows whose runs have all been judged on the same set.

    That is the set of the first judged row. The judgement of a pair is the mean over seeds.
    """
    found, sets = dict[str, Sequence[Accuracy]](), set[str]()
    for line in lines:
        runs = line.entry.runs
        signatures = {run.result.get(store.CONTRASTIVE, {}).get("signature", "") for run in runs}
        every = [judging.kept(run.directory, run.result) for run in runs]
        sets = sets or signatures - {""}
        if runs and all(every) and signatures == sets:
            found[line.entry.row.name] = accuracies(map(_mean, zip(*every, strict=True)))
    return found


def _mean(judgements: Sequence[Judgement]) -> Judgement:
    """Returns the judgement of a pair, with the share of the seeds whose judgement is right."""
    return judgements[0]._replace(right=sum(x.right for x in judgements) / len(judgements))


def curves(rows: Accuracies) -> list[Curves]:
    """Returns the accuracy against distance for each type of error that has several distances."""
    first = next(iter(rows.values()), ())
    out = []
    for kind in dict.fromkeys(x.type for x in first if x.distance):
        parts = [(x.distance, x.n) for x in first if x.type == kind and x.distance]
        shares = {
            name: [x.share for x in row if x.type == kind and x.distance]
            for name, row in rows.items()
        }
        out.append(Curves(f"{kind}: distance, in words", parts, shares))
    return out


def table(rows: Accuracies) -> Table:
    """Returns a line for each row and type of error, with a column for each distance."""
    distances = [span(*ends) for ends in DISTANCES]
    header = ("", ""), ("", "error"), ("", "n"), ("", "all"), *(("distance", x) for x in distances)
    groups = {
        name: [
            tuple(map(Cell, (name, x.type, f"{x.n:,}", *_texts(row, x.type, ["", *distances]))))
            for x in row
            if not x.distance
        ]
        for name, row in rows.items()
    }
    return without_empty("Contrastive accuracy.", header, groups, (_NOTE,))


def _texts(row: Sequence[Accuracy], kind: str, distances: Sequence[str]) -> list[str]:
    """Returns the accuracy of a type at each distance with its interval; blank without pairs."""
    cells = {x.distance: x for x in row if x.type == kind}
    found = (cells.get(distance) for distance in distances)
    return [f"{x.share:.1f} ({x.low:.1f} to {x.high:.1f})" if x else "" for x in found]
