"""The device mesh, and the mesh axes over which each logical axis of an array is divided.

    population   runs that are trained at once
    data         rows of a batch
    fsdp         rows of a batch, and parameters, which are gathered where they are used (ZeRO-3)
    tensor       heads, experts, d_ff and the vocabulary

A mesh axis divides at most one axis of an array: an activation's d_model is not divided, because
its rows are divided over fsdp.
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

# Logical axis and the mesh axes that divide it; every device holds all other axes as a whole.
RULES: tuple[tuple[str, str | tuple[str, ...]], ...] = (
    ("batch", ROWS),
    ("vocabulary", "tensor"),
    ("heads", "tensor"),
    ("experts", "tensor"),  # before d_ff, which is then whole
    ("d_ff", "tensor"),
    ("d_model", "fsdp"),
)


def make_mesh(described: str = "") -> Mesh:
    """The mesh of all devices that a text such as `data=2,fsdp=2,tensor=2` describes.

    Without a description, all devices lie along `data`.

    Raises:
      UsageError: an axis is unknown or named twice, or the product of their sizes is not the number
        of devices.
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
    """The axes longer than 1, in the form that `make_mesh` reads."""
    return ",".join(f"{name}={n}" for name, n in mesh.shape.items() if n > 1) or "data=1"


@contextmanager
def use_mesh(mesh: Mesh) -> Iterator[None]:
    """Context in which programs are traced and run on `mesh`, laid out by `RULES`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield


def shardings(boxed: Any, mesh: Mesh) -> Any:
    """The sharding of every leaf of a tree of boxed shapes; a leaf without a box is replicated.

    Raises:
      UsageError: a mesh axis does not divide the array axis that `RULES` assigns to it.
    """

    def sharding(path: Any, leaf: Any) -> NamedSharding:
        if not isinstance(leaf, nn.LogicallyPartitioned):
            return NamedSharding(mesh, PartitionSpec())
        spec = nn.logical_to_mesh_axes(leaf.names, RULES) or PartitionSpec()
        for name, size, axis in zip(leaf.names, leaf.value.shape, spec, strict=True):
            if axis and size % mesh.shape[axis]:
                where = jax.tree_util.keystr(path, simple=True, separator="/")
                raise UsageError(
                    f"{axis}={mesh.shape[axis]} of the mesh does not divide {name}={size} of "
                    f"{where}: choose another --mesh or another {name}."
                )
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree_util.tree_map_with_path(sharding, boxed, is_leaf=_is_boxed)


def axes(boxed: Any) -> Any:
    """The logical axes of every leaf of a tree of `flax.linen.LogicallyPartitioned`."""
    return jax.tree.map(lambda x: x.names, boxed, is_leaf=_is_boxed)


def plain(boxed: Any) -> Any:
    """A tree without its boxes, which are `flax.linen.LogicallyPartitioned`."""
    return jax.tree.map(lambda x: x.value if _is_boxed(x) else x, boxed, is_leaf=_is_boxed)


def box_like(state: Any, params: Any) -> Any:
    """Gives the logical axes of boxed parameters to the arrays of an optimizer's state.

    An array has a parameter's axes if it has its shape, and its path ends with the path of
    the parameter, as in `mu/encoder_0/attention/W_Q`. Every device holds all others.
    """
    boxes = dict(jax.tree_util.tree_leaves_with_path(params, is_leaf=_is_boxed))

    def box(path: Any, x: Any) -> Any:
        ends = (boxes.get(path[i:]) for i in range(len(path)))
        like = next((b for b in ends if b is not None), None)
        return like.replace_boxed(x) if like is not None and like.value.shape == x.shape else x

    return jax.tree_util.tree_map_with_path(box, state)


def _is_boxed(x: Any) -> bool:
    return isinstance(x, nn.LogicallyPartitioned)


def mesh_of(tree: Any) -> Mesh:
    """The mesh over which a tree of arrays is laid out; a mesh of one device if there is none."""
    layouts = (getattr(x, "sharding", None) for x in jax.tree.leaves(tree))
    for layout in layouts:
        if isinstance(layout, NamedSharding) and isinstance(layout.mesh, Mesh):
            return layout.mesh
    device = np.array(jax.devices()[:1]).reshape((1,) * len(AXES))
    return Mesh(device, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def put_batch(batch: Any, mesh: Mesh, multiple: int = 1) -> Any:
    """Divides the rows of host arrays [B, L], or [P, B, L] of a population, over the devices.

    Rows of PAD are added until `multiple` times the number of their parts divides B. They change
    neither the loss nor the random draws of other rows.
    """
    parts = multiple * math.prod(mesh.shape[axis] for axis in ROWS)

    def put(x: np.ndarray) -> jax.Array:
        members = x.ndim - 2
        missing = -x.shape[-2] % parts
        padded = np.pad(x, [(0, 0)] * members + [(0, missing), (0, 0)]) if missing else x
        layout = NamedSharding(mesh, PartitionSpec(*["population"] * members, ROWS))
        return jax.make_array_from_callback(padded.shape, layout, lambda index: padded[index])

    return jax.tree.map(put, batch)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Copies arrays to every device of the mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
