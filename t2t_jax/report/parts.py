"""Charts of quality against distance: of dependencies, sentences and pairs with an error."""

from collections.abc import Mapping, Sequence

from t2t_jax.plotting import CHOSEN, LINES, SHAPE, Axis, Spec, facets, interval, panel, tooltip
from t2t_jax.study.comparison import RowResult
from t2t_jax.study.distances import Curves

SIZE = 200, 120  # of a panel, in pixels


def chart(
    lines: Sequence[RowResult], curves: Sequence[Curves], styles: Mapping[str, Spec], title: str
) -> Spec:
    """Returns a chart with a panel for each quantity; each row of panels has base and one group.

    The size of a point grows with the number of sentences or pairs that it is the score of. Points
    with intervals stand side by side.

    Args:
      title: of the vertical axis.
    """
    names = [line.row.name for line in lines]
    scores = [v for x in curves for row in x.rows.values() for v in row]
    ends = [v for x in curves for row in x.ends.values() for both in row for v in both]
    y = Axis.over("score", title, scores + ends)
    most = max(n for group in curves for _, n in group.parts)
    rows = [[names[i] for i in rows] for rows in facets([line.row.group for line in lines])]
    out: list[Spec] = []
    for members in rows:
        across = []
        for group in curves:
            own = {name: styles[name] for name in members if name in group.rows}
            up = y if group is curves[0] else y._replace(title=None)
            across.append(_panel(group, own, up, most, members is rows[-1], group is curves[-1]))
        out.append({"hconcat": across})
    return {"vconcat": out}


def _panel(
    group: Curves, styles: Mapping[str, Spec], y: Axis, most: int, lowest: bool, labelled: bool
) -> Spec:
    spans = [f"{span}\n({n})" for span, n in group.parts]
    x = Axis.of_levels("x", group.what if lowest else None, spans, labels=lowest)
    middle, step = (len(styles) - 1) / 2, 0.08 * bool(group.ends)
    values = [
        {**style, "x": i + step * (place - middle), "part": span, "n": n,
         "score": round(group.rows[name][i], 3)}
        | (dict(zip(("low", "high"), group.ends[name][i], strict=True)) if group.ends else {})
        for place, (name, style) in enumerate(styles.items())
        for i, (span, n) in enumerate(group.parts)
    ]  # fmt: skip
    scale = {"type": "sqrt", "domain": [0, most], "range": [0, 30]}
    grow: Spec = {"size": {"field": "n", "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": tooltip("row", "part", "n", "score", "low", "high", score=".2f", low=".1f",
                               high=".1f")}  # fmt: skip
    lines = [] if group.ends else [LINES[0]]
    layers = [interval(y)] * bool(group.ends) + lines + [("point", SHAPE | grow)]
    ends = [v for v in values if labelled and v["part"] == group.parts[-1][0]]
    drawn = panel(x, y, (SIZE[0], max(SIZE[1], 11 * len(styles))), layers, ends)
    return drawn | {"data": {"values": values}, "transform": [CHOSEN]}
