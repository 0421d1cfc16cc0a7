"""Table 3: variations on the Transformer, EN-DE.

    launch/local.sh run table3                         in miniature on the built-in corpus
    launch/local.sh run table3 --preset hour           wider, for several seeds
    launch/local.sh run table3 --preset multi30k       on real text
    launch/local.sh run table3 --preset paper          as in the paper, on WMT14

The first takes 15 minutes on 2 CPU cores, the second 20 minutes a seed, the third 5 hours.
Expected (experiments/results/table3-demo, -hour, -multi30k): base reaches 62.0, 73.9 and 30.2 BLEU,
and big 77.4, 81.0 and 30.8; the rows below hold the values of the paper.

PPL is per subword, the paper's wordpiece. PPL and BLEU are on dev (newstest2013), with a beam of 4,
alpha 0.6 and no checkpoint averaging. A cell that is blank in the paper is blank here.
"""

from t2t_jax.study import Row, study


# fmt: off
@study(
    "Variations on the Transformer",
    columns="N d_model d_ff h d_k d_v P_drop eps_ls steps",
    split="dev",
)
def table3():
    return [
        #   group   difference from base                   the paper's values, params in millions
        Row("base", {},                                   dict(PPL=4.92, BLEU=25.8, params=65)),
        Row("A",    dict(h=1, d_k=512, d_v=512),          dict(PPL=5.29, BLEU=24.9)),
        Row("A",    dict(h=4, d_k=128, d_v=128),          dict(PPL=5.00, BLEU=25.5)),
        Row("A",    dict(h=16, d_k=32, d_v=32),           dict(PPL=4.91, BLEU=25.8)),
        Row("A",    dict(h=32, d_k=16, d_v=16),           dict(PPL=5.01, BLEU=25.4)),
        Row("B",    dict(d_k=16),                         dict(PPL=5.16, BLEU=25.1, params=58)),
        Row("B",    dict(d_k=32),                         dict(PPL=5.01, BLEU=25.4, params=60)),
        Row("C",    dict(N=2),                            dict(PPL=6.11, BLEU=23.7, params=36)),
        Row("C",    dict(N=4),                            dict(PPL=5.19, BLEU=25.3, params=50)),
        Row("C",    dict(N=8),                            dict(PPL=4.88, BLEU=25.5, params=80)),
        Row("C",    dict(d_model=256, d_k=32, d_v=32),    dict(PPL=5.75, BLEU=24.5, params=28)),
        Row("C",    dict(d_model=1024, d_k=128, d_v=128), dict(PPL=4.66, BLEU=26.0, params=168)),
        Row("C",    dict(d_ff=1024),                      dict(PPL=5.12, BLEU=25.4, params=53)),
        Row("C",    dict(d_ff=4096),                      dict(PPL=4.75, BLEU=26.2, params=90)),
        Row("D",    dict(P_drop=0.0),                     dict(PPL=5.77, BLEU=24.6)),
        Row("D",    dict(P_drop=0.2),                     dict(PPL=4.95, BLEU=25.5)),
        Row("D",    dict(eps_ls=0.0),                     dict(PPL=4.67, BLEU=25.3)),
        Row("D",    dict(eps_ls=0.2),                     dict(PPL=5.47, BLEU=25.7)),
        Row("E",    dict(positions="learned"),            dict(PPL=4.92, BLEU=25.7),
            label="positional embedding instead of sinusoids"),
        Row("big",  dict(d_model=1024, d_ff=4096, h=16, P_drop=0.3, steps=300_000),
                                                          dict(PPL=4.33, BLEU=26.4, params=213)),
    ]
