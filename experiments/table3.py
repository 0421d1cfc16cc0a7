"""Table 3: variations on the Transformer, EN-DE.

    launch/local.sh run table3                         in miniature on the built-in corpus
    launch/local.sh run table3 --preset hour           wider, for several seeds
    launch/local.sh run table3 --preset night          harder sentences and more steps
    launch/local.sh run table3 --preset multi30k       on real text
    launch/local.sh run table3 --preset paper          as in the paper, on WMT14

The first takes 15 minutes on 2 CPU cores, the second 20 minutes a seed, the third 2 hours a seed,
the fourth 5 hours. Expected (experiments/results/table3-demo, -hour, -night, -multi30k): base
reaches 62.0, 74.2, 71.6 and 30.2 BLEU, and big 77.4, 81.5, 85.4 and 30.8; the rows below hold the
values of the paper.

PPL is per subword, the paper's wordpiece. PPL and BLEU are on dev (newstest2013), with a beam of 4,
alpha 0.6 and no checkpoint averaging. A cell that is blank in the paper is blank here.
"""

from t2t_jax.study import Row, study


# fmt: off
@study(
    "Variations on the Transformer",
    columns="N d_model d_ff h d_k d_v P_drop eps_ls steps",
    split="dev",
    V=41_100,  # where the paper's parameters come out, big's apart
)
def table3():
    return [
        #   group   difference from base                             PPL  BLEU  params (M)
        Row("base", {},                                             4.92, 25.8, 65),
        Row("A",    dict(h=1, d_k=512, d_v=512),                    5.29, 24.9),
        Row("A",    dict(h=4, d_k=128, d_v=128),                    5.00, 25.5),
        Row("A",    dict(h=16, d_k=32, d_v=32),                     4.91, 25.8),
        Row("A",    dict(h=32, d_k=16, d_v=16),                     5.01, 25.4),
        Row("B",    dict(d_k=16),                                   5.16, 25.1, 58),
        Row("B",    dict(d_k=32),                                   5.01, 25.4, 60),
        Row("C",    dict(N=2),                                      6.11, 23.7, 36),
        Row("C",    dict(N=4),                                      5.19, 25.3, 50),
        Row("C",    dict(N=8),                                      4.88, 25.5, 80),
        Row("C",    dict(d_model=256, d_k=32, d_v=32),              5.75, 24.5, 28),
        Row("C",    dict(d_model=1024, d_k=128, d_v=128),           4.66, 26.0, 168),
        Row("C",    dict(d_ff=1024),                                5.12, 25.4, 53),
        Row("C",    dict(d_ff=4096),                                4.75, 26.2, 90),
        Row("D",    dict(P_drop=0.0),                               5.77, 24.6),
        Row("D",    dict(P_drop=0.2),                               4.95, 25.5),
        Row("D",    dict(eps_ls=0.0),                               4.67, 25.3),
        Row("D",    dict(eps_ls=0.2),                               5.47, 25.7),
        Row("E",    dict(positions="learned"),                      4.92, 25.7,
            label="positional embedding instead of sinusoids"),
        Row("big",  dict(d_model=1024, d_ff=4096, h=16, P_drop=0.3, steps=300_000),
                                                                    4.33, 26.4, 213),
    ]
