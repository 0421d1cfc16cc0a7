"""The positions of models that have a limited number of them: learned ones, or of linformer.

Only what is to be trained is checked: a study's rows have the paper's max_length until a preset
lowers it, and stored runs are shown whatever their config.
"""

from t2t_jax.attention import choice
from t2t_jax.config import Config, has
from t2t_jax.data.cache import Split
from t2t_jax.errors import UsageError
from t2t_jax.parts import ARCHITECTURES


def check(c: Config) -> None:
    """Checks that every mechanism has the positions that sentences of max_length need.

    Raises:
      UsageError: a mechanism has too few.
    """
    longest = c.data.max_length
    translates = ARCHITECTURES[c.model.architecture].translates
    source, target = _translated(c, longest) if translates else (longest, longest)
    sentences = f"sentences of up to max_length={longest} tokens"
    _check_mechanisms(c, source, target, sentences, ", or lower max_length")


def check_split(c: Config, name: str, split: Split, limit: int | None, translated: bool) -> None:
    """Checks that the model of a config has the positions that the sentences of a split need.

    Args:
      limit: the number of learned positions, if the model has them.
      translated: whether the split is translated, and not only read under teacher forcing.

    Raises:
      UsageError: it has too few.
    """
    source, target = (int(side.lengths.max()) for side in (split.source, split.target))
    if not translated and limit is not None and max(source, target) > limit:
        raise UsageError(
            f"{name} has a sentence of {max(source, target)} subwords and the model {limit} "
            "learned positions (max_length + max_extra): raise max_length, or set "
            "positions=sinusoid."
        )
    if not ARCHITECTURES[c.model.architecture].translates:
        source = target  # the only sequence that a language model reads
    sentences = f"the sentences of {name}, of up to {max(source, target)} tokens,"
    if translated:
        source, target = _translated(c, source)
    _check_mechanisms(c, source, target, sentences)


def _translated(c: Config, source: int) -> tuple[int, int]:
    """Returns the positions of the source and of the output when it is translated.

    Translation pads sources to a power of two, and outputs are up to max_extra tokens longer.
    """
    padded = 1 << max(4, (source - 1).bit_length())
    return padded, padded + c.decoding.max_extra - 1


def _check_mechanisms(
    c: Config, source: int, target: int, sentences: str, remedy: str = ""
) -> None:
    for role, needed in (("encoder", source), ("cross", source), ("decoder", target)):
        name = f"{role}_attention"
        for piece in choice.pieces(getattr(c.model, name)) if has(c.model, name) else ():
            option, given = choice.capacity(piece)
            if given < needed:
                raise UsageError(
                    f"{name}={piece} has {given} positions, but {sentences} need {needed}: set its "
                    f"{option} to {needed} or more{remedy}."
                )
