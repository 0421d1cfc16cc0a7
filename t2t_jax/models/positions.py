"""Position encodings (section 3.5)."""

import jax
import jax.numpy as jnp


def encode_positions(positions: jax.Array, d_model: int, kind: str) -> jax.Array:
    """Sinusoids, float32 [T, d_model] for positions [T].

    sinusoid: PE[pos, 2i] = sin(pos / 10000^(2i/d_model)), PE[pos, 2i+1] = cos of the same.
    sinusoid_halves (tensor2tensor): all sines, then all cosines, and the wavelengths spaced
    over d_model/2 - 1 steps, so that the last reaches 10000 · 2 pi.
    """
    half = d_model // 2
    i = jnp.arange(half, dtype=jnp.float32)
    exponent = 2 * i / d_model if kind == "sinusoid" else i / max(half - 1, 1)
    angles = positions[:, None].astype(jnp.float32) * (10000.0**-exponent)[None, :]
    sines, cosines = jnp.sin(angles), jnp.cos(angles)
    if kind == "sinusoid":
        return jnp.stack([sines, cosines], axis=-1).reshape(-1, d_model)
    return jnp.concatenate([sines, cosines], axis=-1)
