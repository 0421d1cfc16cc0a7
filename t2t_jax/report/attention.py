"""What one model attends to in one sentence: a picture of every head, and a page to look closer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import config
from t2t_jax.data.cache import Split
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.evaluation import alignment
from t2t_jax.inference.weights import Map, attention_maps
from t2t_jax.report import style
from t2t_jax.report.page import page
from t2t_jax.tokens import EOS

ROLES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "decoder over encoder",
}
PAIRS = 200  # of dev, on which heads are compared with what is known of the corpus


class Heads(NamedTuple):
    """What heads find on a corpus with gold structure.

    Attributes:
      error_rates: by (layer, head) of cross-attention, AER of each target word's first choice.
      tracked: by kind of dependency the decoder head that finds it most often.
    """

    pairs: int
    error_rates: dict[tuple[int, int], float]
    tracked: Sequence[alignment.Tracked]


class Attended(NamedTuple):
    """A sentence with its translation, as subwords, and the maps of every place."""

    source: Sequence[str]
    target: Sequence[str]
    maps: Sequence[Map]

    def sides(self, role: str) -> tuple[Sequence[str], Sequence[str]]:
        """The subwords of a map's rows and of its columns."""
        if role == "encoder":
            return self.source, self.source
        return self.target, self.source if role == "cross" else ["<s>", *self.target[:-1]]


def attended(
    model: Any, params: Any, vocabulary: Vocabulary, source: list[int], target: list[int]
) -> Attended:
    """Of ids without EOS."""
    source, target = [*source, EOS], [*target, EOS]
    (maps,) = attention_maps(model, params, [source], [target])
    return Attended(vocabulary.pieces(source), vocabulary.pieces(target), maps)


def heads(model: Any, params: Any, vocabulary: Vocabulary, split: Split) -> Heads | None:
    """What the heads find in the first pairs of a split; None where it knows no alignment."""
    known = split.extras[:PAIRS]
    if not known or "alignment" not in known[0]:
        return None
    sources, targets = ([side[i].tolist() for i in range(len(known))]
                        for side in (split.source, split.target))  # fmt: skip
    found: dict[tuple[int, int], list[alignment.Links]] = {}
    decoder: list[dict[int, np.ndarray]] = []
    every = attention_maps(model, params, sources, targets)
    for source, target, maps in zip(sources, targets, every, strict=True):
        s, t = (alignment.word_of(vocabulary.pieces(x[:-1])) for x in (source, target))
        decoder.append({})
        for one in maps:
            if one.role == "cross":
                for head, weights in enumerate(alignment.by_words(one.weights, t, s)):
                    links = alignment.links(weights)
                    found.setdefault((one.layer, head), []).append(links)
            elif one.role == "decoder":
                words = alignment.by_words(one.weights, t, [-1, *t[:-1]])
                decoder[-1][one.layer] = words
    gold = [{(s, t) for s, t in x["alignment"]} for x in known]
    rates = {place: alignment.error_rate(links, gold) for place, links in found.items()}
    dependencies = [x["dependencies"] for x in known]
    tracked = alignment.tracked(decoder, dependencies) if any(decoder) else []
    return Heads(len(known), rates, tracked)


def picture(shown: Attended, path: Path) -> None:
    """Every head of every place, a row a place: PATH.png, .svg and .pdf."""
    places, most = shown.maps, max(one.weights.shape[0] for one in shown.maps)
    size = 1.1 * most + 1.2, 1.2 * len(places) + 0.8
    with style.figure(path, len(places), most, size=size) as (figure, panels):
        last = {one.role: one for one in places}  # below which the keys are written
        for one, row in zip(places, np.atleast_1d(panels).reshape(len(places), most), strict=True):
            for head, axes in enumerate(row):
                axes.grid(visible=False)
                if head >= len(one.weights):
                    axes.set_visible(False)
                    continue
                axes.imshow(one.weights[head], cmap="viridis", vmin=0, vmax=1, aspect="auto")
                rows, columns = shown.sides(one.role)
                axes.set_xticks(range(len(columns)), columns if one is last[one.role] else [],
                                rotation=90, fontsize=4)  # fmt: skip
                axes.set_yticks(range(len(rows)), rows if head == 0 else [], fontsize=4)
                axes.tick_params(length=0)
                if one is places[0]:
                    axes.set_title(f"head {head}", fontsize=7)
            row[0].set_ylabel(_name(one).replace(", ", "\n"), fontsize=5)
        figure.suptitle("Weights: a row a query, a column a key; yellow is 1")


def _name(one: Map) -> str:
    return f"{one.role}, layer {one.layer}" + (", effective" if one.effective else "")


def attention_page(shown: Attended, c: config.Model, known: Heads | None) -> str:
    """The HTML, on which one picks a place, a head and a token."""
    places = []
    for one in shown.maps:
        rows, columns = shown.sides(one.role)
        name = f"{ROLES[one.role]}, layer {one.layer}: {getattr(c, f'{one.role}_attention')}"
        places.append(
            {
                "name": name + (" (effective weights)" if one.effective else ""),
                "rows": rows,
                "columns": columns,
                "weights": one.weights.round(3).tolist(),
            }
        )
    return page("attention.html", shown=shown, places=places, known=known,
                effective=any(one.effective for one in shown.maps))  # fmt: skip


def told(known: Heads) -> list[str]:
    """What heads find, in lines for a terminal."""
    lines = [f"alignment error rate of cross-attention on {known.pairs} pairs, the best heads:"]
    best = sorted(known.error_rates.items(), key=lambda item: item[1])[:5]
    lines += [f"  {rate:.3f}  layer {layer}, head {head}" for (layer, head), rate in best]
    if known.tracked:
        lines.append("decoder self-attention: how often the best head finds the other word")
    for x in known.tracked:
        where = f"layer {x.layer}, head {x.head}"
        baseline = f"(at one distance {x.baseline:.0%})"
        lines.append(f"  {x.kind:12} {x.accuracy:4.0%} of {x.dependencies:4}  {where}  {baseline}")
    return lines
