"""FLOPs of training by formula, from a config alone; without JAX."""

from t2t_jax.attention.choice import products
from t2t_jax.config import Config, Model

_LENGTH = 32  # subwords of a typical sentence


def run_flops(c: Config, V: int) -> float:
    """FLOPs of a whole training if every sentence had 32 subwords, for comparing runs."""
    B = max(1, c.data.batch_tokens // _LENGTH)
    return c.training.steps * step_flops(c.model, V, B, _LENGTH, _LENGTH)


def step_flops(c: Model, V: int, B: int, S: int, T: int) -> float:
    """FLOPs of the matrix products in one training step on B pairs of S and T positions.

    A multiplication and an addition count as two FLOPs, the backward pass as twice the forward
    pass. Attention counts what its mechanism computes, masked scores included.
    """
    forward = {
        "transformer": _transformer,
        "recurrent": _recurrent,
        "convolutional": _convolutional,
        "encoder": _alone,
        "decoder": _alone,
    }
    return 3 * 2.0 * B * (forward[c.architecture](c, S, T) + T * c.d_model * V)


def _transformer(c: Model, S: int, T: int) -> int:
    project = 2 * c.d_model * c.h * (c.d_k + c.d_v)  # W_Q, W_K, W_V and W_O
    feed_forward = 2 * c.d_model * c.d_ff

    def attend(mechanism: str, T: int, S: int, causal: bool = False) -> int:
        return c.h * products(mechanism, T, S, c.d_k, c.d_v, causal)

    encoder = S * (project + feed_forward) + attend(c.encoder_attention, S, S)
    cross = (T + S) * project // 2 + attend(c.cross_attention, T, S)
    decoder = T * (project + feed_forward) + attend(c.decoder_attention, T, T, True) + cross
    return c.N * (encoder + decoder)


def _recurrent(c: Model, S: int, T: int) -> int:
    d = c.d_model
    gates = {"lstm": 4, "gru": 3}[c.cell]
    ways = 2 if c.encoder_direction == "both" else 1
    encoder = S * c.N * gates * (d * d + d * d // ways)
    decoder = T * c.N * gates * 2 * d * d + (T * gates * d * d if c.feed == "input" else 0)
    if c.feed == "none":
        return encoder + decoder
    return encoder + decoder + products(c.cross_attention, T, S, d, d, False) + T * 2 * d * d


def _convolutional(c: Model, S: int, T: int) -> int:
    d = c.d_model
    attend = T * 2 * d * d + products(c.cross_attention, T, S, d, d, False)
    return c.N * ((S + T) * c.kernel * 2 * d * d + attend)


def _alone(c: Model, S: int, T: int) -> int:
    causal = c.architecture == "decoder"
    mechanism = c.decoder_attention if causal else c.encoder_attention
    within = 2 * c.d_model * c.h * (c.d_k + c.d_v) + 2 * c.d_model * c.d_ff
    return c.N * (T * within + c.h * products(mechanism, T, T, c.d_k, c.d_v, causal))
