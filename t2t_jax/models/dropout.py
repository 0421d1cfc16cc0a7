"""Dropout (section 5.4), with random bits at a quarter of what `jax.random` takes for them.

Threefry is what JAX draws with, in 20 rounds, of whose two words it keeps one. Thirteen rounds are
the fewest that pass BigCrush (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

_ROTATIONS = 13, 15, 26, 6, 17, 29, 16, 24


def dropout(x: Array, rate: Array | float, key: Array) -> Array:
    """x with a share `rate` of its elements zeroed and the others scaled up to keep the mean.

    `rate` may be traced. Sixteen bits decide an element, to 2^-16: a function of the key and of its
    place, however many rows (of the first axis) follow.
    """
    cut = jnp.round(jnp.asarray(rate, jnp.float32) * 2**16)
    scale = (2**16 / (2**16 - cut)).astype(x.dtype)
    kept = _bits(key, x.shape) >= cut.astype(jnp.uint16)
    return jnp.where(kept, x * scale, jnp.zeros_like(x))


def _bits(key: Array, shape: tuple[int, ...]) -> Array:
    """uint16 of a shape: four from each draw."""
    d = shape[-1]
    drawn = (*shape[:-1], -(-d // 4))
    place = jnp.zeros(drawn, jnp.uint32)
    for axis in range(len(drawn)):
        along = jax.lax.broadcasted_iota(jnp.uint32, drawn, axis)
        place += along * jnp.uint32(math.prod(drawn[axis + 1 :]))
    first, second = jax.random.key_data(key)[:2]
    words = jnp.stack(threefry((first, second), (place, jnp.zeros_like(place))), axis=-2)
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16)
    return halves.reshape(*shape[:-1], -1)[..., :d]


def threefry(
    key: tuple[Array, Array], counter: tuple[Array, Array], rounds: int = 13
) -> tuple[Array, Array]:
    """Threefry-2x32: two random words for every counter of two, uint32."""
    keys = *key, key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for r in range(rounds):
        by = _ROTATIONS[r % 8]
        a += b
        b = ((b << by) | (b >> (32 - by))) ^ a
        if r % 4 == 3:
            i = r // 4 + 1
            a, b = a + keys[i % 3], b + keys[(i + 1) % 3] + jnp.uint32(i)
    return a, b
