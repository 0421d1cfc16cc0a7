"""Does the best learning rate of a small model serve a wide one, and does muP make it so?

    launch/local.sh run transfer --seeds 3

Every width is trained at every peak of the learning rate, under the standard parametrization and
under muP (Yang et al. 2022), which equals it at d_model 512. A head has 64 features at every
width, and d_ff is 4 d_model, as muP assumes. Learning rates transfer if the lines of perplexity
against peak_lr have their lowest point at the same rate for every width.
"""

from t2t_jax.study import cross, study


@study(
    "Widths and learning rates under the standard parametrization and muP",
    columns="parametrization d_model peak_lr",
    split="",
    V=41_100,
    base=dict(norm_placement="pre"),
)
def transfer():
    return cross(
        parametrization=["standard", "mup"],
        d_model=[256, 512, 1024, 2048],
        peak_lr=[0.001, 0.002, 0.004, 0.008, 0.016],
        d_ff=lambda row: 4 * row["d_model"],
        h=lambda row: row["d_model"] // 64,
    )
