"""Studies: their rows, the grids of runs that these become, and the tables of their results."""

from t2t_jax.evaluation.metrics import metric as metric
from t2t_jax.extend import corpus as corpus
from t2t_jax.extend import feed_forward as feed_forward
from t2t_jax.extend import mechanism as mechanism
from t2t_jax.extend import norm as norm
from t2t_jax.extend import norm_placement as norm_placement
from t2t_jax.extend import positions as positions
from t2t_jax.extend import schedule as schedule
from t2t_jax.study.registry import Row as Row
from t2t_jax.study.registry import cross as cross
from t2t_jax.study.registry import study as study
