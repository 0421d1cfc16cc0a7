"""A job: a run that a grid asks for."""

from dataclasses import dataclass
from pathlib import Path

from t2t_jax import config
from t2t_jax.config import Config


@dataclass(frozen=True, eq=False)
class Job:
    """A row of a study under one seed.

    Attributes:
      name: the run's name, such as `table3-demo/base/0`.
      directory: the run's directory.
      splits: those that are scored, the study's own first; empty if only perplexity is measured.
    """

    name: str
    c: Config
    directory: Path
    splits: tuple[str, ...]


def compile_key(c: Config) -> Config:
    """Returns the config with traced fields at their defaults; equal keys share a program.

    A run with early stopping keeps all of its fields, because it may end before the others.
    """
    if c.training.patience:
        return c
    defaults = config.flatten(Config())
    return config.replace(c, **{name: defaults[name] for name in config.TRACED})
