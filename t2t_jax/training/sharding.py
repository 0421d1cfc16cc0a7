"""The mesh, and which logical axis of a parameter or activation lies along which of its axes.

    population   runs that are trained at once
    data         rows of a batch
    fsdp         rows of a batch, too; and parameters, gathered where they are used (ZeRO-3)
    tensor       heads, d_ff and the vocabulary

An axis of the mesh serves an array once: an activation's d_model stays whole, as its rows lie along
fsdp already.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from t2t_jax.errors import UsageError, near

AXES = "population", "data", "fsdp", "tensor"
ROWS = "data", "fsdp"

# None: every device holds the whole axis.
RULES: tuple[tuple[str, str | tuple[str, ...] | None], ...] = (
    ("batch", ROWS),
    ("vocabulary", "tensor"),
    ("heads", "tensor"),
    ("d_ff", "tensor"),
    ("d_model", "fsdp"),
    ("length", None),
    ("position", None),
    ("d_k", None),
    ("d_v", None),
    ("d_hidden", None),
    ("bucket", None),
    ("gates", None),
    ("kernel", None),
)


def make_mesh(described: str = "") -> Mesh:
    """All devices, as `data=2,fsdp=2,tensor=2` says; or else along `data`.

    Raises:
      UsageError: an axis is unknown or named twice, or their product is not the number of devices.
    """
    sizes, count = dict.fromkeys(AXES, 1), jax.device_count()
    for part in described.split(",") if described else [f"data={count}"]:
        name, _, size = part.partition("=")
        if name not in AXES:
            raise UsageError(f"a mesh has no axis {name!r}: {near(name, AXES)}")
        if sizes[name] != 1 or not size.isdecimal() or not int(size):
            raise UsageError(f"--mesh {described}: give {name} one size, as in {name}=2.")
        sizes[name] = int(size)
    if math.prod(sizes.values()) != count:
        raise UsageError(
            f"--mesh {described} takes {math.prod(sizes.values())} devices, but there are {count}: "
            "the product of its axes must be their number."
        )
    return jax.make_mesh(tuple(sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def describe(mesh: Mesh) -> str:
    """The axes that are longer than 1, as `make_mesh` reads them."""
    return ",".join(f"{name}={n}" for name, n in mesh.shape.items() if n > 1) or "data=1"


@contextmanager
def on(mesh: Mesh) -> Iterator[None]:
    """Traces and runs what stands in it on `mesh`, under `RULES`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield


def shardings(boxed: Any, mesh: Mesh) -> Any:
    """Of every leaf of a tree of shapes with logical axes (`flax.linen.LogicallyPartitioned`).

    Raises:
      UsageError: an axis of the mesh does not divide what lies along it.
    """

    def lay(path: Any, leaf: Any) -> NamedSharding:
        if not isinstance(leaf, nn.LogicallyPartitioned):
            return NamedSharding(mesh, PartitionSpec())
        spec = nn.logical_to_mesh_axes(leaf.names, RULES) or PartitionSpec()
        for name, size, along in zip(leaf.names, leaf.value.shape, spec, strict=True):
            if along and size % mesh.shape[along]:
                where = jax.tree_util.keystr(path, simple=True, separator="/")
                raise UsageError(
                    f"{along}={mesh.shape[along]} of the mesh does not divide {name}={size} of "
                    f"{where}: choose another --mesh or another {name}."
                )
        return NamedSharding(mesh, PartitionSpec(*spec))

    boxed_leaf = nn.LogicallyPartitioned
    return jax.tree_util.tree_map_with_path(lay, boxed, is_leaf=lambda x: isinstance(x, boxed_leaf))


def axes(boxed: Any) -> Any:
    """The logical axes of every leaf of such a tree."""
    return jax.tree.map(
        lambda x: x.names, boxed, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    )


def mesh_of(tree: Any) -> Mesh:
    """The mesh that a tree of arrays is laid out over: of one device, if it never was."""
    layouts = (getattr(x, "sharding", None) for x in jax.tree.leaves(tree))
    for layout in layouts:
        if isinstance(layout, NamedSharding) and isinstance(layout.mesh, Mesh):
            return layout.mesh
    one = np.array(jax.devices()[:1]).reshape((1,) * len(AXES))
    return Mesh(one, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def rows(mesh: Mesh) -> int:
    """How many parts a batch is shared out in."""
    return math.prod(mesh.shape[axis] for axis in ROWS)


def put_batch(batch: Any, mesh: Mesh, multiple: int = 1) -> Any:
    """Host arrays [B, L], or [P, B, L] of a population, to the devices: to each its rows.

    Rows of PAD are added until B is a multiple of `multiple` times the parts of a batch; they
    change neither a loss nor the random draws of the others.
    """

    def put(x: np.ndarray) -> jax.Array:
        members = x.ndim - 2
        short = -x.shape[-2] % (multiple * rows(mesh))
        whole = np.pad(x, [(0, 0)] * members + [(0, short), (0, 0)]) if short else x
        layout = NamedSharding(mesh, PartitionSpec(*["population"] * members, ROWS))
        return jax.make_array_from_callback(whole.shape, layout, lambda index: whole[index])

    return jax.tree.map(put, batch)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Arrays to every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
