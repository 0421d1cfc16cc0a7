"""The same grid in miniature: every row of a study shrinks by the same factors.

Widths are divided by one number and depths by another, so that what holds between fields at the
paper's scale, such as h d_k = d_model, holds at every scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near

WIDTHS = "d_model", "d_ff", "d_k", "d_v"


@dataclass(frozen=True)
class Preset:
    """A scale.

    Attributes:
      name, about: how it is called, and what it is in a few words.
      width: what d_model, d_ff, d_k and d_v are divided by.
      depth: what N is divided by.
      dropout: what P_drop is divided by: a narrow model that is trained for minutes needs little.
      steps: training steps in place of the paper's 100,000; other numbers in proportion.
      changes: what else differs from the paper, alike in every row.
    """

    name: str
    about: str
    width: int = 1
    depth: int = 1
    dropout: int = 1
    steps: int = 100_000
    changes: Mapping[str, Any] = field(default_factory=dict)


# What a short training needs: pre-norm, frequent small updates, a decay that ends. The peak of the
# learning rate stays the paper's (d_model warmup)^-0.5.
_SHORT: dict[str, Any] = dict(norm="pre", schedule="linear", batch_tokens=1024, max_length=64)

PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset("paper", "WMT14 EN-DE, dev newstest2013, to the digit; days of GPUs a row"),
        Preset(
            "multi30k",
            "Multi30k EN-DE, widths / 4, depth / 2; minutes a row on 2 CPU cores",
            width=4,
            depth=2,
            steps=1600,
            changes=_SHORT
            | dict(corpus="multi30k", vocabulary=8000, warmup=400, shapes=4, evaluate_every=400),
        ),
        Preset(
            "treebank",
            "The Penn Treebank's sample, split our own way; widths / 8, depth / 2, beam 4; 2 cores",
            width=8,
            depth=2,
            steps=6000,
            changes=_SHORT
            | dict(
                corpus="wsj_sample",
                vocabulary=2000,
                max_length=256,
                warmup=600,
                shapes=4,
                evaluate_every=500,
                beam=4,
            ),
        ),
        Preset(
            "demo",
            "The built-in corpus, widths / 8, depth / 2, dropout / 4, greedy; 2 CPU cores",
            width=8,
            depth=2,
            dropout=4,
            steps=640,
            changes=_SHORT
            | dict(
                corpus="grammar",
                vocabulary=4000,
                batch_tokens=512,
                warmup=240,
                shapes=2,
                evaluate_every=320,
                beam=1,
            ),
        ),
    )
}


def preset(name: str) -> Preset:
    """The preset of a name.

    Raises:
      UsageError: there is none.
    """
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}: {near(name, PRESETS)}")
    return PRESETS[name]


def shrink(c: Config, preset: Preset) -> Config:
    """A row's config at a preset's scale.

    Raises:
      UsageError: a width, depth or number of steps of the row cannot be divided so.
    """
    flat = config.flatten(c)
    changes: dict[str, Any] = {
        n: _divide(n, flat[n], preset.width) for n in WIDTHS if config.has(c.model, n)
    }
    changes["P_drop"] = flat["P_drop"] / preset.dropout
    changes["N"] = _divide("N", flat["N"], preset.depth)
    changes["steps"] = _divide("steps", flat["steps"] * preset.steps, Config().training.steps)
    changes |= {n: x for n, x in preset.changes.items() if config.has(c.model, n)}
    if "evaluate_every" in changes and c.training.average > 1:
        # The paper averages what the last 7% (base) and 4% (big) of its training saved.
        changes["evaluate_every"] = max(1, changes["steps"] // (8 * c.training.average))
    return config.replace(c, **changes)


def _divide(name: str, value: int, by: int) -> int:
    whole, rest = divmod(value, by)
    if rest or not whole:
        raise UsageError(
            f"{name}={value} cannot be divided by {by}: choose a row or a preset that fits."
        )
    return whole
