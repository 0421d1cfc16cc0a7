"""The positions of mechanisms that have a limited number of them, such as linformer.

Only what is to be trained is checked: a study's rows have the paper's max_length until a preset
lowers it, and stored runs are shown whatever their config.
"""

from t2t_jax.attention import registry
from t2t_jax.config import Config, has
from t2t_jax.errors import UsageError
from t2t_jax.parts import ARCHITECTURES


def check(c: Config) -> None:
    """Checks that every mechanism has the positions that sentences of max_length need.

    Translation pads sources to a power of two, and outputs are up to max_extra tokens longer.

    Raises:
      UsageError: a mechanism has too few.
    """
    translates = ARCHITECTURES[c.model.architecture].translates
    source = 1 << max(4, (c.data.max_length - 1).bit_length()) if translates else c.data.max_length
    target = source + (c.decoding.max_extra - 1) * translates
    for role, needed in (("encoder", source), ("cross", source), ("decoder", target)):
        name = f"{role}_attention"
        for piece in registry.pieces(getattr(c.model, name)) if has(c.model, name) else ():
            option, given = registry.capacity(piece)
            if given < needed:
                raise UsageError(
                    f"{name}={piece} has {given} positions, but sentences of up to max_length="
                    f"{c.data.max_length} tokens need {needed}: set its {option} to {needed} or "
                    "more, or lower max_length."
                )
