"""FLOPs of a training step by the model's formula, and what the device could do at most."""

import time

import jax
import jax.numpy as jnp

from t2t_jax.config import Model

# Dense bf16 matrix FLOP/s of what JAX counts as one device, from the makers' data sheets.
_PEAK = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "V100": 125e12,
    "L40S": 362e12,
    "L4": 121e12,
    "T4": 65e12,
    "TPU v2": 23e12,
    "TPU v3": 61e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
}


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


def peak_flops() -> float | None:
    """FLOP/s that all devices reach at most: the data sheet's, on a CPU that of a measured product.

    None for an accelerator that is not in the list.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return _measured()
    kind = device.device_kind.replace("-", " ")
    names = [n for n in _PEAK if f" {n} " in f" {kind} "]
    return _PEAK[max(names, key=len)] * jax.device_count() if names else None


def _measured() -> float:
    n = 2048
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    product(a).block_until_ready()
    fastest = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        product(a).block_until_ready()
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * n**3 / fastest
