"""Optimizers and schedules, each at the best of six learning rates.

    launch/local.sh run optimizers --seeds 3 --base-seeds 3        25 minutes on 2 CPU cores

Base is the paper's Adam with the preset's schedule. Every row changes the optimizer, weight
decay, gradient clipping, or the schedule, and is tuned as much as base. Muon orthogonalises
the updates of the layers' matrices, and leaves embeddings, biases and the scales of norms to Adam.
Its updates are scaled to the size of Adam's (Liu et al. 2025, equation 4), so the same learning
rates serve both. The cost table and the learning plots compare rows by time.

This file declares the optimizers and the schedule that the package does not have. They import what
they need when they are used, so that studies are listed without JAX.
"""

from t2t_jax.study import Row, optimizer, schedule, study


@optimizer("adafactor", "Adafactor: second moments by row and column (Shazeer and Stern 2018)")
def adafactor():
    import optax

    return optax.adafactor(-1.0, min_dim_size_to_factor=4, multiply_by_parameter_scale=False)


@optimizer("muon", "Muon: orthogonalised momentum for matrices, Adam for the rest (Jordan 2024)")
def muon(beta1, beta2):
    import optax

    return optax.contrib.muon(
        -1.0,
        adam_b1=beta1,
        adam_b2=beta2,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=matrices,
    )


def matrices(params):
    """The axes of inputs and outputs of the layers' matrices; None for what Adam updates."""
    import jax
    from optax.contrib import MuonDimensionNumbers

    from t2t_jax.training.optimizer import is_bias

    def axes(path, W):
        if W.ndim < 2 or path[-1].key in ("matrix", "table") or is_bias(path):
            return None
        inputs = W.ndim - 1 if path[-1].key == "W_O" else 1
        return MuonDimensionNumbers((*range(inputs),), (*range(inputs, W.ndim),))

    return jax.tree_util.tree_map_with_path(axes, params)


@schedule("wsd", "warm-up, constant, linear to zero in the last fifth (Hu et al. 2024)")
def wsd(step, warmup, steps):
    import jax.numpy as jnp

    return jnp.minimum(jnp.minimum(step / warmup, 1), (steps - step) / (0.2 * steps))


# fmt: off
@study("Optimizers and schedules", split="test", base=dict(norm_placement="pre"),
       columns="optimizer weight_decay clip_norm schedule",
       sweep=dict(lr_scale=[0.02, 0.06, 0.2, 0.6, 2, 6]))
def optimizers():
    return [
        Row("base",         {}),
        Row("AdamW",        dict(weight_decay=0.1)),
        Row("clipped",      dict(clip_norm=1.0)),
        Row("Lion",         dict(optimizer="lion")),
        Row("Adafactor",    dict(optimizer="adafactor")),
        Row("Muon",         dict(optimizer="muon")),
        Row("inverse_sqrt", dict(schedule="inverse_sqrt")),
        Row("WSD",          dict(schedule="wsd")),
    ]
