"""A run that is asked for: whose it is, its config, and where it is kept."""

from dataclasses import dataclass
from pathlib import Path

from t2t_jax import config
from t2t_jax.config import Config


@dataclass(frozen=True, eq=False)
class Job:
    """A row of a table under a seed.

    Attributes:
      name: of the run: `table3-demo/base/0`.
      row: the row's name.
      directory: of the run.
      split: the split to be scored; empty if perplexity is all there is.
    """

    name: str
    row: str
    c: Config
    directory: Path
    split: str


def compile_key(c: Config) -> Config:
    """The config with traced fields at their defaults; runs share a program if theirs are equal.

    A run with early stopping keeps all of its fields, as it may end before the others.
    """
    if c.training.patience:
        return c
    defaults = config.flatten(Config())
    return config.replace(c, **{name: defaults[name] for name in config.TRACED})
