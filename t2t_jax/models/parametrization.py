"""The maximal update parametrization, muP: updates that do not depend on width (Yang et al. 2022).

"Tensor Programs V", Table 8, gives the learning rates of Adam and the multiplier of the logits for
which a step changes every activation by an amount that does not depend on the width. Let
r = d_model / mup_width. Both parametrizations coincide at r = 1 if d_ff = 4 d_model and
h d_v = d_model. All widths are assumed to grow in proportion: d_ff, d_c, and h or d_k = d_v.

- Hidden matrices. An Adam step changes every entry by the learning rate, with a sign that follows
  the input, so the output changes by fan_in times the learning rate. The rate is therefore divided
  by the ratio of fan_in to its value at mup_width: mup_width for an input of width d_model or
  h d_v, and 4 mup_width for one of width d_ff. Initialisation needs no change: Glorot's standard
  deviation falls as fan_in^-0.5 if all widths grow in proportion.
- Biases, norms and tables of positions. They are added to activations, or multiply them element by
  element, so a step changes activations by the learning rate at every width.
- The embedding E [V, d_model]. Its entries have standard deviation d_model^-0.5, and it is tied:
  the input is sqrt(d_model) E, and the logits are a x E^T. A step with rate l changes the input by
  sqrt(d_model) l and a logit by a d_model l. Both are constant for l and a in proportion to r^-0.5.
  This is Table 8 for the matrix sqrt(d_model) E, whose entries are of size 1: a constant learning
  rate, and an output multiplier in proportion to 1 / d_model. The logits of the first step fall as
  r^-0.5, as Table 8 demands; their changes do not. An untied output matrix is treated alike.

If d_k grows with the width, the products q k^T of a trained model grow as d_k, not as sqrt(d_k):
use `power=1` (Yang et al. 2022, definition 4.1), an option of scaled_dot_product, softcap,
forgetting, softmax1, sink, sparsemax, entmax and top_k. The other mechanisms divide by sqrt(d_k),
or by nothing: compare them with d_k fixed, where h grows.
"""

from typing import Any

import jax

from t2t_jax import config
from t2t_jax.errors import UsageError
from t2t_jax.parts import FEED_FORWARD, NORM_PLACEMENTS


def logit_multiplier(c: config.Model) -> float:
    """The factor on the logits: 1 if standard, (mup_width / d_model)^0.5 under muP."""
    return 1.0 if c.parametrization == "standard" else (c.mup_width / c.d_model) ** 0.5


def learning_rate_factors(c: config.Model, axes: Any) -> Any:
    """The factor on the learning rate of every parameter: 1 if standard, else Table 8 for Adam.

    Args:
      axes: the logical axes of every parameter, a tree whose leaves are tuples of names.

    Raises:
      UsageError: muP has no rule for a matrix with these axes.
    """

    def factor(path: Any, names: tuple[str, ...]) -> float:
        if c.parametrization == "standard" or len(names) == 1:
            return 1.0
        if names not in rules:
            where = jax.tree_util.keystr(path, simple=True, separator="/")
            raise UsageError(
                f"parametrization=mup has no learning rate for the matrix {where} with the axes "
                f"{names}: give one by `mup` where its feed-forward layer or norm placement is "
                "declared, or use parametrization=standard."
            )
        return rules[names]

    from_d_model = c.mup_width / c.d_model
    rules = {
        ("vocabulary", "d_model"): from_d_model**0.5,
        ("d_model", "heads", "d_k"): from_d_model,
        ("d_model", "heads", "d_v"): from_d_model,
        ("d_model", "heads", "gates"): from_d_model,
        ("d_model", "d_c"): from_d_model,
        ("d_c", "heads", "d_k"): from_d_model,
        ("d_c", "heads", "d_v"): from_d_model,
        ("heads", "d_v", "d_model"): c.mup_width / (c.h * c.d_v),
        ("d_model", "d_ff"): from_d_model,
        ("d_ff", "d_model"): 4 * c.mup_width / c.d_ff,
        ("position", "d_model"): 1.0,
        ("heads", "bucket"): 1.0,
        ("heads", "d_k"): 1.0,
        ("position", "heads", "d_k"): 1.0,
        ("position", "heads", "d_v"): 1.0,
        **FEED_FORWARD[c.feed_forward].mup(c),
        **NORM_PLACEMENTS[c.norm_placement].mup(c),
    }
    leaf = lambda x: isinstance(x, tuple)  # noqa: E731
    return jax.tree_util.tree_map_with_path(factor, axes, is_leaf=leaf)
