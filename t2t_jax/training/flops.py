"""FLOPs of a training step by the model's formula; no JAX."""

from t2t_jax.attention.choice import products
from t2t_jax.config import Config, Model

_LENGTH = 32  # of a typical sentence, in subwords


def run_flops(c: Config, V: int) -> float:
    """FLOPs of a whole training, were all its sentences of 32 subwords: to compare runs with."""
    B = max(1, c.data.batch_tokens // _LENGTH)
    return c.training.steps * step_flops(c.model, V, B, _LENGTH, _LENGTH)


def step_flops(c: Model, V: int, B: int, S: int, T: int) -> float:
    """FLOPs of the products of one training step on B pairs of S and T positions.

    A multiplication and an addition count as two; the backward pass as twice the forward one.
    Attention counts as its mechanism computes it, what it masks included.
    """
    project = 2 * c.d_model * c.h * (c.d_k + c.d_v)  # two of d_k or d_v in, and W_V, W_O
    feed_forward = 2 * c.d_model * c.d_ff

    def attend(mechanism: str, T: int, S: int, causal: bool = False) -> int:
        return c.h * products(mechanism, T, S, c.d_k, c.d_v, causal)

    encoder = S * (project + feed_forward) + attend(c.encoder_attention, S, S)
    cross = (T + S) * project // 2 + attend(c.cross_attention, T, S)
    decoder = T * (project + feed_forward) + attend(c.decoder_attention, T, T, True) + cross
    return 3 * 2.0 * B * (c.N * (encoder + decoder) + T * c.d_model * V)
