"""The kernels for GPUs in `t2t_jax.ops` beside their plain definitions: errors and times.

`gpu.py` stores the comparison as its part `kernels`. An error is the largest difference of a value
or a gradient from the plain definition in float32, divided by the largest value there.
"""

import statistics
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from t2t_jax.attention import build
from t2t_jax.attention.visibility import Visibility
from t2t_jax.ops import cross_entropy, flash_attention

TOLERANCE = 4  # times the error of the plain definition in bfloat16


def compare(tokens: int) -> Iterator[dict[str, Any]]:
    """Yields the results so far, by kernel, after each kernel.

    Args:
      tokens: a side of a batch.
    """
    results: dict[str, Any] = {}
    for name, (kernel, plain, arguments) in cases(tokens).items():
        half = [x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x for x in arguments]
        with jax.default_matmul_precision("highest"):
            expected = _value_and_gradients(plain)(*arguments)
        results[name] = {
            label: _measure(function, half, expected)
            for label, function in {"plain": plain, "kernel": kernel}.items()
        }
        yield results


def exact(results: dict[str, Any]) -> bool:
    """Returns whether no kernel's error is more than `TOLERANCE` times its definition's error."""
    return all(
        _worst(x["kernel"]) <= TOLERANCE * _worst(x["plain"]) + 1e-6 for x in results.values()
    )


def table(results: dict[str, Any]) -> str:
    """Returns a line for each kernel."""
    line = "{:26}{:>12}{:>13}{:>9}{:>10}{:>11}".format
    head = "value and gradients", "plain (ms)", "kernel (ms)", "faster", "error", "of kernel"
    lines = [line(*head)]
    for name, x in results.items():
        plain, kernel = x["plain"]["ms"], x["kernel"]["ms"]
        errors = [f"{_worst(x[label]):.4f}" for label in ("plain", "kernel")]
        lines.append(line(name, f"{plain:.2f}", f"{kernel:.2f}", f"{plain / kernel:.1f}x", *errors))
    return "\n".join(lines) + "\n"


def cases(tokens: int) -> dict[str, Any]:
    """Returns (kernel, plain definition, float32 arguments) by name, at the sizes of base.

    Both functions return a scalar. It is differentiated with respect to the float32 arguments.
    """
    B, T, d, V = max(1, tokens // 64), 64, 512, 37_000
    keys = iter(jax.random.split(jax.random.key(0), 20))

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return scale * jax.random.normal(next(keys), shape)

    lengths = jax.random.randint(next(keys), (B,), 1, T + 1)
    present = jnp.arange(T)[None] < lengths[:, None]
    target = jnp.where(present, jax.random.randint(next(keys), (B, T), 1, V), 0)
    smoothing = jnp.float32(0.9), jnp.float32(0.1 / V)
    qkv = [normal(B, T, 8, 64) for _ in range(3)]
    far = [normal(1, 4096, 8, 64) for _ in range(3)]

    def loss(function: Any) -> Any:
        return lambda x, W: function(x, W, target, smoothing)[0]

    def summed(function: Any) -> Any:
        return lambda *x: (function(*x) ** 2).sum(dtype=jnp.float32)

    def attention(function: Any) -> Any:
        def of_present(q: Array, k: Array, v: Array) -> Array:
            attended = function(q, k, v, lengths, lengths, True, 0.125)
            return jnp.where(present[:, :, None, None], attended, 0)

        return summed(of_present)

    def tiles(q: Array, k: Array, v: Array, *visible: Any) -> Array:
        """Attention by the kernel of patterns: no sentence is longer than this window."""
        attended = build("local:w=64").fused(q, k, v, Visibility(*visible[:3]))
        assert attended is not None
        return attended

    def mechanism(name: str, fused: bool) -> Any:
        def attended(*x: Array) -> Array:
            return build(name).apply({}, *x, Visibility(causal=True), fused=fused)

        return summed(attended)

    modules: dict[str, Any] = {
        "cross_entropy": (loss, cross_entropy, (normal(B, T, d), normal(V, d, scale=d**-0.5))),
        "flash_attention": (attention, flash_attention, qkv),
    }
    names = "local:w=64 sparse_strided:l=64 sparse_fixed:l=64,c=1 sparse_random:b=32,r=2"
    of_package = {
        name: (wrap(getattr(module, name)), wrap(module.plain), arguments)
        for name, (wrap, module, arguments) in modules.items()
    }
    short = {"local_short": (attention(tiles), attention(flash_attention.plain), qkv)}
    far_apart = {n: (mechanism(n, True), mechanism(n, False), far) for n in names.split()}
    return of_package | short | far_apart


def _value_and_gradients(function: Callable[..., Array]) -> Callable[..., Any]:
    def run(*x: Array) -> Any:
        return jax.value_and_grad(function, tuple(range(len(x))))(*x)

    return jax.jit(run)


def _measure(
    function: Callable[..., Array], arguments: list[Array], expected: Any
) -> dict[str, float | list[float]]:
    """Returns the errors of value and gradients, and the median time of 10 calls."""
    run = _value_and_gradients(function)
    errors = jax.tree.map(_relative_error, run(*arguments), expected)
    times = timeit.repeat(lambda: jax.block_until_ready(run(*arguments)), number=1, repeat=10)
    return {"ms": 1e3 * statistics.median(times), "errors": errors}


def _relative_error(x: Array, expected: Array) -> float:
    return float(abs(x - expected).max() / abs(expected).max())


def _worst(result: dict[str, Any]) -> float:
    return max(jax.tree.leaves(result["errors"]))
