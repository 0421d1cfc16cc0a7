"""Associative recall: which mechanisms find a value by its key, and with how large a state.

    launch/local.sh run recall --preset diagnostic --seeds 3 --metrics accuracy,exact,PPL

This should take about ten minutes on 2 CPU cores that do nothing else (an estimate). With one seed
and --steps 600, scaled dot-product attention found 99.99% of the values, after a sharp transition
between steps 300 and 450; linear attention 39%, the Performer with 8 features 20% and local
attention 13%. Guessing among the values that are left gives 34%. The other rows were not run.

The task is multi-query associative recall (Arora et al. 2023) with 8 keys. A decoder of two layers
reads keys and values, and then each key again, behind which it predicts the value. The state of
linear attention and of the Performer does not grow with the sequence: h d_v features, of which
there are d_k or m. Linear attention cannot be combined with rotary positions, so its rows have
learned ones, and so has a row of scaled dot-product attention beside it.

Training examples have 1 to 8 keys. With 8 keys in all of them, no model left the plateau of guesses
in 800 steps, nor did one with sinusoids in 3000.
"""

from t2t_jax.study import Row, study

WIDE = dict(d_model=1024, d_ff=2048, d_k=512, d_v=512)


def learned(**changes):
    return dict(positions="learned", **changes)


@study(
    "Associative recall by mechanism and state",
    columns="decoder_attention positions d_model",
    split="test",
    V=36,
    base=dict(
        corpus="recall",
        task_options="keys=8,length=40,fewest=1",
        vocabulary=36,
        architecture="decoder",
        positions="rotary",
        N=4,
        d_model=512,
        d_ff=1024,
        h=2,
        d_k=256,
        d_v=256,
    ),
)
def recall():
    return [
        Row("scaled dot product"),
        Row("local", dict(decoder_attention="local:w=8")),
        Row("performer, m=8", dict(decoder_attention="performer:m=8")),
        Row("performer, m=128", dict(decoder_attention="performer:m=128")),
        Row("scaled dot product, learned", learned()),
        Row("linear, learned", learned(decoder_attention="linear")),
        Row("scaled dot product, wide", WIDE),
        Row("linear, learned, wide", learned(decoder_attention="linear", **WIDE)),
    ]
