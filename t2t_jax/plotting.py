"""The style of every plot, and its files: PNG for the screen, SVG and PDF for a paper."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2t_jax import files

# Okabe and Ito's colours, which colour-blind readers can tell apart; base is black.
COLOURS = "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9".split()
LINES = "-", "--", ":", "-."
MARKS = "os^Dv<>pPX*h"

_SETTINGS: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.markersize": 4,
    "legend.fontsize": 6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # TrueType, which journals accept
    "svg.hashsalt": "t2t_jax",  # the same figure gives the same file
}


def line(i: int) -> dict[str, Any]:
    """Returns the style of the i-th line: the first is black; lines differ by more than colour."""
    if i == 0:
        return {"color": "black", "linestyle": "-", "marker": MARKS[0], "zorder": 3}
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": LINES[(i // len(COLOURS)) % len(LINES)],
        "marker": MARKS[(i + i // len(COLOURS)) % len(MARKS)],  # each colour goes through all marks
    }


@contextmanager
def figure(path: Path, *panels: int, size: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """Yields a figure of `size` inches and its axes, then writes PATH.png, .svg and .pdf."""
    import matplotlib.pyplot as plt

    with plt.rc_context(_SETTINGS):
        made, axes = plt.subplots(*panels, figsize=size)
        try:
            yield made, axes
            for kind, undated in (
                ("png", {}),
                ("svg", {"Date": None}),
                ("pdf", {"CreationDate": None}),
            ):
                content = io.BytesIO()
                made.savefig(content, format=kind, metadata=undated)
                files.write(path.with_name(f"{path.name}.{kind}"), content.getvalue())
        finally:
            plt.close(made)


def logarithmic(*axes: Any) -> None:
    """Makes axes logarithmic; call it last, as the ticks depend on the data.

    Ticks are plain numbers: at 1, 2 and 5 times powers of 10, or a few even ones on a short axis.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for axis in axes:
        set_scale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
        set_scale("log")
        low, high = axis.get_data_interval()
        wide = high > 10 * low
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(4))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_locator(NullLocator())
