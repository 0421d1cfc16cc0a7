"""Several runs of equal shapes as one wider computation: state, batch and hyper get an axis P.

Members may differ in the traced hyperparameters (`step.Hyper`): dropout, label smoothing, learning
rate and seed. A single run has no axis P: with one of length 1, XLA would copy the state in every
step instead of updating it in place.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def vmap_step(step: Callable[..., Any], P: int) -> Callable[..., Any]:
    """The step mapped over the axis P of state, batch and hyper; the step itself if P is 1."""
    return step if P == 1 else jax.vmap(step, spmd_axis_name="population")


def stack(trees: Sequence[Any]) -> Any:
    """Trees of arrays [...] as one tree of arrays [P, ...], laid out like the first of them."""
    if len(trees) == 1:
        return trees[0]
    layout = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec("population", *x.sharding.spec)),
        trees[0],
    )
    return jax.jit(_stack, out_shardings=layout)(trees)


def stack_batches(batches: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Batches {side: int32 [B, L]} on the host as one batch {side: int32 [P, B, L]}."""
    if len(batches) == 1:
        return batches[0]
    return {side: np.stack([batch[side] for batch in batches]) for side in batches[0]}


def member(tree: Any, i: int, P: int) -> Any:
    """The leaves of member i of P in a stacked tree, with the same layout."""
    if P == 1:
        return tree
    layout = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec(*x.sharding.spec[1:])), tree
    )
    return jax.jit(_member, out_shardings=layout)(tree, i)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _member(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)
