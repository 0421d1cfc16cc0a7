"""Several runs of one shape in one program: state, batch and hyper get a leading axis P.

Members may differ in what `step.Hyper` holds: dropout, label smoothing, learning rate and seed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


def together(step: Callable[..., Any], P: int, vectorised: bool) -> Callable[..., Any]:
    """A step of all P members: one after the other, or as one wider computation.

    An accelerator that a small model leaves idle wants the second; a CPU, whose cores one member
    keeps busy and whose caches hold only one, the first.
    """
    if P == 1:  # a loop of one iteration took a quarter longer on a CPU
        return lambda *stacked: _with_axis(step(*_member(stacked, 0)))
    if vectorised:
        return jax.vmap(step, spmd_axis_name="population")
    return lambda *stacked: jax.lax.map(lambda one: step(*one), stacked)


def _with_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def stack(trees: Sequence[Any]) -> Any:
    """Trees of arrays [...] -> one of arrays [P, ...], each laid out as in the first of them."""
    layout = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec("population", *x.sharding.spec)),
        trees[0],
    )
    return jax.jit(_stack, out_shardings=layout)(trees)


def member(tree: Any, i: int) -> Any:
    """Member i of a stacked tree, laid out as it is there."""
    layout = jax.tree.map(
        lambda x: NamedSharding(x.sharding.mesh, PartitionSpec(*x.sharding.spec[1:])), tree
    )
    return jax.jit(_member, out_shardings=layout)(tree, i)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _member(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], tree)
