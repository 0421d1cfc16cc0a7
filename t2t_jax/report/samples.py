"""One sentence as every row translates it, with what differs from the reference marked."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.runs import store
from t2t_jax.study.grid import Grid
from t2t_jax.study.tables import Line

SENTENCES = 12


class Sample(NamedTuple):
    """A sentence; of each row its name and parts of its translation: text, whether it is marked."""

    source: str
    reference: str
    rows: Sequence[tuple[str, Sequence[tuple[str, bool]]]]


def samples(grid: Grid, found: Sequence[Line], split: Split) -> list[Sample]:
    """Sentences from all over the split, as the first seed of every row translates them."""
    of = grid.study.split, grid.data.target
    read = {
        line.entry.row.name: store.read_translations(line.entry.runs[0].directory, *of)
        for line in found
        if line.entry.runs
    }
    rows = {row: lines for row, lines in read.items() if lines is not None}
    if not rows:
        return []
    chosen = np.unique(np.linspace(0, len(split.sources) - 1, SENTENCES).astype(int))
    return [
        Sample(
            split.sources[i],
            split.references[i],
            [(row, marked(lines[i], split.references[i])) for row, lines in rows.items()],
        )
        for i in chosen.tolist()
    ]


def marked(text: str, reference: str) -> list[tuple[str, bool]]:
    """Runs of words, and whether they stand elsewhere in the reference or not at all."""
    ours, theirs = text.split(), reference.split()
    out, at = [], 0
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        if block.a > at:
            out.append((" ".join(ours[at : block.a]), True))
        if block.size:
            out.append((" ".join(ours[block.a : block.a + block.size]), False))
        at = block.a + block.size
    return out
