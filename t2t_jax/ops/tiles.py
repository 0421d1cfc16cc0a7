"""What the Pallas kernels share: their call, whole tiles, and rows divided over devices.

The kernels are compiled by Triton. XLA cannot divide a kernel over devices, so each device runs it
on its own rows of the batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec

ROWS = "data", "fsdp"  # the mesh axes that divide the rows of a batch


def whole_tiles(x: Array, g: int, axis: int = 1) -> Array:
    """x with zeros until g divides the length of an axis."""
    missing = -x.shape[axis] % g
    if not missing:
        return x
    return jnp.pad(x, [(0, missing if i == axis else 0) for i in range(x.ndim)])


def dot(x: Array, y: Array) -> Array:
    """The matrix product of two tiles, in float32."""
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


def call(
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    out: Any,
    flops: int,
    name: str,
    warps: int = 8,
) -> Callable[..., Any]:
    """The Pallas call of a kernel; without a GPU it is interpreted, slowly.

    Args:
      out: the shapes of its results.
      flops: its FLOPs, which become part of its name, as a compiled program does not show them.
    """
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        kernel,
        grid=grid,
        out_shape=out,
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=3),
        name=f"{name}_{flops}_flops",
        interpret=not on_gpu(),
    )


def on_gpu() -> bool:
    """Whether the mesh in use is of GPUs, perhaps only to compile for them."""
    return _platform() in ("gpu", "cuda", "rocm")


def on_tpu() -> bool:
    """Whether the mesh in use is of TPUs, perhaps only to compile for them."""
    return _platform() == "tpu"


def has_kernels(choice: str) -> bool:
    """Whether the config's choice of kernels enables GPU kernels; a TPU has none."""
    return choice == "fused" and not on_tpu()


def _platform() -> str:
    device = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return getattr(device, "platform", None) or jax.default_backend()


def rows_alone() -> bool:
    """Whether the mesh in use divides only the rows of a batch, so that `on_rows` can be used."""
    mesh = jax.sharding.get_abstract_mesh()
    return all(size == 1 for axis, size in mesh.shape.items() if axis not in ROWS)


def on_rows(f: Callable[..., Any], arguments: str, results: str) -> Callable[..., Any]:
    """f, run by each device on its own rows of the batch.

    Args:
      arguments, results: a letter for each, `r` if its first axis is divided; otherwise an argument
        is the same on every device, and a result is summed over the devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if all(size == 1 for size in mesh.shape.values()):
        return f

    def local(*x: Array) -> tuple[Array, ...]:
        out = zip(f(*x), results, strict=True)
        return tuple(y if letter == "r" else jax.lax.psum(y, ROWS) for y, letter in out)

    specs = {"r": PartitionSpec(ROWS)}
    inputs = tuple(specs.get(letter, PartitionSpec()) for letter in arguments)
    outputs = tuple(specs.get(letter, PartitionSpec()) for letter in results)
    return jax.shard_map(local, in_specs=inputs, out_specs=outputs, check_vma=False)
