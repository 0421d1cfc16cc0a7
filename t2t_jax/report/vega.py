"""What the charts of a page share: the styles of rows, axes, and the choice of the rows shown.

A chart is a Vega-Lite specification. Its parameter `chosen` holds the names of the rows that it
shows; the page's script sets it.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from t2t_jax import plotting

Spec = dict[str, Any]

CHOSEN: Spec = {"filter": "indexof(chosen, datum.row) >= 0"}  # a transform
_GRID = {"gridColor": "#888", "gridOpacity": 0.2, "domainColor": "currentColor"}
_DASHES = {"-": [1, 0], "--": [6, 3], ":": [2, 2], "-.": [7, 2, 2, 2]}
_SHAPES = "circle square triangle-up diamond triangle-down triangle-left triangle-right cross"


class Chart(NamedTuple):
    """A chart with its caption, and a picture of it for readers without scripts."""

    name: str
    caption: str
    spec: Spec
    picture: Markup


def chart(name: str, caption: str, names: Sequence[str], spec: Spec) -> Chart:
    """Returns a chart that shows all of the rows `names` at first."""
    import vl_convert

    caption = caption[0].upper() + caption[1:]
    colours = {f"{part}Color": "currentColor" for part in ("label", "title")}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 640,
        "height": 320,
        "background": "transparent",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "description": caption,
        "config": {
            "font": "system-ui, sans-serif",
            "view": {"stroke": None},
            "axis": colours | _GRID,
            "legend": colours | {"labelLimit": 240},
        },
    } | finite(spec)
    spec["params"] = [{"name": "chosen", "value": list(names)}, *spec.get("params", ())]
    picture = vl_convert.vegalite_to_svg(json.dumps(spec))
    return Chart(name, caption, spec | {"width": "container"}, Markup(picture))


def finite(value: Any) -> Any:
    """Returns a value with infinities and nan replaced by None, which JSON can express."""
    if isinstance(value, Mapping):
        return {name: finite(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [finite(x) for x in value]
    infinite = isinstance(value, float) and not abs(value) < float("inf")
    return None if infinite else value


def styles(names: Sequence[str]) -> dict[str, Any]:
    """Returns channels for colour, dash and shape; rows differ by more than colour."""
    lines = [plotting.line(i) for i in range(len(names))]
    ranges = {
        "shape": _SHAPES.split(),
        "color": ["currentColor", *(line["color"] for line in lines[1:])],
        "strokeDash": [_DASHES[line["linestyle"]] for line in lines],
    }
    legend = {
        "orient": "bottom",
        "columns": {"expr": "max(1, floor(width / 200))"},
        "symbolLimit": 0,
        "symbolOpacity": 1,
        "title": None,
        "values": {"expr": "chosen"},
    }
    return {
        channel: {"field": "row", "scale": {"domain": list(names), "range": x}, "legend": legend}
        for channel, x in ranges.items()
    }


def logarithmic(field: str, title: str) -> dict[str, Any]:
    """Returns the channel of a logarithmic axis with plain numbers."""
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "axis": {"format": ".6~g", "tickCount": 6, "labelOverlap": True},
        "title": title,
    }


def linear(field: str, title: str) -> dict[str, Any]:
    """Returns the channel of an axis that need not contain 0."""
    return {"field": field, "type": "quantitative", "scale": {"zero": False}, "title": title}


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@functools.cache
def bundle() -> Markup:
    """Returns Vega-Lite and its dependencies as one script."""
    import vl_convert

    return Markup(vl_convert.javascript_bundle(_SNIPPET).replace("</script", "<\\/script"))
