"""Ablations of the Transformer in JAX and Flax, after "Attention Is All You Need".

The public names are loaded when they are first used:

>>> import t2t_jax
>>> c = t2t_jax.replace(t2t_jax.Config(), h=4, d_k=128, d_v=128)  # row (A) of Table 3
>>> c.model.h
4

A trained run is loaded, translates, and returns its attention weights:

    c, model, params, vocabulary = t2t_jax.load("runs/grammar-0")
    t2t_jax.translate(model, params, ["The dog sleeps."], vocabulary, c.decoding)
    t2t_jax.attention_maps(model, params, [source_ids], [target_ids])

A study is declared with `from t2t_jax.study import Row, study`.
"""

from importlib import import_module
from typing import Any

_MODULE_OF = {
    "Config": "config",
    "replace": "config",
    "build": "models",
    "load": "runs.loading",
    "translate": "inference.translate",
    "attention_maps": "inference.weights",
    "MECHANISMS": "attention.registry",
    "Visibility": "attention.visibility",
    "Row": "study",
}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
