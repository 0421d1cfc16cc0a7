"""Associative recall: which mechanisms find a value by its key, and with how large a state.

    launch/local.sh run recall --preset diagnostic --seeds 3

This takes about fifteen minutes on 2 CPU cores. Expected accuracies: taylor 100%; retention 96% and
97%; delta 72% with a d_k of 8 and 96% with 32; linear 71% and 70%; softmax 93%; the window alone
7%. Deviations over seeds reach 47: some seeds have not found the solution after 1,000 steps.

The task is multi-query associative recall (Arora et al. 2023) with 8 keys, and with 1 to 8 in
training. A decoder of two layers reads keys, each followed by its value, and then every key again,
behind which it predicts the value. Guessing among the values that are left has an accuracy of 34%.
The first layer is a window of two positions, in which a value can see its key, as in the hybrids of
Arora et al. (2024); the second is the mechanism that is compared. No row has positions, as not all
mechanisms can be combined with them.

The state of softmax attention grows with the sequence. That of the others is d_k d_v numbers
(taylor: (1 + d_k + d_k^2) d_v), for one head, d_v = 32 and a d_k of 8 or 32.
"""

from t2t_jax.study import Row, study


def second(mechanism, d_k=64):
    """A change: the mechanism of the second layer; d_k is at the paper's scale, as 64 is 8 here."""
    return dict(decoder_attention=f"local:w=1,{mechanism}", d_k=d_k)


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
        Row("softmax, d_k 8"),
        Row("window alone", dict(decoder_attention="local:w=1")),
        *(
            Row(f"{name}, d_k {d_k // 8}", second(name, d_k))
            for name in ("linear", "retention", "delta", "taylor")
            for d_k in (64, 256)
            if (name, d_k) != ("taylor", 256)
        ),
    ]
