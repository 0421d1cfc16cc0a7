"""Table 4: English constituency parsing, with trees written as strings.

    launch/local.sh run table4 --preset paper --directory WSJ        sections 02-21, 22 and 23
    launch/local.sh run table4 --preset treebank --directory SAMPLE  the free sample, in miniature

A run of the second takes 20 minutes on one CPU core. Expected (experiments/results/table4-treebank,
with --seeds 3 --sweep lr_scale=1,2): an F1 of 20.0 for the Transformer, 37.5 for the LSTM
with attention, and 12.3 for right-branching trees. The sample has a sixteenth of the paper's
sentences, too few to compare with the paper's 91.3.

The Transformer has 4 layers, d_model 1024 and d_k = d_v = 128, and otherwise equals base; the beam
is 21, alpha 0.3, and outputs are up to 300 tokens longer than the input. The model with which the
paper compares it on the same data is also recurrent.
"""

from t2t_jax.study import Row, study

parsing = dict(
    corpus="wsj",
    source="en",
    target="tree",
    vocabulary=16_000,
    N=4,
    d_model=1024,
    beam=21,
    alpha=0.3,
    max_extra=300,
)
lstm = dict(
    architecture="recurrent",
    encoder_direction="both",
    attention_feeding="output",
    cross_attention="additive",
)


# fmt: off
@study(
    "Constituency parsing",
    columns="architecture N d_model cross_attention steps",
    split="test",
    base=parsing,
)
def table4():
    return [
        #   name                         difference from base          the paper's F1
        Row("Transformer",               dict(d_k=128, d_v=128),       dict(F1=91.3)),
        Row("LSTM with attention",       lstm,                         dict(F1=88.3)),
    ]
