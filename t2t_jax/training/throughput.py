"""What a training step costs as compiled, and what the device could do at most."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

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


class Program(NamedTuple):
    """A compiled step of a population, and what one member's part of it costs.

    Attributes:
      flops: all operations that XLA counts on all devices, not only matrix products.
      memory: bytes of state, batch and temporaries at their largest, on one device.
    """

    run: Callable[..., Any]
    flops: float
    memory: int


def compile_for(step: Callable[..., Any], P: int, state: Any, batch: Any, h: Any) -> Program:
    """Compiles a step of P members for such arguments; the old state's memory takes the new one."""
    mesh = h.seed.sharding.mesh
    layout = jax.tree.map(lambda x: x.sharding, state), NamedSharding(mesh, PartitionSpec())
    jitted = jax.jit(step, donate_argnums=0, out_shardings=layout)
    compiled = jitted.lower(state, batch, h).compile()
    used: Any = compiled.memory_analysis()
    kept = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    counted = (compiled.cost_analysis() or {}).get("flops", 0.0) * mesh.size
    return Program(compiled, counted / P, (kept + used.temp_size_in_bytes) // P)


@cache
def peak_flops() -> float | None:
    """FLOP/s that all devices reach at most: the data sheet's, on a CPU that of a measured product.

    None for an accelerator that is not in the list.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return product_flops()
    kind = device.device_kind.replace("-", " ")
    names = [n for n in _PEAK if f" {n} " in f" {kind} "]
    return _PEAK[max(names, key=len)] * jax.device_count() if names else None


def product_flops() -> float:
    """FLOP/s of a float32 matrix product, the fastest of a few."""
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
