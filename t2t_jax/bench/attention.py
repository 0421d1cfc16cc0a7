"""Time and memory of every attention mechanism in training and decoding, as the length n grows."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import meta

from t2t_jax.attention.choice import build, entry
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.attention.visibility import Visibility
from t2t_jax.bench.lengths import ROUNDS, Compiled, Point, compiled, exponent, sweep
from t2t_jax.bench.lengths import plot as plot_lengths
from t2t_jax.environment import environment
from t2t_jax.terminal import align

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
B, H, D = 1, 8, 64
STEPS = 16  # decoding steps that are timed: the last of n
BASE = "scaled_dot_product"


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
        "native_sparse": ":b=32,n=2,w=64",
        "lsh": f":b={max(2, n // 32)},c=32,r=2",
        "top_k": ":k=64",
        "cosformer": f":M={n}",
        "linformer": f":n={n}",
    }
    return {name: name + options.get(name, "") for name in MECHANISMS}


def measure(names: Sequence[str], lengths: Sequence[int], seconds: float) -> dict[str, Any]:
    """Measures every mechanism, causal where it can be, at every length.

    Args:
      names: mechanisms; those without options get the options of `default`.
      seconds: a mechanism whose next call is expected to take longer is dropped.

    Returns:
      Results for JSON and `table`. At each n, `at` measures value and gradient and `forward` the
      value alone: seconds, and bytes of temporaries. `step` measures a step that decodes position
      n, for mechanisms of the decoder: seconds, and bytes of the state.
    """
    curves = sweep(names, lengths, seconds, partial(program, True))
    forward = sweep(names, lengths, seconds, partial(program, False))
    decoding = [name for name in names if is_causal(name)]
    longer = [n for n in lengths if n > STEPS]
    steps = sweep(decoding, longer, seconds, _steps) if decoding and longer else {}
    for name, curve in steps.items():
        for point in curve:
            point.update({x: point[x] / STEPS for x in ("seconds", "least", "most")})
            point["bytes"] = state_bytes(name, int(point["n"]))
    mechanisms = {
        name: {"causal": is_causal(name), "at": curve}
        | {f"{quantity}_exponent": exponent(curve, quantity) for quantity in ("seconds", "bytes")}
        | {"forward": forward[name], "step": steps.get(name, [])}
        for name, curve in curves.items()
        if curve
    }
    dtype = jnp.dtype(_dtype()).name
    shapes = {"B": B, "h": H, "d_k": D, "d_v": D, "dtype": dtype, "rounds": ROUNDS}
    return {**shapes, "mechanisms": mechanisms, "environment": environment()}


def table(results: Mapping[str, Any]) -> str:
    """Returns time, speed relative to the paper's attention, memory, and exponents."""
    sizes = f"B = {results['B']}, h = {results['h']}, d_k = d_v = {results['d_k']}"
    lines = [f"{sizes}, {results['dtype']}; in parentheses the speed relative to {BASE}, and MiB"]
    for kind, title in (
        ("at", "value and gradient: ms (MiB of temporaries)"),
        ("forward", "value alone: ms (MiB of temporaries)"),
        ("step", f"a step of decoding, of the last {STEPS}: ms (MiB of state)"),
    ):
        mechanisms = {name: m for name, m in results["mechanisms"].items() if m[kind]}
        lengths = sorted({point["n"] for m in mechanisms.values() for point in m[kind]})
        dense = mechanisms.get(BASE, {kind: []})[kind]
        base = {point["n"]: point for point in dense}
        rows = [["n", *(f"{n:,}" for n in lengths), "faster from n", "time ~", "memory ~"]]
        for name, m in mechanisms.items():
            points = {point["n"]: point for point in m[kind]}
            n = crossing(m[kind], dense)
            powers = (m["seconds_exponent"], m["bytes_exponent"]) if kind == "at" else (None, None)
            rows.append(
                [
                    name if m["causal"] else f"{name} (not causal)",
                    *(_cell(points.get(n), base.get(n)) for n in lengths),
                    "" if n is None or name == BASE else f"{n:,.0f}",
                    *("" if p is None else f"n^{p:.2f}" for p in powers),
                ]
            )
        lines += ["", title, *align(rows if kind == "at" else [row[:-2] for row in rows])]
    return "\n".join(lines) + "\n"


def _cell(point: Mapping[str, float] | None, base: Mapping[str, float] | None) -> str:
    if point is None:
        return ""
    ratio = f"{base['seconds'] / point['seconds']:.1f}x; " if base else ""
    digits, mib = 1 if point["seconds"] > 1e-3 else 3, point["bytes"] / 2**20
    size = f"{mib:,.0f}" if mib >= 100 else f"{mib:.3g}"
    return f"{point['seconds'] * 1e3:,.{digits}f} ({ratio}{size})"


def crossing(curve: Sequence[Point], dense: Sequence[Point]) -> float | None:
    """Returns the length from which a mechanism is faster than dense attention.

    Between two measured lengths, time is interpolated on logarithmic axes. The result is the
    shortest length if the mechanism is faster at every length, and None if it is slower at the
    longest length that both have.
    """
    of_dense = {point["n"]: point["seconds"] for point in dense}
    ratios = [
        (math.log(x["n"]), math.log(x["seconds"] / of_dense[x["n"]]))
        for x in curve
        if x["n"] in of_dense
    ]
    if not ratios or ratios[-1][1] >= 0:
        return None
    for (x, above), (y, below) in itertools.pairwise(reversed(ratios)):
        if below >= 0:
            return math.exp(y + (x - y) * below / (below - above))
    return math.exp(ratios[0][0])


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Plots time and memory against n: PATH.png, .svg and .pdf."""
    device = results["environment"]["device"]
    title = f"Attention, value and gradient, B = {B}, h = {H}, d = {D}, on {device}"
    mechanisms = results["mechanisms"]
    curves = {name: m["at"] for name, m in mechanisms.items()}
    exponents = {n: (m["seconds_exponent"], m["bytes_exponent"]) for n, m in mechanisms.items()}
    plot_lengths(curves, exponents, title, path)


def program(gradient: bool, name: str, n: int) -> Compiled:
    """Returns a weighted sum of all outputs as a program, or its value and gradient."""
    mechanism, variables = mechanism_at(name, n)
    widths = D, key_width(name), D, D
    arguments = [
        jax.random.normal(key, (B, n, H, width), _dtype())
        for key, width in zip(jax.random.split(jax.random.key(0), 4), widths, strict=True)
    ]
    value = weighted_sum(mechanism, is_causal(name), jax.default_backend() == "gpu")
    function = jax.value_and_grad(value, (0, 1, 2, 3)) if gradient else value
    return compiled(function, variables, *arguments)


def weighted_sum(mechanism: Any, causal: bool, fused: bool) -> Callable[..., jax.Array]:
    """Returns the function of parameters, q, k, v and g whose value is sum(g * attention)."""

    def value(variables: Any, q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array) -> jax.Array:
        visibility = Visibility(causal=causal)
        out: Any = mechanism.apply(variables, q, k, v, visibility, fused=fused)
        return (out * g).sum(dtype=jnp.float32)

    return value


def mechanism_at(name: str, n: int, h: int = H, d_k: int = D, d_v: int = D) -> tuple[Any, Any]:
    """Returns a mechanism with its options at length n, and its parameters."""
    mechanism = build(default(n).get(name, name))
    widths = d_k, key_width(name, d_k), d_v
    short = (jnp.zeros((B, min(8, n), h, width), _dtype()) for width in widths)
    visibility = Visibility(causal=is_causal(name))
    return mechanism, meta.unbox(mechanism.init(jax.random.key(1), *short, visibility))


def _steps(name: str, n: int) -> Compiled:
    """Returns a program that decodes the last `STEPS` of n positions."""
    mechanism, variables = mechanism_at(name, n)
    q, k, v = (jnp.ones((B, 1, H, width), _dtype()) for width in (D, key_width(name), D))

    def step(state: Any, t: jax.Array) -> tuple[Any, jax.Array]:
        out, state = mechanism.apply(variables, state, q, t, k, v, method="step")
        return state, out

    def steps(state: Any) -> tuple[Any, jax.Array]:
        return jax.lax.scan(step, state, jnp.arange(n - STEPS, n))

    return compiled(steps, _state(name, n))


def _state(name: str, n: int, h: int = H, d_k: int = D, d_v: int = D) -> Any:
    """Returns the decoding state of n positions."""
    mechanism, variables = mechanism_at(name, n, h, d_k, d_v)
    k, v = (jnp.zeros((B, n, h, width), _dtype()) for width in (key_width(name, d_k), d_v))
    visibility = Visibility(kv_lengths=jnp.zeros(B, jnp.int32), causal=True)
    return mechanism.apply(variables, k, v, visibility, method="start")


def state_bytes(name: str, n: int, h: int = H, d_k: int = D, d_v: int = D) -> int:
    """Returns the size of the state in which a causal mechanism decodes n positions."""
    state = jax.eval_shape(lambda: _state(name, n, h, d_k, d_v))
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))


def key_width(name: str, d_k: int = D) -> int:
    """Returns the width of a key with the gates that are appended to it."""
    return d_k + entry(name).gates(d_k)


def is_causal(name: str) -> bool:
    """Returns whether a mechanism is measured with causal masking: whenever it supports that."""
    return "decoder" in entry(name).roles


def _dtype() -> Any:
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
