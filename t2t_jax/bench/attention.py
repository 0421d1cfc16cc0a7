"""Time and memory of every attention mechanism, value and gradient, as the length n grows."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import meta

from t2t_jax.attention.dense import Dense
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.registry import MECHANISMS, build, gates, parse
from t2t_jax.attention.visibility import Visibility
from t2t_jax.bench import NAIVE
from t2t_jax.bench.lengths import ROUNDS, Program, compiled, exponent, sweep
from t2t_jax.bench.lengths import plot as plot_lengths
from t2t_jax.environment import environment

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
B, H, D = 1, 8, 64
BASE = "scaled_dot_product"


class AdditiveNaive(Dense):
    """Additive attention that builds the hidden layer of all pairs at once: [B, h, T, S, d]."""

    def setup(self) -> None:
        self.W_q, self.W_k = PerHead(("d_k", "d_hidden")), PerHead(("d_k", "d_hidden"))
        self.v = PerHead(("d_hidden",))

    def scores(self, q: jax.Array, keys: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
        d = q.shape[-1]
        a = jnp.einsum("bthd,hde->bhte", q, self.W_q(q, d, d))
        c = jnp.einsum("bhsd,hde->bhse", keys, self.W_k(q, d, d))
        hidden = jnp.tanh(a[:, :, :, None] + c[:, :, None])
        return jnp.einsum("bhtse,he->bhts", hidden, self.v(q, d))


def default(n: int) -> dict[str, str]:
    """Returns every mechanism with its options at length n: windows of 64, strides of sqrt(n)."""
    root = max(8, math.isqrt(n))
    options = {
        "local": ":w=64",
        "local_p": ":w=64",
        "dilated": ":w=64,r=2",
        "block_local": ":b=64",
        "streaming": ":w=64,g=4",
        "longformer": ":w=64,g=1",
        "sparse_strided": f":l={root}",
        "sparse_fixed": f":l={root},c=1",
        "sparse_random": ":b=32,r=2",
        "bigbird": ":b=32,w=1,g=1,r=2",
        "block_select": ":b=32,n=2",
        "lsh": f":b={max(2, n // 32)},c=32,r=2",
        "top_k": ":k=64",
        "cosformer": f":M={n}",
        "linformer": f":n={n}",
    }
    return {name: name + options.get(name, "") for name in (*MECHANISMS, NAIVE)}


def measure(
    names: Sequence[str], lengths: Sequence[int], seconds: float, report: Callable[[str], object]
) -> dict[str, Any]:
    """Measures every mechanism, causal where it can be, at every length.

    Args:
      names: mechanisms; those without options get the options of `default`.
      seconds: a mechanism whose next call is expected to take longer is dropped.

    Returns:
      Results for JSON and `table`: shapes, environment, and for each mechanism its points (seconds
      and bytes of temporaries at each n) and the exponents of their growth.
    """
    curves = sweep(names, lengths, seconds, _compile, report)
    mechanisms = {
        name: {"causal": is_causal(name), "at": curve}
        | {f"{quantity}_exponent": exponent(curve, quantity) for quantity in ("seconds", "bytes")}
        for name, curve in curves.items()
        if curve
    }
    dtype = jnp.dtype(_dtype()).name
    shapes = {"B": B, "h": H, "d_k": D, "d_v": D, "dtype": dtype, "rounds": ROUNDS}
    return {**shapes, "mechanisms": mechanisms, "environment": environment()}


def table(results: Mapping[str, Any]) -> list[str]:
    """Returns lines: time, speed relative to the paper's attention, memory, and exponents."""
    mechanisms = results["mechanisms"]
    lengths = sorted({point["n"] for m in mechanisms.values() for point in m["at"]})
    base = {point["n"]: point for point in mechanisms.get(BASE, {"at": []})["at"]}
    lines = [
        f"value and gradient, B = {results['B']}, h = {results['h']}, "
        f"d_k = d_v = {results['d_k']}, {results['dtype']}: "
        f"ms (speed relative to {BASE}; MiB of temporaries)",
        f"{'n':28}" + "".join(f"{n:>24,}" for n in lengths) + "   time ~  memory ~",
    ]
    for name, m in mechanisms.items():
        points = {point["n"]: point for point in m["at"]}
        line = f"{name + ('' if m['causal'] else ' (not causal)'):28}"
        line += "".join(f"{_cell(points.get(n), base.get(n)):>24}" for n in lengths)
        powers = (m["seconds_exponent"], m["bytes_exponent"])
        lines.append(line + "".join(" " * 9 if p is None else f"   n^{p:.2f}" for p in powers))
    return lines


def _cell(point: Mapping[str, float] | None, base: Mapping[str, float] | None) -> str:
    if point is None:
        return ""
    ratio = f"{base['seconds'] / point['seconds']:.1f}x; " if base else ""
    return f"{point['seconds'] * 1e3:,.1f} ({ratio}{point['bytes'] / 2**20:,.0f})"


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Plots time and memory against n: PATH.png, .svg and .pdf."""
    device = results["environment"]["device"]
    title = f"Attention, value and gradient, B = {B}, h = {H}, d = {D}, on {device}"
    mechanisms = results["mechanisms"]
    curves = {name: m["at"] for name, m in mechanisms.items()}
    exponents = {n: (m["seconds_exponent"], m["bytes_exponent"]) for n, m in mechanisms.items()}
    plot_lengths(curves, exponents, title, path)


def _compile(name: str, n: int) -> Program:
    mechanism = AdditiveNaive() if name == NAIVE else build(default(n).get(name, name))
    widths = D, key_width(name), D, D
    q, k, v, direction = (
        jax.random.normal(key, (B, n, H, width), _dtype())
        for key, width in zip(jax.random.split(jax.random.key(0), 4), widths, strict=True)
    )
    visibility = Visibility(causal=is_causal(name))
    fused = jax.default_backend() == "gpu"
    short = (x[:, :8] for x in (q, k, v))
    variables = meta.unbox(mechanism.init(jax.random.key(1), *short, visibility))

    def value(variables: Any, q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array) -> jax.Array:
        out: Any = mechanism.apply(variables, q, k, v, visibility, fused=fused, method="run")
        return (out * g).sum(dtype=jnp.float32)

    arguments = (variables, q, k, v, direction)
    return compiled(jax.value_and_grad(value, (0, 1, 2, 3)), *arguments)


def key_width(name: str) -> int:
    """Returns the width of a key, gates included."""
    return D if name == NAIVE else D + gates(name, D)


def is_causal(name: str) -> bool:
    """Returns whether a mechanism is measured as causal, which it is if it can be."""
    return name == NAIVE or "decoder" in MECHANISMS[parse(name)[0]].roles


def _dtype() -> Any:
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
