"""The pure train step: `step(state, batch, hyper) -> state, metrics`."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax.sharding import Mesh

from t2t_jax.config import Config
from t2t_jax.tokens import BOS, PAD
from t2t_jax.training import sharding
from t2t_jax.training.objective import cross_entropy
from t2t_jax.training.optimizer import adam, learning_rate, peak_lr

Batch = dict[str, jax.Array]


@struct.dataclass
class State:
    """What a step rewrites: the count of steps done, the parameters, and Adam's moments."""

    step: jax.Array
    params: Any
    optimizer: Any


@struct.dataclass
class Hyper:
    """What may differ between rows that share one compiled program; scalars, traced."""

    P_drop: jax.Array
    eps_ls: jax.Array
    peak_lr: jax.Array
    warmup: jax.Array
    steps: jax.Array
    seed: jax.Array


def hyper(c: Config) -> Hyper:
    """The traced hyperparameters of a config."""
    t = c.training
    return Hyper(
        P_drop=jnp.float32(t.P_drop),
        eps_ls=jnp.float32(t.eps_ls),
        peak_lr=jnp.float32(peak_lr(c)),
        warmup=jnp.float32(t.warmup),
        steps=jnp.float32(t.steps),
        seed=jnp.uint32(t.seed),
    )


def shift(target: jax.Array) -> jax.Array:
    """The decoder's input: int32 [B, T] moved right by one, a begin mark before it.

    A row that is all padding stays so, and the end mark moves out at the right.
    """
    moved = jnp.roll(target, 1, axis=1).at[:, 0].set(BOS)
    return jnp.where(target != PAD, moved, PAD)


MASKED = 0.15  # of the tokens (Devlin et al. 2019)
MASK = BOS  # which a masked model has no other use for


def mask(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The target int32 [B, T] with the chosen tokens masked; and those alone, PAD elsewhere."""
    chosen &= target != PAD
    return jnp.where(chosen, MASK, target), jnp.where(chosen, target, PAD)


def initialise(model: nn.Module, c: Config, mesh: Mesh) -> State:
    """The state before the first step, drawn from the seed, laid out over the mesh."""
    out = jax.tree.map(lambda x: x.sharding, abstract(model, c, mesh))

    def create(seed: jax.Array) -> State:
        params = _draw(model, jax.random.fold_in(jax.random.key(seed), 0))
        return nn.meta.unbox(_first(c, params))

    with sharding.on(mesh):
        return jax.jit(create, out_shardings=out)(jnp.uint32(c.training.seed))


def abstract(model: nn.Module, c: Config, mesh: Mesh) -> State:
    """Shapes, types and layout of a state, computed without one."""
    boxed = jax.eval_shape(partial(_first, c), _shapes(model))
    with nn.logical_axis_rules(()):  # shapes only: it is not known yet whether the mesh fits them
        shapes = jax.eval_shape(nn.meta.unbox, boxed)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        sharding.shardings(boxed, mesh),
    )


def _first(c: Config, params: Any) -> State:
    return State(jnp.int32(0), params, adam(c.training).init(params))


def _draw(model: nn.Module, key: jax.Array) -> Any:
    token = jnp.ones((1, 1), jnp.int32)
    return model.init(key, token, token)["params"]


@cache
def _shapes(model: nn.Module) -> Any:
    """Of the parameters, with their logical axes; tracing a model takes a while."""
    with nn.logical_axis_rules(()):
        return jax.eval_shape(lambda: _draw(model, jax.random.key(0)))


def make_step(
    model: nn.Module, c: Config
) -> Callable[[State, Batch, Hyper], tuple[State, dict[str, jax.Array]]]:
    """The train step for a model: a pure function of one run.

    A batch is {"source": int32 [B, S], "target": int32 [B, T]}. The metrics are `loss` and `nll` in
    nats a target token, `grad_norm` of the gradient of `loss`, `source_tokens`, `target_tokens` and
    `lr`.
    """
    t = c.training
    optimizer = adam(t)
    axes = sharding.axes(_shapes(model))

    def loss(params: Any, batch: Batch, h: Hyper, key: jax.Array) -> tuple[jax.Array, Any]:
        variables, (encoder_key, decoder_key) = {"params": params}, jax.random.split(key)
        given, wanted = shift(batch["target"]), batch["target"]
        if model.masked:
            chosen = jax.random.bernoulli(jax.random.fold_in(key, 2), MASKED, wanted.shape)
            given, wanted = mask(wanted, chosen)
        encoded = model.apply(
            variables, batch["source"], h.P_drop, method="encode", rngs={"dropout": encoder_key}
        )
        logits: Any = model.apply(
            variables,
            encoded,
            given,
            h.P_drop,
            method="decode",
            rngs={"dropout": decoder_key},
        )
        sums = cross_entropy(logits, wanted, h.eps_ls, t.smoothing)
        return sums["loss"], sums

    def accumulated(params: Any, batch: Batch, h: Hyper, key: jax.Array) -> tuple[Any, Any]:
        if t.accumulate == 1:
            return jax.grad(loss, has_aux=True)(params, batch, h, key)

        def add(total: Any, numbered: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            i, part = numbered
            one = jax.grad(loss, has_aux=True)(params, part, h, jax.random.fold_in(key, i))
            return jax.tree.map(jnp.add, total, one), None

        # Every micro-batch takes rows from every device, so that none has to move.
        parts = jax.tree.map(
            lambda x: x.reshape(-1, t.accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype),
            jax.eval_shape(jax.grad(loss, has_aux=True), params, first, h, key),
        )
        return jax.lax.scan(add, zeros, (jnp.arange(t.accumulate), parts))[0]

    def step(state: State, batch: Batch, h: Hyper) -> tuple[State, dict[str, jax.Array]]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(h.seed), 1), state.step)
        gradient, sums = accumulated(state.params, batch, h, key)
        gradient = nn.with_logical_constraint(gradient, axes)  # each device updates its part
        tokens = jnp.maximum(sums["tokens"], 1)
        each = 1 / tokens  # products are computed anew where they are used, quotients written out
        mean = jax.tree.map(lambda g: g * each, gradient)
        grad_norm = optax.tree.norm(gradient) * each
        direction, moments = optimizer.update(mean, state.optimizer)
        lr = learning_rate(state.step + 1, h.peak_lr, h.warmup, h.steps, t.schedule)
        # Waiting for every gradient lets XLA update parameters in place: none is read after it.
        waited = jnp.where(jnp.isnan(grad_norm), jnp.nan, lr)
        params = optax.apply_updates(state.params, jax.tree.map(lambda d: -waited * d, direction))
        metrics = {
            "loss": sums["loss"] / tokens,
            "nll": sums["nll"] / tokens,
            "grad_norm": grad_norm,
            "target_tokens": sums["tokens"],
            "source_tokens": (batch["source"] != PAD).sum(dtype=jnp.float32),
            "lr": lr,
        }
        return State(state.step + 1, params, moments), metrics

    return step
