"""The same grid in miniature: every row of a study shrinks by the same factors.

A row wins over a preset, and a command line over both. What a row names is scaled as base is, or
taken as it stands: half of base's batch is half of base's batch at every scale, and what holds
between fields at the paper's scale, such as h d_k = d_model, holds at every scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near

WIDTHS = "d_model", "d_ff", "d_k", "d_v"
WHOLE = (*WIDTHS, "N", "steps")  # scaled to a whole number, or refused
ROUNDED = "warmup", "batch_tokens", "vocabulary", "max_length", "evaluate_every"
SCALED = (*WHOLE, *ROUNDED, "P_drop")


@dataclass(frozen=True)
class Preset:
    """A scale.

    Attributes:
      name, about: how it is called, and what it is for.
      width: what d_model, d_ff, d_k and d_v are divided by.
      depth: what N is divided by.
      dropout: what P_drop is divided by: a narrow model that is trained for minutes needs little.
      steps: training steps in place of the paper's 100,000; other numbers in proportion.
      changes: what else differs from the paper in base, and in rows that do not name it.
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
_SHORT: dict[str, Any] = dict(
    norm_placement="pre", schedule="linear", batch_tokens=1024, max_length=64
)

PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset("paper", "the paper's own scale"),
        Preset(
            "multi30k",
            "small, on real text",
            width=4,
            depth=2,
            steps=1600,
            changes=_SHORT
            | dict(
                corpus="multi30k", vocabulary=8000, warmup=400, num_buckets=4, evaluate_every=400
            ),
        ),
        Preset(
            "treebank",
            "small, for parsing",
            width=8,
            depth=2,
            steps=6000,
            changes=_SHORT
            | dict(
                corpus="wsj_sample",
                vocabulary=2000,
                max_length=256,
                warmup=600,
                num_buckets=4,
                evaluate_every=500,
                beam=4,
            ),
        ),
        Preset(
            "demo",
            "the smallest, with nothing to download",
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
                num_buckets=2,
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


def shrink(
    base: Config, row: Mapping[str, Any], preset: Preset, flags: Mapping[str, Any] | None = None
) -> Config:
    """A row's config at a preset's scale.

    Args:
      base: the study's base at the paper's scale.
      row: the fields in which the row differs from it.
      flags: the fields that a command line changes; of a scaled one it gives base's value.

    Raises:
      UsageError: a width, depth or number of steps of the row is no whole number at this scale, or
        the fields do not go together.
    """
    flags = dict(flags or {})
    if "architecture" in flags:  # a row that names a field which it lacks is refused
        base = config.replace(base, architecture=flags["architecture"])
    full = config.replace(base, **row)
    flat, factors = config.flatten(full), _factors(base, preset, flags)
    scaled = {n: _scale(n, flat[n], factors[n]) for n in SCALED if config.has(full.model, n)}
    common = {n: x for n, x in preset.changes.items() if config.has(full.model, n)} | flags
    c = config.replace(full, **scaled | {n: x for n, x in common.items() if n not in row})
    named = {*row, *flags}
    if "evaluate_every" in preset.changes.keys() - named and c.training.average > 1:
        # The paper averages what the last 7% (base) and 4% (big) of its training saved.
        every = c.training.steps // (8 * c.training.average)
        c = config.replace(c, evaluate_every=max(1, every))
    return c


def _factors(base: Config, preset: Preset, flags: Mapping[str, Any]) -> dict[str, Fraction]:
    """What scaled fields are multiplied by: base's value at this scale over the paper's."""
    factors = dict.fromkeys(SCALED, Fraction(1)) | dict.fromkeys(WIDTHS, Fraction(1, preset.width))
    factors["N"] = Fraction(1, preset.depth)
    factors["P_drop"] = Fraction(1, preset.dropout)
    factors["steps"] = Fraction(preset.steps, Config().training.steps)
    paper, changes = config.flatten(base), {**preset.changes, **flags}
    named = (n for n in SCALED if n in changes and paper[n])
    return factors | {n: Fraction(changes[n]) / Fraction(paper[n]) for n in named}


def _scale(name: str, value: float, factor: Fraction) -> float:
    exact = Fraction(value) * factor
    if name == "P_drop":
        return float(exact)
    if name in WHOLE and (exact.denominator > 1 or exact < 1):
        raise UsageError(
            f"{name}={value} x {factor} is no whole number: choose a row, a preset or flags that "
            "fit."
        )
    return max(1, round(exact))
