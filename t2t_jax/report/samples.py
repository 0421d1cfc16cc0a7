"""Translations of the same sentences by every run, with differences from the reference marked."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.data.corpora import CORPORA
from t2t_jax.runs import store
from t2t_jax.study.collecting import RowResult
from t2t_jax.study.grid import Grid

SENTENCES = 12  # shown, evenly spaced over the split
SAME, ADDED, OMITTED = "same", "added", "omitted"


def samples(grid: Grid, lines: Sequence[RowResult], split: Split) -> list[dict[str, Any]]:
    """Returns sentences of the split with the translations of every run that has stored them.

    A translation has its row and seed, the words as `marked`, and whether it is of the row's first
    run.
    """
    files = grid.study.split, grid.data.target
    runs = [(line, run) for line in lines for run in line.runs]
    every = [(*x, store.read_translations(x[1].directory, *files)) for x in runs]
    read = [(line, run, text) for line, run, text in every if text is not None]
    if not read or CORPORA[grid.data.corpus].documents:  # whose outputs are likelihoods
        return []
    out = []
    for i in np.unique(np.linspace(0, len(split.sources) - 1, SENTENCES).astype(int)).tolist():
        source, reference = split.sources[i], split.references[i]
        translations = [
            dict(row=x.row.name, seed=run.seed, first=run is x.runs[0],
                 parts=marked(text[i], reference))
            for x, run, text in read
        ]  # fmt: skip
        out.append(dict(source=source, reference=reference, translations=translations))
    return out


def marked(text: str, reference: str) -> list[tuple[str, str]]:
    """Returns spans of words, each in both texts, added to the reference, or omitted from it."""
    words, expected, parts = text.split(), reference.split(), []
    matcher = SequenceMatcher(None, words, expected, autojunk=False)
    for kind, start, end, low, high in matcher.get_opcodes():
        if kind != "equal" and low < high:
            parts.append((" ".join(expected[low:high]), OMITTED))
        if start < end:
            parts.append((" ".join(words[start:end]), SAME if kind == "equal" else ADDED))
    return parts
