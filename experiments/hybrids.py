"""Hybrids: how many layers of softmax attention a model needs among layers of another kind.

    launch/local.sh run hybrids --preset diagnostic --seeds 3

The task is associative recall with 8 keys, as in recall.py, for decoders of four layers with one
head and a d_k of 16. A row names the mechanism of each layer, from the first; a shorter list
repeats.
"""

from t2t_jax.study import Row, study

SOFTMAX = "scaled_dot_product"


def layers(*mechanisms):
    return dict(decoder_attention=",".join(mechanisms))


@study(
    "Hybrids of attention mechanisms by layer",
    columns="decoder_attention",
    split="test",
    V=36,
    base=dict(
        corpus="recall",
        task_options="keys=8,length=40,fewest=1",
        vocabulary=36,
        architecture="decoder",
        N=8,
        d_model=512,
        d_ff=1024,
        h=1,
        d_k=128,
        d_v=256,
    ),
)
def hybrids():
    return [
        Row("softmax"),
        Row("linear", layers("linear")),
        Row("linear, softmax last", layers("linear", "linear", "linear", SOFTMAX)),
        Row("linear, softmax first", layers(SOFTMAX, "linear", "linear", "linear")),
        Row("linear and softmax", layers("linear", SOFTMAX)),
        Row("window", layers("local:w=4")),
        Row("window, softmax last", layers("local:w=4", "local:w=4", "local:w=4", SOFTMAX)),
        Row("window and linear", layers("local:w=4", "linear")),
        Row("window and delta", layers("local:w=4", "delta")),
        Row("delta", layers("delta")),
        Row("delta, softmax last", layers("delta", "delta", "delta", SOFTMAX)),
    ]
