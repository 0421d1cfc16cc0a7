"""A grid of runs, from the rows of a study to its table."""

from t2t_jax.study.registry import Row as Row
from t2t_jax.study.registry import study as study
