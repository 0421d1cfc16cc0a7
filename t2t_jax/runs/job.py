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
    """What runs must share to be trained in one program, their data among it.

    Fields that are traced (`step.Hyper`) have one value in it. Early stopping stands alone.
    """
    traced = dict(P_drop=0.0, eps_ls=0.0, peak_lr=0.0, lr_scale=1.0, warmup=1, seed=0)
    return c if c.training.patience else config.replace(c, **traced)
