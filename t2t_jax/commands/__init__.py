"""The commands: each reads its arguments, calls the package, and prints what it returns."""

from t2t_jax.commands import bench as bench
from t2t_jax.commands.machine import doctor as doctor
from t2t_jax.commands.machine import help_ as help_
from t2t_jax.commands.machine import list_ as list_
from t2t_jax.commands.machine import prune as prune
from t2t_jax.commands.machine import topics as topics
from t2t_jax.commands.running import run as run
from t2t_jax.commands.showing import plot as plot
from t2t_jax.commands.showing import publish as publish
from t2t_jax.commands.showing import report as report
from t2t_jax.commands.showing import results as results
from t2t_jax.commands.showing import table as table
from t2t_jax.commands.single import attend as attend
from t2t_jax.commands.single import evaluate as evaluate
from t2t_jax.commands.single import export as export
from t2t_jax.commands.single import translate as translate
from t2t_jax.commands.training import prepare as prepare
from t2t_jax.commands.training import train as train
