"""Studies: their rows, the grids of runs that these become, and the tables of results."""

from t2t_jax.evaluation.metrics import metric as metric
from t2t_jax.study.cross import cross as cross
from t2t_jax.study.registry import Row as Row
from t2t_jax.study.registry import study as study
