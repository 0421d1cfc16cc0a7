"""Table 2: the Transformer beside recurrent and convolutional sequence-to-sequence models.

    launch/local.sh run table2 --preset hour           in miniature on the built-in corpus
    launch/local.sh run table2_flops --preset hour     with as many steps as base's FLOPs allow
    launch/local.sh run table2 --preset multi30k       on real text

The first takes about 12 minutes on 2 CPU cores for each of --seeds. Expected with 3 seeds and the
best of four learning rates for each row (experiments/results/table2-hour): base reaches 74.6 ± 0.6
BLEU, the LSTM without attention 44.0 ± 0.5, with dot-product attention 83.5 ± 0.3, and ConvS2S 74.9
± 0.6.

At the paper's scale, every model except big has about the 65M parameters of base. All train for
the steps of base, even big, for which the paper took 300,000. The last 5 checkpoints are averaged,
the last 20 of big. The paper's BLEU and FLOPs are on newstest2014 EN-DE; the recurrent and
convolutional systems that it quotes are larger than these.
"""

from t2t_jax.study import Row, study

lstm = dict(architecture="recurrent", N=4, d_model=768, encoder_direction="both", average=5)
convs2s = dict(
    architecture="convolutional",
    N=12,
    kernel=3,
    positions="learned",
    cross_attention="dot_product",
    average=5,
)
dot = dict(attention_feeding="output", cross_attention="dot_product")
additive = dict(attention_feeding="input", cross_attention="additive")
big = dict(d_model=1024, d_ff=4096, h=16, P_drop=0.3, average=20)


# fmt: off
def rows():
    return [
        #   name                 difference from base    the paper's values
        Row("Transformer base",  dict(average=5),        dict(BLEU=27.3, FLOPs=3.3e18)),
        Row("Transformer big",   big,                    dict(BLEU=28.4, FLOPs=2.3e19)),
        Row("LSTM",              lstm),
        Row("LSTM, dot",         lstm | dot),
        Row("LSTM, additive",    lstm | additive),
        Row("ConvS2S",           convs2s,                dict(BLEU=25.16, FLOPs=9.6e18)),
    ]
# fmt: on


COLUMNS = "architecture N d_model attention_feeding cross_attention average steps"


@study("Architectures", columns=COLUMNS, split="test")
def table2():
    return rows()


@study("Architectures at equal FLOPs", columns=COLUMNS, split="test", equal_flops=True)
def table2_flops():
    return rows()
