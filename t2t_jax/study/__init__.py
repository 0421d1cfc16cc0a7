"""Studies: rows, the grids of runs that they become, and the tables of their results.

A `Study` is a table of `Row`s, each the difference of a config from base. A `Preset` is a scale. A
`Grid` is a study at a preset's scale with a store; its cells are jobs, one run for each row and
seed. A sweep tries a row at several values (`Trial`) and keeps one (`Choice`). `RowResult` is a row
with its stored runs and what these measure, a line of a table. A `Measure` is a metric of a row:
its values over seeds, their mean, and the `Difference` from base. A `Table` is text in cells, which
`typeset` and `latex` set.
"""

from t2t_jax.evaluation.metrics import metric as metric
from t2t_jax.extend import architecture as architecture
from t2t_jax.extend import cell as cell
from t2t_jax.extend import corpus as corpus
from t2t_jax.extend import feed_forward as feed_forward
from t2t_jax.extend import mechanism as mechanism
from t2t_jax.extend import norm as norm
from t2t_jax.extend import norm_placement as norm_placement
from t2t_jax.extend import optimizer as optimizer
from t2t_jax.extend import output_rule as output_rule
from t2t_jax.extend import positions as positions
from t2t_jax.extend import schedule as schedule
from t2t_jax.study.declaration import Row as Row
from t2t_jax.study.declaration import cross as cross
from t2t_jax.study.declaration import study as study
