"""Attention mechanisms in one encoder-decoder, for the same steps or the same FLOPs.

    launch/local.sh run attention --preset short         in miniature on the built-in corpus
    launch/local.sh run attention_flops --preset short   with as many steps as base's FLOPs allow
    launch/local.sh run attention --preset multi30k      on real text

Each of the first two takes about half an hour on 2 CPU cores for each of --seeds. Expected with 3
seeds (experiments/results/attention-short): base reaches 48.0 ± 1.0 BLEU, local attention 53.8 ±
0.3, linear 37.6 ± 2.1 and unscaled dot products 11.1 ± 1.1.

A mechanism takes every role that it supports. Where it has no meaning, as a sparse pattern between
two sequences, scaled dot-product attention stays. `launch/local.sh list mechanisms` describes each
mechanism, and `launch/local.sh bench attention` measures its cost on long sequences.
"""

from t2t_jax.study import Row, study


def everywhere(mechanism):
    return dict(encoder_attention=mechanism, decoder_attention=mechanism, cross_attention=mechanism)


def within(mechanism):
    return dict(encoder_attention=mechanism, decoder_attention=mechanism)


def rows():
    return [
        Row("scaled dot product", {}),
        Row("dot product", everywhere("dot_product")),
        Row("general", everywhere("general")),
        Row("additive", everywhere("additive")),
        Row("local", within("local:w=4")),
        Row("local, also across", everywhere("local:w=4")),
        Row("local-p across", dict(cross_attention="local_p:w=4")),
        Row("strided", within("sparse_strided:l=4")),
        Row("fixed", within("sparse_fixed:l=4,c=1")),
        Row("random", within("sparse_random:b=2,r=2")),
        Row("linear", everywhere("linear")),
        Row("performer", everywhere("performer:m=32")),
        Row("mixed", within("local:w=4") | dict(decoder_attention="linear")),
        Row("rotary", dict(positions="rotary")),
        Row("relative bias", dict(positions="relative")),
    ]


COLUMNS = "encoder_attention decoder_attention cross_attention positions steps"


@study("Attention mechanisms", columns=COLUMNS, split="test", V=41_100)
def attention():
    return rows()


@study(
    "Attention mechanisms at equal FLOPs", columns=COLUMNS, split="test", V=41_100, equal_flops=True
)
def attention_flops():
    return rows()
