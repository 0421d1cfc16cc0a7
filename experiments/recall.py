"""Associative recall: which mechanisms find a value by its key, and with how large a state.

    launch/local.sh run recall --preset diagnostic --seeds 3

The task is multi-query associative recall (Arora et al. 2023) with 8 keys, and with 1 to 8 in
training. A decoder of two layers reads keys, each followed by its value, and then every key again,
behind which it predicts the value. Guessing among the values that are left has an accuracy of 34%.
The first layer is a window of two positions, in which a value can see its key, as in the hybrids of
Arora et al. (2024); the second is the mechanism that is compared. No row has positions, as not all
mechanisms can be combined with them.

The state of a mechanism that keeps keys grows with the sequence. That of the memories is d_k d_v
numbers (taylor: (1 + d_k + d_k^2) d_v), for one head, d_v = 32 and a d_k of 8 or 32. Patterns have
options for which they see a part of the 56 tokens.
"""

from t2t_jax.study import Row, study

KEYS = (  # mechanisms that keep all keys
    *("dot_product", "general", "cosine", "softmax1", "sink", "sparsemax", "entmax"),
    *("talking_heads", "differential", "additive", "top_k:k=4"),
)
PATTERNS = (
    *("local:w=16", "dilated:w=8,r=2", "block_local:b=16", "streaming:w=16,g=4"),
    *("longformer:w=16,g=1", "sparse_strided:l=8", "sparse_fixed:l=8,c=2"),
    *("sparse_random:b=4,r=2", "bigbird:b=4,r=2", "block_select:b=4,n=4", "lsh:b=8,c=8,r=2"),
)
MEMORIES = (
    *("linear", "performer", "cosformer:M=64", "retention", "gated_linear", "mamba2"),
    *("delta", "gated_delta"),
)


def second(mechanism, d_k=64):
    """A change: the mechanism of the second layer; d_k is at the paper's scale, as 64 is 8 here."""
    return dict(decoder_attention=f"local:w=1,{mechanism}", d_k=d_k)


def name(mechanism):
    return mechanism.split(":")[0]


@study(
    "Associative recall by mechanism and state",
    columns="decoder_attention d_k",
    split="test",
    V=36,
    base=dict(
        corpus="recall",
        task_options="keys=8,length=40,fewest=1",
        vocabulary=36,
        architecture="decoder",
        positions="none",
        N=4,
        d_model=512,
        d_ff=1024,
        h=1,
        d_k=64,
        d_v=256,
        decoder_attention="local:w=1,scaled_dot_product",
    ),
)
def recall():
    return [
        Row("scaled_dot_product"),
        Row("window alone", dict(decoder_attention="local:w=1")),
        *(Row(name(x), second(x)) for x in (*KEYS, *PATTERNS)),
        *(Row(f"{name(x)}, d_k {k}", second(x, 8 * k)) for x in MEMORIES for k in (8, 32)),
        Row("taylor, d_k 8", second("taylor")),
    ]
