"""Position encodings (section 3.5), rotary positions and the relative bias."""

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


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """x [B, L, h, d] with each pair of features turned by its position (RoPE, Su et al. 2021).

    The pair 2i, 2i + 1 turns by pos / 10000^(2i/d), so that a product of two depends on the
    distance between their positions [L] alone.
    """
    d = x.shape[-1]
    encoded = encode_positions(positions, d, "sinusoid")
    sine, cosine = (encoded[:, i::2].astype(x.dtype)[None, :, None] for i in (0, 1))
    even, odd = x[..., ::2], x[..., 1::2]
    turned = even * cosine - odd * sine, even * sine + odd * cosine
    return jnp.stack(turned, axis=-1).reshape(x.shape)


BUCKETS, FARTHEST = 32, 128  # T5's


def bucket(distance: jax.Array, causal: bool) -> jax.Array:
    """Which of the 32 biases holds for keys at a distance s - t (Raffel et al. 2020, T5).

    Half of the buckets are exact, the others grow in logarithms up to 128, where the last begins;
    unless causal, past and future have 16 each.
    """
    size = BUCKETS if causal else BUCKETS // 2
    far = jnp.maximum(-distance, 0) if causal else jnp.abs(distance)
    exact = size // 2
    growth = jnp.log(jnp.maximum(far, 1) / exact) / jnp.log(FARTHEST / exact)
    grown = exact + (growth * (size - exact)).astype(jnp.int32)
    found = jnp.where(far < exact, far, jnp.minimum(grown, size - 1))
    return found if causal else found + jnp.where(distance > 0, size, 0)
