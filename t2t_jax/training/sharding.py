"""The mesh, and which logical axis of a parameter or activation lies along which of its axes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# None: every device holds the whole axis.
RULES: tuple[tuple[str, str | None], ...] = (
    ("batch", "data"),
    ("length", None),
    ("position", None),
    ("vocabulary", None),
    ("d_model", None),
    ("heads", None),
    ("d_k", None),
    ("d_v", None),
    ("d_ff", None),
    ("d_hidden", None),
    ("bucket", None),
    ("gates", None),
    ("kernel", None),
)


def make_mesh() -> Mesh:
    """All devices along `data`."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


@contextmanager
def on(mesh: Mesh) -> Iterator[None]:
    """Traces and runs what stands in it on `mesh`, under `RULES`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield


def shardings(boxed: Any, mesh: Mesh) -> Any:
    """Of every leaf of a tree of shapes with logical axes (`flax.linen.LogicallyPartitioned`)."""
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, RULES)


def put_batch(batch: Any, mesh: Mesh) -> Any:
    """Host arrays [P, B, ...] to the devices, rows shared out along `data`."""
    return jax.device_put(batch, NamedSharding(mesh, PartitionSpec(None, "data")))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Arrays to every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
