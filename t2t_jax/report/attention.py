"""Attention weights of one model in a sentence pair: a figure of every head."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import plotting
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.inference.weights import Map, attention_maps
from t2t_jax.tokens import EOS

PANEL = 100  # sides of the picture of a head, in pixels
VIRIDIS = "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"


class Attended(NamedTuple):
    """A sentence and its translation as subwords, and the attention weights of every layer."""

    source: Sequence[str]
    target: Sequence[str]
    maps: Sequence[Map]

    def sides(self, role: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the subwords of the queries and of the keys."""
        if role == "encoder":
            return self.source, self.source
        return self.target, self.source if role == "cross" else ["<s>", *self.target[:-1]]


def attended(
    model: Any, params: Any, vocabulary: Vocabulary, source: list[int], target: list[int]
) -> Attended:
    """Returns the attention weights of a sentence pair, which is given without EOS."""
    source, target = [*source, EOS], [*target, EOS]
    (maps,) = attention_maps(model, params, [source], [target])
    return Attended(vocabulary.pieces(source), vocabulary.pieces(target), maps)


def picture(shown: Attended, path: Path) -> None:
    """Draws every head, with a row of panels for each layer: PATH.png, .svg and .pdf."""
    rows: list[plotting.Spec] = []
    for i, x in enumerate(shown.maps):
        above = x.role not in [y.role for y in shown.maps[:i]]
        below = x.role not in [y.role for y in shown.maps[i + 1 :]]
        heads = range(len(x.weights))
        rows.append({"hconcat": [_head(shown, x, head, above, below) for head in heads]})
    title = "Attention weights: queries in rows, keys in columns; purple: 0 or less, yellow: 1"
    plotting.write(path, plotting.chart({"vconcat": rows, "spacing": 6}, title=title))


def _head(shown: Attended, x: Map, head: int, above: bool, below: bool) -> plotting.Spec:
    """Returns the panel of a head, with its number above and the keys below."""
    queries, keys = shown.sides(x.role)
    width, height = (max(2, PANEL // len(side)) * len(side) for side in (keys, queries))
    layer = f"{x.role} layer {x.layer}" + ", effective" * x.effective
    mark = {"type": "image", "url": _image(x.weights[head], width, height), "aspect": False,
            "width": width, "height": height, "align": "left", "baseline": "top"}  # fmt: skip
    return {
        "title": {"text": f"head {head}" if above else "", "fontSize": 10},
        "data": {"values": [{}]},
        "width": width,
        "height": height,
        "mark": mark,
        "encoding": {
            "x": _tokens(keys, below, None),
            "y": _tokens(queries, head == 0, None if head else layer),
        },
    }


def _image(weights: np.ndarray, width: int, height: int) -> str:
    """Returns the address of a PNG of weights [queries, keys], of twice this size in pixels."""
    from PIL import Image

    colours = np.array([list(bytes.fromhex(colour)) for colour in VIRIDIS.split()])
    places = np.clip(weights, 0, 1) * (len(colours) - 1)
    channels = [np.interp(places, range(len(colours)), channel) for channel in colours.T]
    image, out = Image.fromarray(np.stack(channels, -1).astype(np.uint8)), io.BytesIO()
    image.resize((2 * width, 2 * height), Image.Resampling.NEAREST).save(out, "png")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def _tokens(tokens: Sequence[str], labels: bool, title: str | None) -> plotting.Spec:
    """Returns an axis of positions that shows tokens instead."""
    axis = {"labelExpr": f"{json.dumps(list(tokens))}[datum.value]", "labelFontSize": 7,
            "labelOverlap": False, "ticks": False, "domain": False, "titleFontSize": 8,
            "minExtent": 0, "labels": labels, "title": title}  # fmt: skip
    scale = {"domain": list(range(len(tokens))), "padding": 0}
    return {"datum": 0, "type": "ordinal", "bandPosition": 0, "scale": scale | {"type": "band"},
            "axis": axis}  # fmt: skip
