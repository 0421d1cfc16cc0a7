"""Cross-entropy over the vocabulary without an array of all logits.

On a GPU, one kernel computes the logits of a tile and keeps only their log-sum-exp. Another
computes them again, for half of the tokens at a time, and writes the gradient of the loss with
respect to them in the type of x. On a TPU, XLA computes the logits of a part of the tokens at a
time. The gradients of x and W are computed in the forward pass: as the loss is a scalar, the
backward pass only scales them.

Gain: compiled for an H100, base's step at 25,000 tokens a side moves 22 GB less than with float32
logits, and takes 4.1 GiB less memory (`experiments/tools/programs.py`); on an H200 the loss and its
gradients are 1.7 times as fast (`experiments/tools/gpu.py kernels`).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from t2t_jax.ops.tiles import call, on_rows, on_tpu, rows_alone, whole_tiles
from t2t_jax.tokens import PAD

ROW_TILE, COLUMN_TILE, DEPTH = 128, 128, 64
SPLITS = 8  # parts of the vocabulary, whose log-sum-exps are computed in parallel
PARTS = 2  # of the tokens; the gradient of the logits is in memory for one part at a time
PART_LOGITS = 2**27  # at most, of a part on a TPU: 0.5 GiB in float32
_LOWEST = -1e30
Factors = tuple[Array, ...]  # a, b and perhaps c of `plain`


def plain(x: Array, W: Array, target: Array, factors: Factors) -> tuple[Array, Array]:
    """Sums over the tokens that are not padding, in nats: the loss and -log p(target).

    With logits z = x W^T and log Z = logsumexp(z), the loss of a token is
    log Z - a z[target] - b sum(z) + c log^2 Z.

    Args:
      x: [B, T, d].  W: [V, d].
      target: int32 [B, T], padded with 0.
      factors: float32 scalars a, b and c; without c, the last term is left out.
    """
    a, b, *c = factors
    z = jnp.einsum("btd,vd->btv", x, W.astype(x.dtype), preferred_element_type=jnp.float32)
    log_z, present = jax.nn.logsumexp(z, axis=-1), target != PAD
    chosen = jnp.take_along_axis(z, target[..., None], axis=-1)[..., 0]
    loss = log_z - a * chosen - b * z.sum(-1)
    if c:
        loss += c[0] * log_z**2
    return jnp.where(present, loss, 0).sum(), jnp.where(present, log_z - chosen, 0).sum()


def supported(d: int) -> bool:
    """Whether `cross_entropy` can be used for vectors of length d, on the mesh in use."""
    return rows_alone() and (on_tpu() or d % DEPTH == 0)


@jax.custom_vjp
def cross_entropy(x: Array, W: Array, target: Array, factors: Factors) -> tuple[Array, Array]:
    """`plain`; only the loss has a gradient, with respect to x and W."""
    return _forward(x, W, target, factors)[0]


def _forward(*arguments: Any) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    loss, nll, dx, dW = on_rows(_local, "r.r.", "..r.")(*arguments)
    return (loss, nll), (dx, dW)


def _backward(gradients: tuple[Array, Array], g: tuple[Array, Array]) -> tuple[Array | None, ...]:
    dx, dW = gradients
    return dx * g[0].astype(dx.dtype), dW * g[0], None, None


cross_entropy.defvjp(_forward, _backward)


def _local(x: Array, W: Array, target: Array, factors: Factors) -> tuple[Array, ...]:
    """The loss, -log p(target), and the gradients of the loss with respect to x and W."""
    V, d = W.shape
    shape, x, target = x.shape, x.reshape(-1, d), target.reshape(-1)
    x, target = (whole_tiles(y, ROW_TILE, 0) for y in (x, target))
    half, (a, b, *c) = whole_tiles(W.astype(x.dtype), COLUMN_TILE, 0), factors
    abc = jnp.stack(factors)
    parts = -(-x.shape[0] * V // PART_LOGITS) if on_tpu() else PARTS
    size = -(-x.shape[0] // (parts * ROW_TILE)) * ROW_TILE
    dW, dx, sums = jnp.zeros(half.shape, jnp.float32), [], []
    for i in range(0, x.shape[0], size):
        part = slice(i, i + size)
        rows, tokens = x[part], target[part]
        if on_tpu():
            log_z, dz = _by_xla(rows, half, tokens, abc, V)
        else:
            log_z = _log_sum_exp(rows, half, V)
            dz = _logit_gradient(rows, half, log_z, tokens, abc, V)
        sums.append(log_z)
        dx.append(dz @ half)
        dW += jnp.einsum("mv,md->vd", dz, x[part], preferred_element_type=jnp.float32)
        dW, half = jax.lax.optimization_barrier((dW, half))  # the parts run one after another
    wide, present, log_z = x.astype(jnp.float32), target != PAD, jnp.concatenate(sums)
    chosen = (wide * jnp.take(half, target, axis=0)).sum(-1)
    total = (wide * half.sum(0, dtype=jnp.float32)[None]).sum(-1)
    loss = log_z - a * chosen - b * total
    if c:
        loss += c[0] * log_z**2
    loss = jnp.where(present, loss, 0).sum()
    nll = jnp.where(present, log_z - chosen, 0).sum()
    B, T, _ = shape
    return loss, nll, jnp.concatenate(dx)[: B * T].reshape(shape), dW[:V]


def _by_xla(x: Array, W: Array, target: Array, abc: Array, V: int) -> tuple[Array, Array]:
    """The log-sum-exp, float32 [M], and the gradient of the logits, [M, len(W)], by XLA."""
    z = jnp.einsum("md,vd->mv", x, W, preferred_element_type=jnp.float32)
    v, t = jnp.arange(W.shape[0])[None], target[:, None]
    log_z = jax.nn.logsumexp(z, axis=-1, where=v < V)
    return log_z, _gradient(z, v, t, log_z[:, None], abc, V).astype(x.dtype)


def _gradient(z: Array, v: Array, t: Array, log_z: Array, abc: Any, V: int) -> Array:
    """The gradient of the logits z [M, N] of tokens v [1, N] where the targets are t [M, 1]."""
    dz = jnp.exp(z - log_z)
    if abc.shape[0] == 3:
        dz *= 1 + 2 * abc[2] * log_z
    dz = dz - jnp.where(v == t, abc[0], 0) - abc[1]
    return jnp.where((t != PAD) & (v < V), dz, 0)


def _product_tile(a: Any, b: Any, row: Any, column: Any) -> Array:
    """Rows row.. and columns column.. of a b^T, float32, for a [M, K] and b [N, K]."""

    def add(i: Array, total: Array) -> Array:
        depth = pl.ds(i * DEPTH, DEPTH)
        left, right = a[pl.ds(row, ROW_TILE), depth], b[pl.ds(column, COLUMN_TILE), depth]
        return total + jnp.dot(left, right.T, preferred_element_type=jnp.float32)

    zeros = jnp.zeros((ROW_TILE, COLUMN_TILE), jnp.float32)
    return jax.lax.fori_loop(0, a.shape[1] // DEPTH, add, zeros)


def _log_sum_exp(x: Array, W: Array, V: int) -> Array:
    """float32 [M]: the log-sum-exp of the first V of x W^T, x [M, d] and W [>= V, d]."""
    (M, d), tiles = x.shape, W.shape[0] // COLUMN_TILE
    each = -(-tiles // SPLITS)

    def kernel(x: Any, W: Any, largest: Any, total: Any) -> None:
        row, split = pl.program_id(0) * ROW_TILE, pl.program_id(1)

        def add(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            largest, total = state
            column = (split * each + j) * COLUMN_TILE
            z = _product_tile(x, W, row, column)
            z = jnp.where(column + jnp.arange(COLUMN_TILE)[None] < V, z, _LOWEST)
            after = jnp.maximum(largest, z.max(1))
            return after, total * jnp.exp(largest - after) + jnp.exp(z - after[:, None]).sum(1)

        first = jnp.full(ROW_TILE, _LOWEST, jnp.float32), jnp.zeros(ROW_TILE, jnp.float32)
        count = jnp.clip(tiles - split * each, 0, each)
        state = jax.lax.fori_loop(0, count, add, first)
        largest[split, pl.ds(row, ROW_TILE)], total[split, pl.ds(row, ROW_TILE)] = state

    part = jax.ShapeDtypeStruct((SPLITS, M), jnp.float32)
    run = call(kernel, (M // ROW_TILE, SPLITS), (part, part), 2 * M * V * d, "log_sum_exp")
    largest, total = run(x, W)
    return jax.nn.logsumexp(largest, axis=0, b=total)


def _logit_gradient(x: Array, W: Array, log_z: Array, target: Array, abc: Array, V: int) -> Array:
    """The gradient of the logits, [M, len(W)]; zero for padding and from the V-th on."""
    (M, d), width = x.shape, W.shape[0]

    def kernel(x: Any, W: Any, log_z: Any, target: Any, abc: Any, out: Any) -> None:
        row, column = pl.program_id(0) * ROW_TILE, pl.program_id(1) * COLUMN_TILE
        rows = pl.ds(row, ROW_TILE)
        z = _product_tile(x, W, row, column)
        v, t = column + jnp.arange(COLUMN_TILE)[None], target[rows][:, None]
        dz = _gradient(z, v, t, log_z[rows][:, None], abc, V)
        out[rows, pl.ds(column, COLUMN_TILE)] = dz.astype(out.dtype)

    grid, result = (M // ROW_TILE, width // COLUMN_TILE), jax.ShapeDtypeStruct((M, width), x.dtype)
    run = call(kernel, grid, result, 2 * M * V * d, "logit_gradient")
    return run(x, W, log_z, target, abc)
