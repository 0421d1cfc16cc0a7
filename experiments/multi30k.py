"""Multi30k EN-DE, test2016: three recipes at the size of Transformer-Tiny of Wu et al. (2021).

    launch/local.sh run multi30k --preset paper --directory DIR --seeds 3
    launch/local.sh run multi30k_lower --preset paper --directory DIR --seeds 3    in lower case

By their FLOPs, a seed of `quick` takes about 10 minutes on 2 CPU cores, of `hour` an hour, and of
`best` 2 hours. The stored runs are an H200's, where a seed of `best` took 3.0 minutes; the two of
`hour` ended on a CPU. Expected
(experiments/results/multi30k-paper): 36.7, 39.5 and 40.8 BLEU on tokenised, lowercased text, for
which Wu et al. report 41.02. They train on such text. These recipes read raw text, but `best` of
`multi30k_lower` reads it in lower case: 40.4 BLEU (experiments/results/multi30k_lower-paper).
`train multi30k_quick` trains one alone.

DIR holds train.en.gz, train.de.gz, val.* and test_2016_flickr.*; without --directory they are
downloaded.
"""

from typing import Any

from t2t_jax.recipes import RECIPES
from t2t_jax.study import Row, study

METRICS = "PPL,BLEU,BLEU lowercased,BLEU Moses"
OPTIONS: dict[str, Any] = dict(
    columns="vocabulary batch_tokens P_drop peak_lr steps",
    split="test",
    base=dict(dtype="float32"),  # also on a GPU
)


def recipe(name):
    return RECIPES[f"multi30k_{name}"][1]


@study("Multi30k EN-DE, test2016", metrics=dict(multi30k=METRICS), **OPTIONS)
def multi30k():
    return [Row(name, recipe(name)) for name in ("quick", "hour", "best")]


@study("Multi30k EN-DE in lower case, test2016", metrics=dict(multi30k_lower=METRICS), **OPTIONS)
def multi30k_lower():
    return [Row("best", recipe("best") | dict(corpus="multi30k_lower"))]
