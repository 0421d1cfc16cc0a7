"""The style of every plot, and its files: PNG for the screen, SVG and PDF for a paper."""

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import files

# Okabe and Ito's colours, which colour-blind readers can tell apart; base is black.
COLOURS = "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9".split()
LINES = "-", "--", ":", "-."
MARKS = "os^Dv<>pPX*h"
FACET = 5  # rows in a panel, if each is a group of its own

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


def styles(groups: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a style for each row of a table: its colour is its group's, its marker its own.

    If each row is a group, the styles are those of `line`. The first row is black. A group with
    more rows than there are markers continues with the next colour.

    Args:
      groups: the group of each row.
    """
    hues = [(1 + list(dict.fromkeys(groups[1:])).index(x)) % len(COLOURS) for x in groups[1:]]
    out = [line(0)]
    for i, hue in enumerate(hues):
        place = hues[:i].count(hue)  # among the rows of this colour
        colour = COLOURS[(hue + place // len(MARKS)) % len(COLOURS)]
        marker, pattern = MARKS[(hue + place) % len(MARKS)], LINES[place % len(LINES)]
        out.append({"color": colour, "linestyle": pattern, "marker": marker})
    return out


def facets(groups: Sequence[str]) -> list[list[int]]:
    """Returns the rows of each panel: those of a group, or up to `FACET` groups of a single row.

    The first row, base, is in no list, as it is shown in every panel.
    """
    out: list[list[int]] = []
    alone = False  # whether the last panel has groups of one row
    for _, rows in itertools.groupby(range(1, len(groups)), key=lambda i: groups[i]):
        members = list(rows)
        if len(members) == 1 and alone and len(out[-1]) < FACET:
            out[-1] += members
        else:
            out.append(members)
        alone = len(members) == 1
    return out or [[]]


def label(
    axes: Any, points: Sequence[tuple[float, float, str, str]], height: float = 0.045
) -> None:
    """Writes a label right of the axes for each point, with a line to it; call it last.

    Labels are at the height of their points, or moved apart by as little as possible. A point that
    is not finite, such as that of a run that diverged, has no label.

    Args:
      points: x, y, text and colour.
      height: the height of a label, as a share of that of the axes.
    """
    from scipy.optimize import isotonic_regression

    to_axes = axes.transData + axes.transAxes.inverted()
    points = [p for p in points if np.isfinite(to_axes.transform(p[:2])).all()]
    if not points:
        return
    places = to_axes.transform([p[:2] for p in points])
    order = np.argsort(places[:, 1], kind="stable")
    steps = height * np.arange(len(points))
    apart = isotonic_regression(places[order, 1] - steps).x + steps
    for i, y in zip(order.tolist(), apart, strict=True):
        x_data, y_data, text, colour = points[i]
        axes.annotate(
            text, (x_data, y_data), (1.06, y), textcoords="axes fraction", color=colour,
            fontsize=6, va="center", annotation_clip=False,
            arrowprops=dict(
                arrowstyle="-", color=colour, linewidth=0.4, shrinkA=1, shrinkB=2, relpos=(0, 0.5)
            ),
        )  # fmt: skip


@contextmanager
def figure(
    path: Path, *panels: int, size: tuple[float, float], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """Yields a figure of `size` inches and its axes, then writes PATH.png, .svg and .pdf.

    Args:
      options: of `matplotlib.pyplot.subplots`.
    """
    import matplotlib.pyplot as plt

    with plt.rc_context(_SETTINGS):
        made, axes = plt.subplots(*panels, figsize=size, **options)
        try:
            yield made, axes
            for kind, undated in (
                ("png", {}),
                ("svg", {"Date": None}),
                ("pdf", {"CreationDate": None}),
            ):
                content = io.BytesIO()
                made.savefig(content, format=kind, metadata=undated)
                made.set_layout_engine("none")  # the layout of the first file is kept
                file = content.getvalue() if kind != "png" else _with_palette(content)
                files.write(path.with_name(f"{path.name}.{kind}"), file)
        finally:
            plt.close(made)


def _with_palette(png: io.BytesIO) -> bytes:
    """Returns a PNG with a palette of 256 colours, a third of the size."""
    from PIL import Image

    with Image.open(png) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "png", optimize=True)
    return out.getvalue()


def logarithmic(*axes: Any, narrow: bool = False) -> None:
    """Makes axes logarithmic; call it last, as the ticks depend on the data.

    Ticks are plain numbers, or have a metric prefix if some exceed 10,000 (20k, 3M). They are at 1,
    2 and 5 times powers of 10, or evenly spaced on a short axis.

    Args:
      narrow: whether there is room for only a few ticks; the limits of the axes must be set.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

    for axis in axes:
        set_scale = axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale
        set_scale("log")
        low, high = axis.get_view_interval() if narrow else axis.get_data_interval()
        wide = high > (6 if narrow else 10) * low
        subs = (1, 3) if narrow and high > 20 * low else (1, 2, 5)
        axis.set_major_locator(LogLocator(subs=subs) if wide else MaxNLocator(3 if narrow else 4))
        plain = high < 10_000
        axis.set_major_formatter((lambda x, _: f"{x:g}") if plain else EngFormatter(sep=""))
        axis.set_minor_locator(NullLocator())
