"""FLOPs of a training step by the model's formula; no JAX."""

from t2t_jax.config import Model


def step_flops(c: Model, V: int, B: int, S: int, T: int) -> float:
    """FLOPs of the matrix products of one training step on B pairs of S and T positions.

    A multiplication and an addition count as two; the backward pass as twice the forward one.
    Attention over all pairs is counted, causal or not, as a dense mechanism computes it.
    """
    project = 2 * c.d_model * c.h * (c.d_k + c.d_v)  # two of d_k or d_v in, and W_V, W_O
    attend = c.h * (c.d_k + c.d_v)
    feed_forward = 2 * c.d_model * c.d_ff
    encoder = S * (project + S * attend + feed_forward)
    queries = T * project // 2 + T * S * attend
    memory = S * project // 2
    decoder = T * (project + T * attend + feed_forward) + queries + memory
    return 3 * 2.0 * B * (c.N * (encoder + decoder) + T * c.d_model * V)
