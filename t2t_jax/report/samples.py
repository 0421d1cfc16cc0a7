"""Translations of the same sentences by every row, with differences from the reference marked."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.runs import store
from t2t_jax.study.comparison import Line
from t2t_jax.study.grid import Grid

SENTENCES = 12  # shown, evenly spaced over the split


class Sample(NamedTuple):
    """A sentence with its translations.

    Attributes:
      rows: the name of each row, and its translation as parts: text, and whether it is marked.
    """

    source: str
    reference: str
    rows: Sequence[tuple[str, Sequence[tuple[str, bool]]]]


def samples(grid: Grid, lines: Sequence[Line], split: Split) -> list[Sample]:
    """Returns sentences of the split, as the first seed of every row translates them."""
    files = grid.study.split, grid.data.target
    read = {
        line.entry.row.name: store.read_translations(line.entry.runs[0].directory, *files)
        for line in lines
        if line.entry.runs
    }
    translations = {row: lines for row, lines in read.items() if lines is not None}
    if not translations:
        return []
    chosen = np.unique(np.linspace(0, len(split.sources) - 1, SENTENCES).astype(int))
    return [
        Sample(
            split.sources[i],
            split.references[i],
            [(row, marked(x[i], split.references[i])) for row, x in translations.items()],
        )
        for i in chosen.tolist()
    ]


def marked(text: str, reference: str) -> list[tuple[str, bool]]:
    """Returns runs of words, and whether they differ from the reference in word or place."""
    words, parts, end = text.split(), [], 0
    matcher = SequenceMatcher(None, words, reference.split(), autojunk=False)
    for block in matcher.get_matching_blocks():
        if block.a > end:
            parts.append((" ".join(words[end : block.a]), True))
        if block.size:
            parts.append((" ".join(words[block.a : block.a + block.size]), False))
        end = block.a + block.size
    return parts
