"""Induction: one layer of attention cannot find the value that follows a key, two layers can.

    launch/local.sh run induction --preset diagnostic --seeds 3

This takes about four minutes on 2 CPU cores. Expected: two layers with relative positions reach 88%
(two of three seeds have found the solution), one layer at most 51%.

The task is associative recall with 4 keys. The first layer can give each word the one before it,
so that the second finds the value whose word before is the key, as in the induction heads of Olsson
et al. (2022). Guessing among the values that are left has an accuracy of 52%.
"""

from t2t_jax.study import cross, study


@study(
    "Induction by depth and position scheme",
    columns="N positions",
    split="test",
    V=36,
    base=dict(
        corpus="recall",
        task_options="keys=4,length=24,fewest=1",
        vocabulary=36,
        architecture="decoder",
    ),
)
def induction():
    return cross(N=[2, 4], positions=["sinusoid", "relative"])
