"""Induction: one layer of attention cannot find what followed an earlier word, two layers can.

    launch/local.sh run induction --preset diagnostic --seeds 3

The task induction asks for the word that followed the earlier occurrence of the last word (Olsson
et al. 2022). The first layer can give each word the one before it, which the second then looks for.
"""

from t2t_jax.study import cross, study


@study(
    "Induction by depth and position scheme",
    columns="N positions",
    split="test",
    V=36,
    base=dict(corpus="induction", vocabulary=36, architecture="decoder"),
)
def induction():
    return cross(N=[2, 4], positions=["sinusoid", "relative"])
