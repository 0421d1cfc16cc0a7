"""Recipes: configs of the package, each written as its difference from the paper's base."""

from collections.abc import Mapping
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import UsageError, near

_TINY: dict[str, Any] = dict(N=4, d_model=128, d_ff=256, h=4, d_k=32, d_v=32)
# With little compute, small and frequent updates and a small vocabulary learn fastest.
_SMALL_UPDATES: dict[str, Any] = dict(
    **dict(max_length=64, batch_tokens=1024, num_buckets=4),
    **dict(norm_placement="pre", schedule="linear", peak_lr=5e-3),
)
_MULTI30K: dict[str, Any] = dict(
    **_TINY | _SMALL_UPDATES | dict(corpus="multi30k", vocabulary=8000, warmup=1000),
    alpha=1.4,  # the best of 0.6, 1.0 and 1.4 on dev
)

RECIPES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "base": ("Table 3, base, on WMT14 EN-DE", {}),
    "big": (
        "Table 3, big, on WMT14 EN-DE",
        dict(d_model=1024, d_ff=4096, h=16, P_drop=0.3, steps=300_000),
    ),
    "grammar": (
        "the built-in corpus, under 5 minutes on 2 CPU cores",
        _TINY
        | _SMALL_UPDATES
        | dict(corpus="grammar", vocabulary=2000, N=2, warmup=600, steps=2500, evaluate_every=500),
    ),
    "text": (
        "a decoder on documents of your own (--train FILES --dev FILES), 10 minutes on 2 CPU cores",
        _TINY
        | _SMALL_UPDATES
        | dict(architecture="decoder", corpus="documents", vocabulary=4000, d_ff=512)
        | dict(max_length=256, num_buckets=1, P_drop=0.0, eps_ls=0.0)
        | dict(peak_lr=3e-3, warmup=200, steps=3000, evaluate_every=1000),
    ),
    "multi30k_quick": (
        "Multi30k EN-DE, an estimated 10 minutes on 2 CPU cores",
        _MULTI30K | dict(P_drop=0.05, steps=3400, evaluate_every=200, average=3),
    ),
    "multi30k_hour": (
        "Multi30k EN-DE, an estimated hour on 2 CPU cores",
        _MULTI30K | dict(P_drop=0.2, peak_lr=3.5e-3, steps=20_000, evaluate_every=500, average=5),
    ),
    "multi30k_best": (
        "Multi30k EN-DE, an estimated 2 hours on 2 CPU cores",
        _MULTI30K
        | dict(vocabulary=9717, batch_tokens=4096, P_drop=0.3, warmup=2000)
        | dict(steps=10_000, evaluate_every=500, average=5),
    ),
    "multi30k_tiny": (
        "Multi30k EN-DE, Transformer-Tiny of Wu et al. 2021",
        _TINY
        | dict(corpus="multi30k", vocabulary=9717, max_length=256, batch_tokens=4096)
        | dict(P_drop=0.3, peak_lr=5e-3, warmup=2000, steps=8000, evaluate_every=100)
        | dict(average=10, patience=10, beam=5, alpha=1.0),
    ),
}


def recipe(name: str) -> Config:
    """Returns the config of a recipe; raises an error if there is none of this name."""
    if name not in RECIPES:
        raise UsageError(f"there is no recipe {name!r}: {near(name, RECIPES)}")
    return config.replace(Config(), **RECIPES[name][1])
