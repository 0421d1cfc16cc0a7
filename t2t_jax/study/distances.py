"""Quality against distance: BLEU by the length of the longest dependency and of the sentence.

Needs a corpus that knows its sentences' dependencies, as grammar does: it shows where windows end.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from t2t_jax.data.cache import Split
from t2t_jax.evaluation.bleu import of_sums
from t2t_jax.study import results
from t2t_jax.study.grid import Grid
from t2t_jax.study.results import Entry

_PARTS = 7  # into which the sentences are divided, as equal as ties allow


def parts(values: np.ndarray) -> list[np.ndarray]:
    """Indices of the values [sentences], divided by size; equal values stay together."""
    edges = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS, method="nearest"))
    where = np.searchsorted(edges, values, side="left")
    return [np.flatnonzero(where == i) for i in np.unique(where)]


def curve(entry: Entry, divided: Sequence[np.ndarray]) -> list[float]:
    """BLEU of each part, the mean over seeds."""
    each = [np.array(run.statistics) for run in entry.runs]
    return [float(np.mean([of_sums(s[part].sum(axis=0)) for s in each])) for part in divided]


def draw(
    grid: Grid, split: Split, *, only: str = "", mix: bool = False, report: Callable[[str], object]
) -> Path | None:
    """Draws what the grid's store holds; the PNG, beside which lies an SVG. None: nothing known.

    Args:
      split: the sentences that the study is scored on.
    """
    if not split.extras or "dependency" not in split.extras[0]:
        return None
    found = results.collect(grid, only=only, mix=mix, report=report)
    rows = [entry for entry in found if entry.runs]
    if not rows:
        return None
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    colours, marks = plt.get_cmap("tab20"), "os^Dv<>pPX*h"
    for ax, values, what in (
        (
            axes[0],
            np.array([x["dependency"] for x in split.extras]),
            "longest dependency, in words",
        ),
        (axes[1], np.array([len(r.split()) for r in split.references]), "words of the sentence"),
    ):
        divided = parts(values)
        names = [_span(values[part]) for part in divided]
        for i, entry in enumerate(rows):
            style = {"color": "black", "linewidth": 2.5} if i == 0 else {"color": colours(i % 20)}
            ax.plot(
                names, curve(entry, divided), marker=marks[i % 12], label=entry.row.name, **style
            )
        ax.set_xlabel(f"{what} (number of sentences)")
        ax.set_xticks(
            range(len(names)), [f"{n}\n({len(p)})" for n, p in zip(names, divided, strict=True)]
        )
        ax.grid(alpha=0.3)
    axes[0].set_ylabel(f"BLEU on {grid.study.split}")
    axes[1].legend(fontsize=7)
    figure.suptitle(f"{grid.study.title}: quality against distance")
    path = grid.home / f"{grid.name}-distances.png"
    for kind in (".svg", ".png"):
        figure.savefig(path.with_suffix(kind), dpi=150)
    plt.close(figure)
    return path


def _span(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"
