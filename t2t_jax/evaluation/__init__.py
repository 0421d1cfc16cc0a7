"""Metrics of trained models: BLEU and others, bracketing F1, accuracy, perplexity."""

from t2t_jax.evaluation import accuracy as accuracy  # these four declare the package's metrics
from t2t_jax.evaluation import bleu as bleu
from t2t_jax.evaluation import likelihood as likelihood
from t2t_jax.evaluation import parseval as parseval
from t2t_jax.evaluation.metrics import METRICS, PACKAGE

PACKAGE.update(METRICS)
