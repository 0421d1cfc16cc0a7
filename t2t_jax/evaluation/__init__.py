"""Metrics of trained models: BLEU and others, bracketing F1, accuracy, perplexity."""

from t2t_jax.evaluation import bleu as bleu  # these three declare the package's metrics
from t2t_jax.evaluation import parseval as parseval
from t2t_jax.evaluation import teacher_forced as teacher_forced
from t2t_jax.evaluation.metrics import METRICS, PACKAGE

PACKAGE.update(METRICS)
