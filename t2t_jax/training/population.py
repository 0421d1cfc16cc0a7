"""Several runs of one shape as one wider computation: state, batch and hyper get an axis P.

Members may differ in what `step.Hyper` holds: dropout, label smoothing, learning rate and seed.
A run that is alone has no such axis: under one of length 1, XLA copies the state in every step
instead of updating it in place.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def together(step: Callable[..., Any], P: int) -> Callable[..., Any]:
    """A step of P members at once."""
    return step if P == 1 else jax.vmap(step, spmd_axis_name="population")


def stack(trees: Sequence[Any]) -> Any:
    """Trees of arrays [...] -> one of arrays [P, ...], each laid out as in the first of them."""
    if len(trees) == 1:
        return trees[0]
    layout = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec("population", *x.sharding.spec)),
        trees[0],
    )
    return jax.jit(_stack, out_shardings=layout)(trees)


def stack_batches(batches: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Each member's batch on the host -> one."""
    if len(batches) == 1:
        return batches[0]
    return {side: np.stack([batch[side] for batch in batches]) for side in batches[0]}


def member(tree: Any, i: int, P: int) -> Any:
    """Member i of P in a stacked tree, laid out as it is there."""
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
