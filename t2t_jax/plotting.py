"""Charts in Vega-Lite: their theme, the styles of rows, axes, labels, and files.

A chart is a specification, a dictionary, which a page embeds and `write` draws. Its data have a
`row`, and the colour, dash and shape of that row, so that a row looks the same in every chart. The
parameter `chosen` holds the names of the rows that are shown.
"""

import io
import itertools
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import files

Spec = dict[str, Any]

# Okabe and Ito's colours, which colour-blind readers can tell apart; base has the colour of text.
COLOURS = "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9".split()
INK = "currentColor"
_SHADES = 0.0, -0.5, 0.35  # white mixed into a colour, or black
_DASHES = [1, 0], [6, 3], [2, 2], [7, 2, 2, 2]
_SHAPES = "circle square triangle-up diamond triangle-down triangle-left triangle-right cross"
_SALT = 719_571  # of a million, the one with the fewest equal colours in a panel of our studies
FACET = 5  # rows in a panel, if each is a group of its own
LABEL = 11  # height of a label, in pixels
_GAP = 9  # between a panel, the marks of its labels, and their texts

CHOSEN: Spec = {"filter": "indexof(chosen, datum.row) >= 0"}  # a transform
COLOUR, DASH, SHAPE = (
    {channel: {"field": field, "type": "nominal", "scale": None}}
    for channel, field in (("color", "colour"), ("strokeDash", "dash"), ("shape", "shape"))
)
LINES = ("line", DASH | {"detail": {"field": "row"}}), ("point", SHAPE)  # layers of `panel`

_TEXT = {f"{part}Color": INK for part in ("label", "title")}
_THEME: Spec = {
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "title": {"color": INK, "subtitleColor": INK, "anchor": "middle", "fontSize": 12,
              "fontWeight": "normal", "subtitleFontSize": 10,
              "subtitleFont": "Liberation Sans, Arial, sans-serif"},
    "axis": _TEXT | {"gridColor": "#888", "gridOpacity": 0.2, "domainColor": INK, "tickColor": INK,
                     "titleFontWeight": "normal", "labelOverlap": True},
    "axisY": {"minExtent": 26},  # so that panels below each other are aligned
    "legend": _TEXT | {"titleFontWeight": "normal"},
    "point": {"filled": True, "opacity": 1, "size": 25, "strokeWidth": 1.2},
    "line": {"strokeWidth": 1.2},
    "text": {"fontSize": 9, "color": INK},
    "concat": {"spacing": 14},
}  # fmt: skip


def styles(names: Sequence[str], groups: Sequence[str] = ()) -> dict[str, Spec]:
    """Returns the fields of each row's data: its name, colour, dash and shape.

    The first row has the colour of text. Rows of the same colour differ in dash and shape.
    """
    shapes, before, out = _SHAPES.split(), Counter[int](), {}
    places = map(_place, groups) if groups else range(len(names))
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        n = before[place] if i else 0  # rows of this group before
        before[place] += i > 0
        shade = _SHADES[(place // len(COLOURS) + n) % len(_SHADES)] if groups else 0.0
        turn = place // len(COLOURS) + n if i else 0
        out[name] = {
            "row": name,
            "colour": _shaded(COLOURS[place % len(COLOURS)], shade) if i else INK,
            "dash": _DASHES[turn % len(_DASHES)],
            "shape": shapes[(place + turn) % len(shapes)] if i else shapes[0],
        }
    return out


def _place(group: str) -> int:
    """Returns the index of a group's colour and shade, which depends on its name alone.

    Groups A, B, ... have the colours in turn, and others the colour of a hash of their names.
    """
    if len(group) == 1 and "A" <= group <= "Z":
        return ord(group) - ord("A")
    return zlib.crc32(group.encode(), _SALT) % (len(COLOURS) * len(_SHADES))


def _shaded(colour: str, shade: float) -> str:
    """Returns a colour mixed with a share of white, or of black if it is negative."""
    rgb = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (x + shade * (255 - x) if shade > 0 else x + shade * x for x in rgb)
    return "#" + "".join(f"{round(x):02x}" for x in mixed)


def facets(rows: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Returns the rows of each panel: base and a group, or base and up to `FACET` single rows.

    Rows are given as names and groups, base first.
    """
    (base, _), *others = rows
    out: list[list[str]] = []
    alone = False  # whether the last panel has groups of one row
    for _, group in itertools.groupby(others, key=lambda row: row[1]):
        names = [name for name, _ in group]
        if len(names) == 1 and alone and len(out[-1]) <= FACET:
            out[-1] += names
        else:
            out.append([base, *names])
        alone = len(names) == 1
    return out or [[base]]


class Axis(NamedTuple):
    """An axis: its field and title, its range, and whether it is logarithmic."""

    field: str
    title: str | None
    low: float
    high: float
    log: bool = False
    properties: Mapping[str, Any] = MappingProxyType({})  # such as `values`, the ticks
    symlog: float = 0.0  # where an axis with both signs becomes logarithmic, if it does

    @classmethod
    def over(
        cls,
        field: str,
        title: str | None,
        numbers: Iterable[float],
        log: bool = False,
        **properties: Any,
    ) -> "Axis":
        """Returns an axis of all finite numbers, with a margin of 6% at both ends."""
        finite = [x for x in numbers if math.isfinite(x) and (x > 0 or not log)]
        low, high = min(finite, default=1.0), max(finite, default=1.0)
        if log:
            margin = (high / low) ** 0.06 if high > low else 1.1
            return cls(field, title, low / margin, high * margin, True, properties)
        margin = 0.06 * (high - low) or 0.1 * abs(high) or 0.1
        return cls(field, title, low - margin, high + margin, False, properties)

    @classmethod
    def of_levels(cls, field: str, title: str | None, levels: Sequence[Any], **more: Any) -> "Axis":
        """Returns an axis of the indices of levels, which are its labels; they may have lines."""
        texts = json.dumps([str(level).split("\n") for level in levels])
        axis = {"values": list(range(len(levels))), "labelExpr": f"{texts}[datum.value]"}
        ends = -0.4, len(levels) - 0.6
        return cls(field, title, *ends, properties=axis | {"labelOverlap": False} | more)

    def channel(self, field: str = "") -> Spec:
        """Returns the channel of its field, or of another one on the same scale."""
        kind: Spec = {"type": "log"} if self.log else {"type": "linear", "zero": False}
        if self.symlog:
            kind = {"type": "symlog", "constant": self.symlog}
        scale = kind | {"domain": [self.low, self.high], "nice": False}
        prefixed = self.high >= 10_000 and self.low >= 0.1  # 20k; 0.01 would be 10m
        ticks: Spec = {"tickCount": 5, "format": ".3~s" if prefixed else ".6~g"}
        return {"field": field or self.field, "type": "quantitative", "title": self.title,
                "scale": scale, "axis": {**ticks, **self.properties}}  # fmt: skip

    def pixels(self, values: Any, length: float) -> np.ndarray:
        """Returns the distance of values from the lower end of an axis of a length in pixels."""
        x, low, high = (
            np.log(z) if self.log else np.asarray(z) for z in (values, self.low, self.high)
        )
        return length * (x - low) / (high - low)


def tooltip(*fields: str | tuple[str, str], **formats: str) -> list[Spec]:
    """Returns the channel of a tooltip with these fields, or fields and titles."""
    pairs = [(x, x) if isinstance(x, str) else x for x in fields]
    return [
        {"field": field, "title": title} | ({"format": formats[field]} if field in formats else {})
        for field, title in pairs
    ]


def interval(y: Axis) -> tuple[Spec, Spec]:
    """Returns a layer of `panel` with a line from the fields low to high."""
    return {"type": "rule", "strokeOpacity": 0.6}, {"y": y.channel("low"), "y2": {"field": "high"}}


def panel(
    x: Axis,
    y: Axis,
    size: tuple[float, float],
    layers: Sequence[tuple[Any, Spec]],
    labelled: Iterable[Mapping[str, Any]] = (),
    always: bool = False,
) -> Spec:
    """Returns a panel with marks in the colours of rows.

    Args:
      size: width and height in pixels; more labels need a higher panel.
      layers: marks, each with its channels beside x, y and colour.
      labelled: data whose row is written right of the panel; they have the field of y.
      always: whether labels are shown even if their rows are not among the chosen ones.
    """
    labelled = list(labelled)
    width, height = size[0], max(size[1], LABEL * len(labelled))
    ends = [(float(height - y.pixels(v[y.field], height)), v) for v in labelled]
    shared = {"x": x.channel(), "y": y.channel()} | COLOUR
    marks = [{"mark": mark, "encoding": shared | channels} for mark, channels in layers]
    layer = [*marks, *labels(ends, width, height, always)]
    return {"width": width, "height": height, "layer": layer}


def zero(channel: str) -> Spec:
    """Returns a layer with a line at 0 of the channel x or y."""
    ends = {"x": {"y": {"value": 0}, "y2": {"value": "height"}}, "y": {}}[channel]
    mark = {"type": "rule", "color": INK, "strokeOpacity": 0.5, "tooltip": None}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": {channel: {"datum": 0}} | ends}


def labels(
    points: Sequence[tuple[float, Mapping[str, Any]]],
    width: float,
    height: float,
    always: bool = False,
) -> list[Spec]:
    """Returns layers that write a row's mark and name right of a panel, at the height of its point.

    Labels are moved apart by as little as possible. A point that is not finite, such as the end of
    a run that diverged, has its label below the others. A point is y, in pixels from the upper edge
    of the panel, and a style; labels are as in `panel`.
    """
    from scipy.optimize import isotonic_regression

    ordered = sorted(((y if math.isfinite(y) else height, i) for i, (y, _) in enumerate(points)))
    if not ordered:
        return []
    steps = LABEL * np.arange(len(ordered))
    middle = isotonic_regression(np.array([y for y, _ in ordered]) - steps).x
    slots = np.clip(middle, 0, max(0, height - steps[-1])) + steps
    values = [
        {**{name: points[i][1][name] for name in ("row", "colour", "shape")}, "slot": round(y, 1)}
        for y, (_, i) in zip(slots.tolist(), ordered, strict=True)
    ]
    data = {"data": {"values": values}} | ({} if always else {"transform": [CHOSEN]})
    slot = {"y": {"field": "slot", "type": "quantitative", "scale": None, "axis": None}}
    text = slot | {"x": {"value": width + 2 * _GAP}, "text": {"field": "row"}}
    return [
        data
        | {"mark": "point", "encoding": slot | {"x": {"value": width + _GAP}} | COLOUR | SHAPE},
        data | {"mark": {"type": "text", "align": "left"}, "encoding": text},
    ]


def chart(
    body: Spec, names: Sequence[str] = (), title: str | Sequence[str] = "", paper: str = "white"
) -> Spec:
    """Returns a whole specification, of a body with data and panels in which these rows are shown.

    The lines of a title after the first are small. `paper` is the colour of the background.
    """
    first, *rest = [title] if isinstance(title, str) else title
    return files.finite({
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": paper,
        "padding": 10,
        "config": _THEME,
        "params": [{"name": "chosen", "value": list(names)}],
        **({"title": {"text": first, "subtitle": rest}} if first else {}),
        **body,
    })  # fmt: skip


def picture(spec: Spec) -> str:
    """Returns the SVG of a chart."""
    import vl_convert

    return vl_convert.vegalite_to_svg(spec)


def write(path: Path, spec: Spec) -> Path:
    """Draws a chart as PATH.png, .svg and .pdf; returns the first path."""
    import vl_convert

    svg = picture(spec)
    png = path.with_name(f"{path.name}.png")
    files.write(png, _with_palette(vl_convert.svg_to_png(svg, scale=1.5)))
    files.write(png.with_suffix(".svg"), svg)
    files.write(png.with_suffix(".pdf"), vl_convert.svg_to_pdf(svg))
    return png


def _with_palette(png: bytes) -> bytes:
    """Returns a PNG with a palette of 256 colours, a tenth of the size."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    out = io.BytesIO()
    reduced.save(out, "png", optimize=True)
    return out.getvalue()
