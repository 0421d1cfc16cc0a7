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
from t2t_jax.models.parametrization import learning_rate_factors
from t2t_jax.tokens import BOS, PAD
from t2t_jax.training import sharding
from t2t_jax.training.objective import cross_entropy, fused_cross_entropy
from t2t_jax.training.optimizer import is_bias, learning_rate, make, peak_lr
from t2t_jax.training.records import StepMetrics

Batch = dict[str, jax.Array]
Sums = dict[str, jax.Array]  # what `objective.cross_entropy` returns


@struct.dataclass
class State:
    """What a step updates: the number of steps done, the parameters, the optimizer's state."""

    step: jax.Array
    params: Any
    optimizer: Any


@struct.dataclass
class Hyper:
    """Hyperparameters that a compiled step takes as data: traced scalars, from `config.TRACED`."""

    P_drop: jax.Array
    eps_ls: jax.Array
    z_loss: jax.Array | None  # None: not even a zero is added
    peak_lr: jax.Array
    warmup: jax.Array
    steps: jax.Array
    seed: jax.Array  # of dropout, and of the masks of a masked language model


def hyper(c: Config) -> Hyper:
    """The traced hyperparameters of a config."""
    t = c.training
    numbers = dict(P_drop=t.P_drop, eps_ls=t.eps_ls, warmup=t.warmup, steps=t.steps)
    numbers = jax.tree.map(jnp.float32, numbers | dict(peak_lr=peak_lr(c)))
    z_loss = jnp.float32(t.z_loss) if t.z_loss else None
    return Hyper(**numbers, z_loss=z_loss, seed=jnp.uint32(t.seed_of("dropout")))


def shift(target: jax.Array) -> jax.Array:
    """The decoder's input int32 [B, T]: BOS, then the target int32 [B, T] without its last token.

    Padding stays padding, so the last EOS is never an input. Prompt tokens (input, no loss) are
    negative in the target and positive in the input.
    """
    moved = jnp.roll(jnp.abs(target), 1, axis=1).at[:, 0].set(BOS)
    return jnp.where(target != PAD, moved, PAD)


def loss_targets(target: jax.Array) -> jax.Array:
    """The labels int32 [B, T] of a target int32 [B, T]: PAD in place of prompt tokens."""
    return jnp.maximum(target, PAD)


MASKED = 0.15  # share of the tokens that are masked (Devlin et al. 2019)
MASK = BOS  # a masked model has no other use for BOS


def mask(target: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inputs and labels of a masked language model, both int32 [B, T].

    They are the target [B, T] with MASK in place of the chosen tokens, and the chosen tokens with
    PAD elsewhere. `chosen` is bool, broadcastable to [B, T]; PAD is never masked.
    """
    chosen &= target != PAD
    return jnp.where(chosen, MASK, target), jnp.where(chosen, target, PAD)


def initialise(model: nn.Module, c: Config, mesh: Mesh) -> State:
    """The state before the first step, drawn from the seed and laid out over the mesh."""
    layout = jax.tree.map(lambda x: x.sharding, abstract(model, c, mesh))
    with sharding.use_mesh(mesh):
        seed = jnp.uint32(c.training.seed_of("init"))
        return jax.jit(drawing(model, c), out_shardings=layout)(seed)


def drawing(model: nn.Module, c: Config) -> Callable[[jax.Array], State]:
    """A function that draws the state before the first step from a seed uint32 []."""

    def draw(seed: jax.Array) -> State:
        params = _draw(model, jax.random.fold_in(jax.random.key(seed), 0))
        return nn.meta.unbox(_first(c, params))

    return draw


def abstract(model: nn.Module, c: Config, mesh: Mesh) -> State:
    """Shapes, dtypes and shardings of a state, computed without allocating one.

    Raises:
      UsageError: the mesh does not divide a parameter.
    """
    boxed = jax.eval_shape(partial(_first, c), _shapes(model))
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        sharding.plain(boxed),
        sharding.shardings(boxed, mesh),
    )


def _first(c: Config, params: Any) -> State:
    """The state before the first step, boxed with logical axes, from boxed parameters."""
    moments = make(c.training).init(sharding.plain(params))
    return State(jnp.int32(0), params, sharding.box_like(moments, params))


def _draw(model: nn.Module, key: jax.Array) -> Any:
    token = jnp.ones((1, 1), jnp.int32)
    return model.init(key, token, token)["params"]


@cache
def _shapes(model: nn.Module) -> Any:
    """Shapes and logical axes of a model's parameters; cached, as tracing takes a while."""
    with nn.logical_axis_rules(()):
        return jax.eval_shape(lambda: _draw(model, jax.random.key(0)))


def make_step(
    model: nn.Module, c: Config
) -> Callable[[State, Batch, Hyper], tuple[State, StepMetrics]]:
    """The train step of a model: a pure function (state, batch, hyper) -> (state, metrics).

    A batch is {"source": int32 [B, S], "target": int32 [B, T]}, padded with PAD. The loss is the
    mean over the target's tokens; prompt tokens, which are negative, have none.
    """
    t = c.training
    optimizer = make(t)
    axes = sharding.axes(_shapes(model))
    factors = learning_rate_factors(c.model, axes)
    decayed = jax.tree_util.tree_map_with_path(
        lambda path, x: len(x) > 1 and not is_bias(path),
        axes,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    gradient_of = jax.grad(partial(_loss, model, t.smoothing), has_aux=True)

    def step(state: State, batch: Batch, h: Hyper) -> tuple[State, StepMetrics]:
        # The key depends on seed and step alone, so that a resumed run draws the same dropout.
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(h.seed), 1), state.step)
        gradient, sums = _accumulate(gradient_of, t.accumulate, state.params, batch, h, key)
        gradient = nn.with_logical_constraint(gradient, axes)  # each device updates its part
        tokens = jnp.maximum(sums["tokens"], 1)  # a batch of prompts alone has none
        # XLA recomputes a product where it is used, but would store a quotient in memory.
        per_token = 1 / tokens
        mean = jax.tree.map(lambda g: g * per_token, gradient)
        grad_norm = optax.tree.norm(gradient) * per_token
        if t.clip_norm:  # static: without clipping, the program has no trace of it
            shrink = jnp.minimum(1, t.clip_norm / grad_norm)
            mean = jax.tree.map(lambda g: g * shrink, mean)
        direction, moments = optimizer.update(mean, state.optimizer, state.params)
        # The paper counts steps from 1; at step 0 the warm-up would be zero.
        lr = learning_rate(state.step + 1, h.peak_lr, h.warmup, h.steps, t.schedule)
        # The norm waits for every gradient, after which XLA can update parameters in place.
        waited = jnp.where(jnp.isnan(grad_norm), jnp.nan, lr)
        update = jax.tree.map(
            lambda d, f: -(waited if f == 1 else waited * f) * d, direction, factors
        )
        if t.weight_decay:  # without muP's factors: a weight decays at the same rate at any width
            rate = waited * t.weight_decay
            update = jax.tree.map(
                lambda u, p, d: u - rate * p if d else u, update, state.params, decayed
            )
        params = optax.apply_updates(state.params, update)
        metrics = StepMetrics(
            loss=sums["loss"] / tokens,
            nll=sums["nll"] / tokens,
            grad_norm=grad_norm,
            lr=lr,
            source_tokens=(batch["source"] != PAD).sum(dtype=jnp.float32),
            target_tokens=sums["tokens"],
        )
        return State(state.step + 1, params, moments), metrics

    return step


def _loss(
    model: Any, smoothing: str, params: Any, batch: Batch, h: Hyper, key: jax.Array
) -> tuple[jax.Array, Sums]:
    """The loss of a batch, summed over its target tokens, and `cross_entropy`'s sums.

    The mean of every value that a module sows in the collection `losses` is added to the loss of
    each token, and so to `loss`, but not to `nll`.
    """
    apply = partial(model.apply, {"params": params}, mutable=["losses"])
    encoder_key, decoder_key = jax.random.split(key)
    inputs, labels = shift(batch["target"]), loss_targets(batch["target"])
    if model.masked:
        chosen = jax.random.bernoulli(jax.random.fold_in(key, 2), MASKED, labels.shape)
        inputs, labels = mask(labels, chosen)
    encoded, sown = apply(batch["source"], h.P_drop, method="encode", rngs={"dropout": encoder_key})
    decoder, rngs = (encoded, inputs, h.P_drop), {"dropout": decoder_key}
    if model.fuses_softmax:
        (x, W), sown_later = apply(*decoder, method="softmax", rngs=rngs)
        sums = fused_cross_entropy(x, W, labels, h.eps_ls, smoothing, h.z_loss)
    else:
        logits, sown_later = apply(*decoder, method="decode", rngs=rngs)
        sums = cross_entropy(logits, labels, h.eps_ls, smoothing, z_loss=h.z_loss)
    for value in jax.tree.leaves((sown, sown_later)):
        sums["loss"] += sums["tokens"] * value.mean()
    return sums["loss"], sums


def _accumulate(
    gradient_of: Callable[..., Any], count: int, params: Any, batch: Batch, h: Hyper, key: jax.Array
) -> tuple[Any, Sums]:
    """The gradient of a batch, summed over `count` micro-batches, and the sums of `_loss`."""
    if count == 1:
        return gradient_of(params, batch, h, key)

    def add(total: Any, numbered: tuple[jax.Array, Batch]) -> tuple[Any, None]:
        i, part = numbered
        out = gradient_of(params, part, h, jax.random.fold_in(key, i))
        return jax.tree.map(jnp.add, total, out), None

    # Every micro-batch has rows of every device, so that no row moves between devices.
    parts = jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[1:]).swapaxes(0, 1), batch)
    first = jax.tree.map(lambda x: x[0], parts)
    # A scan, not a loop in Python: the program does not grow with `count`.
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient_of, params, first, h, key)
    )
    return jax.lax.scan(add, zeros, (jnp.arange(count), parts))[0]
