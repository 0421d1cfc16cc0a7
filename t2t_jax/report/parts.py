"""Charts of quality against distance: of dependencies, sentences and pairs with an error."""

from collections.abc import Mapping, Sequence

from t2t_jax.plotting import CHOSEN, COLOUR, DASH, SHAPE, Scale, Spec, facets, labels, tooltip
from t2t_jax.study.comparison import Line
from t2t_jax.study.distances import Curves

WIDTH, HEIGHT = 200, 120  # of a panel, in pixels
PADDING = 0.4  # between the ends of an axis and its first and last part, in parts


def chart(
    lines: Sequence[Line], curves: Sequence[Curves], styles: Mapping[str, Spec], title: str
) -> Spec:
    """Returns a chart with a panel for each quantity; each row of panels has base and one group.

    The size of a point grows with the number of sentences or pairs that it is the score of.

    Args:
      title: of the vertical axis.
    """
    names = [line.row.name for line in lines]
    most = max(n for group in curves for _, n in group.parts)
    y = Scale.over(x for group in curves for row in group.rows.values() for x in row)
    rows = [[names[i] for i in panel] for panel in facets([x.row.group for x in lines])]
    return {
        "vconcat": [
            {
                "hconcat": [
                    _panel(
                        group, {name: styles[name] for name in panel if name in group.rows}, y,
                        most, title if group is curves[0] else "", panel is rows[-1],
                        group is curves[-1],
                    )
                    for group in curves
                ]
            }
            for panel in rows
        ]
    }  # fmt: skip


def _panel(
    group: Curves,
    styles: Mapping[str, Spec],
    y: Scale,
    most: int,
    title: str,
    lowest: bool,
    last: bool,
) -> Spec:
    spans = [f"{span}\n({n})" for span, n in group.parts]
    values = [
        {**style, "part": span, "n": n, "score": round(score, 3)}
        for name, style in styles.items()
        for span, (_, n), score in zip(spans, group.parts, group.rows[name], strict=True)
    ]
    height = max(HEIGHT, 11 * len(styles))
    axis = {"labelAngle": 0, "labelExpr": "split(datum.label, '\\n')", "labelOverlap": False,
            "labels": lowest}  # fmt: skip
    scale = {"padding": PADDING}
    part = {"field": "part", "type": "ordinal", "sort": spans, "axis": axis, "scale": scale}
    size = {"type": "sqrt", "domain": [0, most], "range": [0, 30]}
    encoding = {
        "x": part | {"title": group.what if lowest else None},
        "y": y.channel("score", title or None),
        "tooltip": tooltip("row", "part", "n", "score", score=".2f"),
    } | COLOUR
    grow = {"size": {"field": "n", "type": "quantitative", "scale": size, "legend": None}}
    step = WIDTH / (len(spans) - 1 + 2 * PADDING)  # of a scale of points
    ends = [
        (WIDTH - PADDING * step, float(height - y.pixels(group.rows[name][-1], height)), style)
        for name, style in styles.items()
    ]
    return {
        "data": {"values": values},
        "transform": [CHOSEN],
        "width": WIDTH,
        "height": height,
        "layer": [
            {"mark": "line", "encoding": encoding | DASH},
            {"mark": "point", "encoding": encoding | SHAPE | grow},
            *(labels(ends, WIDTH, height) if last else ()),
        ],
    }
