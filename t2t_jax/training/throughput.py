"""Cost of the compiled training step, and peak FLOP/s of the devices."""

import timeit
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

# Peak dense TFLOP/s of what JAX counts as one device in bf16 (V100, T4: fp16), from the
# manufacturers' data sheets.
_PEAK = {
    "H200": 989, "H100": 989, "H100 NVL": 835, "H100 PCIe": 756, "A100": 312, "V100": 125,
    "L40S": 362, "L4": 121, "T4": 65, "TPU v2": 23, "TPU v3": 61, "TPU v4": 275,
    "TPU v5 lite": 197, "TPU v5": 459, "TPU v6 lite": 918,
}  # fmt: skip

# Products with a common operand are not merged, as attention would have to copy each result out of
# one array. Without merging, base's step compiled for an H100 takes 0.4 ms less.
_OPTIONS: dict[str, Any] = {"gpu": {"xla_gpu_dot_merger_threshold_mb": 0}}


class Program(NamedTuple):
    """A compiled step of a population, and its cost divided by the number of members."""

    run: Callable[..., Any]
    flops: float  # all operations that XLA counts on all devices, not only matrix products
    memory: int  # peak bytes of state, batch and temporaries on one device


def compile_for(step: Callable[..., Any], P: int, state: Any, batch: Any, h: Any) -> Program:
    """Compiles a step of P members for arguments of these shapes; it updates the state in place."""
    mesh = h.seed.sharding.mesh
    layout = jax.tree.map(lambda x: x.sharding, state), NamedSharding(mesh, PartitionSpec())
    jitted = jax.jit(step, donate_argnums=0, out_shardings=layout)
    compiled = jitted.lower(state, batch, h).compile(_OPTIONS.get(mesh.devices.flat[0].platform))
    used: Any = compiled.memory_analysis()
    kept = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    counted = (compiled.cost_analysis() or {}).get("flops", 0.0) * mesh.size
    return Program(compiled, counted / P, (kept + used.temp_size_in_bytes) // P)


@cache
def peak_flops() -> float | None:
    """Peak FLOP/s of all devices: from the data sheet; on a CPU, of a measured matrix product.

    None for an accelerator that is not listed.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":
        return product_flops()
    kind = device.device_kind.replace("-", " ")
    names = [n for n in _PEAK if f" {n} " in f" {kind} "]
    return 1e12 * _PEAK[max(names, key=len)] * jax.device_count() if names else None


def product_flops() -> float:
    """FLOP/s of a float32 matrix product, the fastest of five."""
    n = 2048
    a = jnp.ones((n, n), jnp.float32)
    product = jax.jit(lambda x: x @ x)
    product(a).block_until_ready()
    times = timeit.repeat(lambda: product(a).block_until_ready(), number=1, repeat=5)
    return 2 * n**3 / min(times)
