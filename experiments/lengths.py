"""Extrapolation: which position schemes work on sequences longer than in training.

    launch/local.sh run lengths --preset diagnostic --seeds 3 --base-seeds 3
    launch/local.sh run lengths_dyck --preset diagnostic --seeds 3 --base-seeds 3

The models are decoders of two layers with eight heads. They are trained on sequences of up to 24 or
32 tokens, and tested on that length and on 2, 4 and 8 times as much. A table of learned positions
is left out, as it has no entries for longer sequences.

Each takes about five minutes on 2 CPU cores. Expected of `lengths` at 8 times the length, with
every seed: alibi and relative 99.8%, rotary 89% and sinusoid 58%, near guessing. Without positions
two of three seeds find the solution.

In `lengths` a model names the value of each of 4 keys (the task recall). Guessing among the values
that are left has an accuracy of 52%. In `lengths_dyck` it names the bracket that closes next, of 16
types nested up to 4 deep.
"""

from t2t_jax.study import Row, study

METRICS = "accuracy,accuracy@test2x,accuracy@test4x,accuracy@test8x"


def table(corpus, task_options):
    """The arguments of a study of a task."""
    base = dict(corpus=corpus, task_options=task_options)
    base |= dict(vocabulary=36, architecture="decoder", N=4)
    return dict(columns="positions", split="test", metrics={corpus: METRICS}, base=base)


def schemes():
    others = ("none", "rotary", "relative", "alibi")
    return [Row("sinusoid"), *(Row(name, dict(positions=name)) for name in others)]


@study(
    "Recall in longer sequences by position scheme", **table("recall", "keys=4,length=24,fewest=1")
)
def lengths():
    return schemes()


@study(
    "Dyck languages in longer sequences by position scheme", **table("dyck", "length=32,depth=4")
)
def lengths_dyck():
    return schemes()
