"""Attention mechanisms in one encoder-decoder, for the same steps or the same FLOPs.

    launch/local.sh run attention --seeds 3 --base-seeds 3          on the built-in corpus
    launch/local.sh run attention_flops --seeds 3 --base-seeds 3    at the FLOPs of base, rows whose
                                                                    FLOPs differ
    launch/local.sh run attention --preset multi30k                 on real text

On 2 CPU cores the first takes about 85 minutes, the second 20. Expected of the first
(experiments/results/attention-demo): base reaches 62.7 ± 0.6 BLEU, talking heads 65.3 ± 1.2, local
attention 64.6 ± 0.3, linear 58.2 ± 0.9, unscaled dot products 50.9 ± 0.2; of the second
(attention_flops-demo): linear 52.1 ± 0.3, delta 45.7 ± 0.8. All rows have the learning rate of
base.

A row uses its mechanism in every role that it supports, except that windows and sparse patterns
leave cross-attention to scaled dot products. The options suit sentences of at most some twenty
subwords; sentences of the preset demo have 10 on average, and sentences of `test_long` have 22.
`contrastive` is the accuracy on minimal pairs. `launch/local.sh list mechanisms` describes each
mechanism, and `launch/local.sh bench attention` measures its cost on long sequences.
"""

from typing import Any

from t2t_jax.study import Row, study

BASE = "scaled dot product"
# A step of these has FLOPs that differ from base's by more than 7% in the preset demo.
OTHER_FLOPS = (
    "multi-query; gated output; linear; performer; cosformer; taylor; retention; gated linear; "
    "mamba2; delta; gated delta"
).split("; ")

EVERYWHERE = "encoder", "decoder", "cross"
WITHIN = "encoder", "decoder"


def row(label, mechanism, roles):
    return Row(label, {f"{role}_attention": mechanism for role in roles})


def rows():
    return [
        Row(BASE),
        row("dot product", "dot_product", EVERYWHERE),
        row("general", "general", EVERYWHERE),
        row("cosine", "cosine", EVERYWHERE),
        Row("multi-query", dict(h_kv=1)),
        Row("gated output", dict(attention_gate="element")),
        row("softmax1", "softmax1", EVERYWHERE),
        row("sink", "sink", EVERYWHERE),
        row("sparsemax", "sparsemax", EVERYWHERE),
        row("entmax", "entmax", EVERYWHERE),
        row("talking heads", "talking_heads", EVERYWHERE),
        row("differential", "differential", EVERYWHERE),
        row("additive", "additive", EVERYWHERE),
        row("local", "local:w=4", WITHIN),
        row("local, also across", "local:w=4", EVERYWHERE),
        row("local-p across", "local_p:w=4", ["cross"]),
        row("dilated", "dilated:w=4,r=2", WITHIN),
        row("block-local", "block_local:b=4", WITHIN),
        row("streaming", "streaming:w=4,g=1", WITHIN),
        row("longformer", "longformer:w=4,g=1", WITHIN),
        row("strided", "sparse_strided:l=4", WITHIN),
        row("fixed", "sparse_fixed:l=4,c=1", WITHIN),
        row("random", "sparse_random:b=2,r=2", WITHIN),
        row("bigbird", "bigbird:b=2,r=1", WITHIN),
        row("block select", "block_select:b=2,n=2", WITHIN),
        row("lsh", "lsh:b=4,c=4,r=2", WITHIN),
        row("top-k", "top_k:k=4", EVERYWHERE),
        row("linear", "linear", EVERYWHERE),
        row("performer", "performer:m=32", EVERYWHERE),
        row("cosformer", "cosformer:M=128", WITHIN),
        row("taylor", "taylor", EVERYWHERE),
        row("retention", "retention", WITHIN),
        row("gated linear", "gated_linear", WITHIN),
        row("mamba2", "mamba2", WITHIN),
        row("delta", "delta", ["decoder"]),
        row("gated delta", "gated_delta", ["decoder"]),
        row("linformer", "linformer:n=64,k=8", ["encoder", "cross"]),
        row("nystrom", "nystrom:m=8", ["encoder"]),
    ]


TABLE: dict[str, Any] = dict(
    columns="encoder_attention decoder_attention cross_attention steps",
    split="test",
    metrics=dict(grammar="PPL,BLEU,BLEU@test_long,contrastive"),
)


@study("Attention mechanisms", **TABLE)
def attention():
    return rows()


@study("Attention mechanisms at equal FLOPs", **TABLE, equal_flops=True)
def attention_flops():
    return [row for row in rows() if row.name in (BASE, *OTHER_FLOPS)]
