"""Presets: smaller scales, at which every row of a study shrinks by the same factors.

A row overrides a preset, and a command line overrides both. A field that a row names is scaled by
base's factor, so ratios to base are kept at every scale, as are relations between fields, such as
h d_k = d_model: heads are narrower where a row would have less than one. A field that is not scaled
keeps its value.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.corpora import CORPORA
from t2t_jax.errors import UsageError, near

WIDTHS = "d_model", "d_ff", "d_k", "d_v", "d_c", "mup_width"
INTEGER = (*WIDTHS, "N", "steps")  # refused if scaling does not give an integer
ROUNDED = "h", "warmup", "batch_tokens", "vocabulary", "max_length", "evaluate_every"
OF_CORPUS = "grade", "task_options", "pairs"  # a preset sets them only for its own corpus
DEFAULT = "demo"
SCALED = (*INTEGER, *ROUNDED, "P_drop")


@dataclass(frozen=True)
class Preset:
    """A scale.

    The paper's 100,000 training steps become `steps`; other numbers of steps keep their proportion.
    Steps at equal FLOPs are computed for sentences of `length`.
    """

    name: str
    about: str
    width: int = 1  # divisor of d_model, d_ff, d_k, d_v, d_c and, under muP, mup_width
    depth: int = 1  # divisor of N
    steps: int = 100_000
    # Other fields that differ from the paper, in base and in rows that do not name them.
    changes: Mapping[str, Any] = field(default_factory=dict)
    length: int = 32  # of a typical sentence of its corpus in a batch of training, with padding


# Short training needs pre-norm, small and frequent updates, and a learning rate that decays to
# zero. The peak of the learning rate stays the paper's (d_model warmup)^-0.5.
_SHORT: dict[str, Any] = dict(
    norm_placement="pre", schedule="linear", batch_tokens=1024, max_length=64
)
# Few pairs of easy sentences are learnt in minutes, and yet a model without dropout overfits them.
_EASY: dict[str, Any] = _SHORT | dict(
    corpus="grammar", grade="easy", vocabulary=1000, batch_tokens=256, warmup=240, lr_scale=0.5,
    num_buckets=2, evaluate_every=320, beam=1,
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    p.name: p
    for p in (
        Preset("paper", "the paper's own scale"),
        Preset(
            "multi30k", "small, on real text",
            width=4, depth=2, steps=1600, length=20,
            changes=_SHORT | dict(
                corpus="multi30k", vocabulary=8000, warmup=400, num_buckets=4, evaluate_every=400,
            ),
        ),
        Preset(
            "treebank", "small, for parsing",
            width=8, depth=2, steps=10_000,
            changes=_SHORT | dict(
                corpus="wsj_sample", vocabulary=2000, max_length=256, warmup=1000, P_drop=0.3,
                num_buckets=4, evaluate_every=1000, beam=4,
            ),
        ),
        Preset(
            "diagnostic", "small, for diagnostic tasks, which need no dropout and no smoothing",
            width=8, depth=2, steps=2000,
            changes=_SHORT | dict(
                corpus="recall", vocabulary=36, warmup=100, peak_lr=0.0015, P_drop=0.0, eps_ls=0.0,
                num_buckets=1, evaluate_every=500,
            ),
        ),
        Preset(
            "text",
            "small, for language models of documents (--train FILES --dev FILES --test FILES)",
            width=4, depth=2, steps=3000, length=256,
            changes=_SHORT | dict(
                vocabulary=4000, max_length=256, warmup=200, lr_scale=0.5, P_drop=0.0, eps_ls=0.0,
                num_buckets=1, evaluate_every=1000,
            ),
        ),
        Preset(
            "demo", "the smallest, with nothing to download",
            width=8, depth=2, steps=1280, length=15, changes=_EASY | dict(pairs=2000, P_drop=0.06),
        ),
        Preset(
            "hour",
            "wider, with nothing to download: an hour for three seeds of Table 3 on 2 CPU cores",
            width=4, depth=2, steps=1280, length=15, changes=_EASY | dict(pairs=3000, P_drop=0.08),
        ),
    )
}  # fmt: skip


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(f"there is no preset {name!r}: {near(name, PRESETS)}")
    return PRESETS[name]


def shrink(
    base: Config, row: Mapping[str, Any], preset: Preset, flags: Mapping[str, Any] | None = None
) -> Config:
    """Returns a row's config at a preset's scale, from its study's base at the paper's.

    `flags` are the fields that a command line changes; the value of a scaled field is base's. A
    UsageError is raised if a width, depth or number of steps of the row is not an integer at this
    scale, or if the fields do not fit each other.
    """
    flags = flags or {}
    if not CORPORA[base.data.corpus].scalable:  # without fields that would replace this corpus
        own = {n for n in config.difference(base, Config()) if config.SECTION_OF[n] == "data"}
        kept = {n: x for n, x in preset.changes.items() if n not in {*own, *OF_CORPUS}}
        preset = replace(preset, changes=kept)
    # These come first, as they decide which fields a row may have.
    deciding = {n: flags[n] for n in ("architecture", "parametrization") if n in flags}
    base = config.replace(base, **deciding)
    full = config.replace(base, **row)
    flat, factors = config.flatten(full), _factors(base, preset, flags)
    if heads := flat.get("h"):
        narrower = heads * factors["h"] / _scale("h", heads, factors["h"])
        factors |= {n: factors[n] * narrower for n in ("d_k", "d_v")}
    scaled = {n: _scale(n, flat[n], factors[n]) for n in SCALED if config.has(full.model, n)}
    chosen = {n: x for n, x in preset.changes.items() if config.has(full.model, n)}
    if {**flags, **row}.get("corpus", chosen.get("corpus")) != chosen.get("corpus"):
        chosen = {n: x for n, x in chosen.items() if n not in OF_CORPUS}
    common = {n: x for n, x in {**chosen, **flags}.items() if n not in row}
    c = config.replace(full, **scaled | common)
    return space_checkpoints(c, preset, {*row, *flags})


def space_checkpoints(c: Config, preset: Preset, explicit: Collection[str]) -> Config:
    """Returns a config that averages checkpoints of the last eighth of its steps.

    The paper averages the last 7% (base) and 4% (big). evaluate_every stays if it is `explicit`.
    """
    if c.training.average == 1 or "evaluate_every" not in preset.changes.keys() - set(explicit):
        return c
    return config.replace(c, evaluate_every=max(1, c.training.steps // (8 * c.training.average)))


def _factors(base: Config, preset: Preset, flags: Mapping[str, Any]) -> dict[str, Fraction]:
    """Returns the factor of each scaled field: base's value at this scale over the paper's."""
    factors = dict.fromkeys(SCALED, Fraction(1)) | dict.fromkeys(WIDTHS, Fraction(1, preset.width))
    factors["N"] = Fraction(1, preset.depth)
    factors["steps"] = Fraction(preset.steps, Config().training.steps)
    paper, changes = config.flatten(base), {**preset.changes, **flags}
    replaced = (n for n in SCALED if n in changes and paper[n])
    return factors | {n: _decimal(changes[n]) / _decimal(paper[n]) for n in replaced}


def _scale(name: str, value: float, factor: Fraction) -> float:
    exact = _decimal(value) * factor
    if name == "P_drop":
        return float(exact)
    if name in INTEGER and value and (exact.denominator > 1 or exact < 1):
        no = f"{name}={value} x {factor} is not a positive integer"
        raise UsageError(f"{no}: choose a row, a preset or flags that fit.")
    return max(1, round(exact)) if value else 0


def _decimal(value: float) -> Fraction:
    """Returns the decimal number as it is written, so that 0.6 of a dropout of 0.3 is 0.18."""
    return Fraction(str(value))
