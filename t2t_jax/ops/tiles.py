"""What the Pallas kernels share: a tile of a matrix product, and rows divided over devices.

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
ROW_TILE, COLUMN_TILE, DEPTH = 128, 128, 64


def product_tile(a: Any, b: Any, row: Any, column: Any) -> Array:
    """Rows row.. and columns column.. of a b^T, float32 [ROW_TILE, COLUMN_TILE].

    Args:
      a, b: references to [M, K] and [N, K]; DEPTH divides K.
    """

    def add(i: Array, total: Array) -> Array:
        depth = pl.ds(i * DEPTH, DEPTH)
        left, right = a[pl.ds(row, ROW_TILE), depth], b[pl.ds(column, COLUMN_TILE), depth]
        return total + jnp.dot(left, right.T, preferred_element_type=jnp.float32)

    zeros = jnp.zeros((ROW_TILE, COLUMN_TILE), jnp.float32)
    return jax.lax.fori_loop(0, a.shape[1] // DEPTH, add, zeros)


def pad_rows(x: Array, multiple: int) -> Array:
    """x [M, ...] with rows of zeros until `multiple` divides M."""
    missing = -x.shape[0] % multiple
    return jnp.pad(x, ((0, missing), *((0, 0),) * (x.ndim - 1))) if missing else x


def whole_tiles(x: Array, g: int) -> Array:
    """x [B, L, ...] with zeros until g divides L."""
    missing = -x.shape[1] % g
    return jnp.pad(x, ((0, 0), (0, missing), *((0, 0),) * (x.ndim - 2))) if missing else x


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
    inputs, outputs = (
        tuple(specs.get(letter, PartitionSpec()) for letter in letters)
        for letters in (arguments, results)
    )
    return jax.shard_map(local, in_specs=inputs, out_specs=outputs, check_vma=False)
