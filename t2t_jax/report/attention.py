"""Attention weights of one model: a figure of every head, a page, and what the heads attend to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import config, plotting
from t2t_jax.attention.registry import of_layer
from t2t_jax.data.cache import Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.evaluation import alignment
from t2t_jax.inference.weights import Map, attention_maps
from t2t_jax.report.page import page
from t2t_jax.tokens import EOS

ROLES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
PAIRS = 200  # sentence pairs of dev on which heads are compared with the gold structure


class Heads(NamedTuple):
    """How heads agree with the gold structure of a corpus.

    Attributes:
      pairs: number of sentence pairs.
      error_rates: alignment error rate of each cross-attention head, by (layer, head), with every
        target word aligned with the source word that it attends to most.
      tracked: for each kind of dependency, the decoder head that tracks it best.
    """

    pairs: int
    error_rates: dict[tuple[int, int], float]
    tracked: Sequence[alignment.Tracked]


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
    """Returns the attention weights of a sentence pair; `source` and `target` are without EOS."""
    source, target = [*source, EOS], [*target, EOS]
    (maps,) = attention_maps(model, params, [source], [target])
    return Attended(vocabulary.pieces(source), vocabulary.pieces(target), maps)


def heads(model: Any, params: Any, vocabulary: Vocabulary, split: Split) -> Heads | None:
    """Compares heads with the gold structure of a split; None if it has no gold alignments."""
    annotations = split.extras[:PAIRS]
    if not annotations or "alignment" not in annotations[0]:
        return None
    sources, targets = ([side[i].tolist() for i in range(len(annotations))]
                        for side in (split.source, split.target))  # fmt: skip
    links: dict[tuple[int, int], list[alignment.Links]] = {}
    decoder: list[dict[int, np.ndarray]] = []
    all_maps = attention_maps(model, params, sources, targets)
    for source, target, maps in zip(sources, targets, all_maps, strict=True):
        s, t = (alignment.word_of(vocabulary.pieces(x[:-1])) for x in (source, target))
        decoder.append({})
        for layer_map in maps:
            layer, weights = layer_map.layer, layer_map.weights
            if layer_map.role == "cross":
                for head, by_word in enumerate(alignment.by_words(weights, t, s)):
                    links.setdefault((layer, head), []).append(alignment.links(by_word))
            elif layer_map.role == "decoder":
                decoder[-1][layer] = alignment.by_words(weights, t, [-1, *t[:-1]])
    gold = [{(s, t) for s, t in x["alignment"]} for x in annotations]
    rates = {head: alignment.error_rate(x, gold) for head, x in links.items()}
    dependencies = [x["dependencies"] for x in annotations]
    tracked = alignment.tracked(decoder, dependencies) if any(decoder) else []
    return Heads(len(annotations), rates, tracked)


def picture(shown: Attended, path: Path) -> None:
    """Draws every head, with a row of panels for each layer: PATH.png, .svg and .pdf."""
    columns = max(len(layer_map.weights) for layer_map in shown.maps)
    size = 1.1 * columns + 1.2, 1.2 * len(shown.maps) + 0.8
    last = {
        layer_map.role: layer_map for layer_map in shown.maps
    }  # below these the keys are written
    with plotting.figure(path, len(shown.maps), columns, size=size) as (figure, panels):
        grid = np.atleast_1d(panels).reshape(len(shown.maps), columns)
        for layer_map, row in zip(shown.maps, grid, strict=True):
            queries, keys = shown.sides(layer_map.role)
            for head, axes in enumerate(row):
                axes.grid(visible=False)
                if head >= len(layer_map.weights):
                    axes.set_visible(False)
                    continue
                weights = layer_map.weights[head]
                axes.imshow(weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
                labels = keys if layer_map is last[layer_map.role] else []
                axes.set_xticks(range(len(keys)), labels, rotation=90, fontsize=4)
                axes.set_yticks(range(len(queries)), queries if head == 0 else [], fontsize=4)
                axes.tick_params(length=0)
                if layer_map is shown.maps[0]:
                    axes.set_title(f"head {head}", fontsize=7)
            effective = "\neffective" if layer_map.effective else ""
            label = f"{layer_map.role}\nlayer {layer_map.layer}{effective}"
            row[0].set_ylabel(label, fontsize=5)
        figure.suptitle("Attention weights: queries in rows, keys in columns; 0 is blue, 1 yellow")


def attention_page(shown: Attended, c: config.Model, known: Heads | None) -> str:
    """Returns the HTML of a page on which the reader picks a layer, a head and a query."""
    layers = []
    for layer_map in shown.maps:
        role = layer_map.role
        queries, keys = shown.sides(role)
        mechanism = of_layer(getattr(c, f"{role}_attention"), layer_map.layer)
        name = f"{ROLES[role]}, layer {layer_map.layer}: {mechanism}"
        layers.append(
            {
                "name": name + (" (effective weights)" if layer_map.effective else ""),
                "queries": queries,
                "keys": keys,
                "weights": layer_map.weights.round(3).tolist(),
            }
        )
    effective = any(layer_map.effective for layer_map in shown.maps)
    return page("attention.html", shown=shown, layers=layers, heads=known, effective=effective)


def summary(known: Heads) -> list[str]:
    """Returns lines that summarize `heads` for a terminal."""
    lines = [f"alignment error rate of cross-attention on {known.pairs} pairs, the best heads:"]
    best = sorted(known.error_rates.items(), key=lambda item: item[1])[:5]
    lines += [f"  {rate:.3f}  layer {layer}, head {head}" for (layer, head), rate in best]
    if known.tracked:
        lines.append("decoder self-attention: how often the best head attends to the other word")
    for x in known.tracked:
        head, baseline = f"layer {x.layer}, head {x.head}", f"(at one distance {x.baseline:.0%})"
        lines.append(f"  {x.kind:12} {x.accuracy:4.0%} of {x.dependencies:4}  {head}  {baseline}")
    return lines
