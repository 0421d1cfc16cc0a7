"""Parts of a layer that have changed since the paper, each alone and then together.

    launch/local.sh run modifications --preset hour        10 minutes on 2 CPU cores
    launch/local.sh run modifications --preset multi30k    real text, an hour
    launch/local.sh run simplifications --seeds 3 --base-seeds 3       4 minutes

Expected of the first with 3 seeds (experiments/results/modifications-hour): base reaches 74.9 ± 0.6
BLEU, QK-norm 78.4 ± 0.6, the last row 77.4 ± 0.2, no positions 54.8 ± 0.1, post-norm 26.5 ± 4.3.

Base is the paper's with pre-norm. Every row changes one part: the place or the kind of the norm,
the feed-forward layer, or the positions; the last changes several, as today's language models do. A
gated feed-forward layer has three matrices in place of two, so its d_ff is about two thirds of
base's, which keeps the number of parameters. Narang et al. (2021) compare most of these at a larger
scale. `launch/local.sh list parts` says what each part is; `launch/local.sh help part` adds one.

`simplifications` has what later models left out or bounded: the second norm of a layer, biases, the
shared matrix, and the size of the logits, by a cap or in the loss.
"""

from t2t_jax.study import Row, study

GATED = 1344  # about 2/3 of 2,048, and a multiple of the divisors of the presets


# fmt: off
@study("Modifications of the Transformer", split="test", base=dict(norm_placement="pre"),
       columns="norm_placement norm qk_norm feed_forward d_ff positions")
def modifications():
    return [
        Row("base",          {}),
        Row("post-norm",     dict(norm_placement="post")),
        Row("RMSNorm",       dict(norm="rms_norm")),
        Row("QK-norm",       dict(qk_norm="rms_norm")),
        Row("GELU",          dict(feed_forward="gelu")),
        Row("GEGLU",         dict(feed_forward="geglu", d_ff=GATED)),
        Row("SwiGLU",        dict(feed_forward="swiglu", d_ff=GATED)),
        Row("learned",       dict(positions="learned")),
        Row("rotary",        dict(positions="rotary")),
        Row("relative bias", dict(positions="relative")),
        Row("ALiBi",         dict(positions="alibi")),
        Row("no positions",  dict(positions="none")),
        Row("modern",        dict(norm="rms_norm", qk_norm="rms_norm", feed_forward="swiglu",
                                  d_ff=GATED, positions="rotary")),
    ]


@study("Simpler and bounded Transformers", split="test", base=dict(norm_placement="pre"),
       columns="norm_placement norm feed_forward embeddings logit_cap z_loss")
def simplifications():
    return [
        Row("base"),
        Row("parallel",      dict(norm_placement="parallel")),
        Row("no biases",     dict(norm="layer_norm_no_bias", feed_forward="relu_no_bias")),
        Row("untied",        dict(embeddings="untied")),
        Row("capped logits", dict(logit_cap=30.0)),
        Row("z-loss",        dict(z_loss=1e-4)),
    ]
