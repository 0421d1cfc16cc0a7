"""Training steps and attention compiled for devices that need not be present: bounds of their time.

Compiling needs JAX's packages for the device, but no device. A step has the paper's 25,000 tokens
per side, in sentences of LENGTH subwords. `big` has half of them, as if its batch were divided over
two GPUs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import meta
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from t2t_jax import config
from t2t_jax.attention.registry import build as build_mechanism
from t2t_jax.attention.visibility import Visibility
from t2t_jax.bench import roofline
from t2t_jax.bench.attention import B, D, H, default, is_causal, key_width
from t2t_jax.bench.collectives import moves
from t2t_jax.bench.devices import DEVICES, described
from t2t_jax.bench.lengths import plot as plot_lengths
from t2t_jax.environment import environment
from t2t_jax.models import build
from t2t_jax.recipes import recipe
from t2t_jax.training import population, sharding
from t2t_jax.training.step import abstract, hyper, make_step
from t2t_jax.training.throughput import compile_for

TOKENS = {"tiny": 25_000, "base": 25_000, "big": 12_500}  # per side, on each device
LENGTH = 64
GIB = 2**30
Report = Callable[[str], object]


def measure(
    device: str,
    chips: int,
    sizes: Sequence[str],
    mechanisms: Sequence[str],
    lengths: Sequence[int],
    kernels: str,
    P: int,
    batch_tokens: int | None,
    report: Report,
) -> dict[str, Any]:
    """Compiles steps and attention, and adds up the least times of their kernels.

    Args:
      device: of `devices.DEVICES`.
      chips: devices along the axis `data` of the mesh of a step.
      sizes: tiny, base, big.
      mechanisms: those without options get the options of `bench.attention.default`.
      kernels: as the config field.
      P: number of models that a step trains in one vectorised program.
      batch_tokens: tokens per side, of each model on each device; by default TOKENS.

    Returns:
      Results for JSON and `table`.
    """
    mesh = _mesh(device, chips)
    steps = {
        size: _step(device, mesh, size, kernels, P, batch_tokens or TOKENS[size], report)
        for size in sizes
    }
    one = _mesh(device, 1)
    attention = {
        name: [_attention(device, one, name, n, kernels, report) for n in lengths]
        for name in mechanisms
    }
    return {
        "device": device,
        "chips": chips,
        "kernels": kernels,
        "population": P,
        "bound": "the least time of every kernel, added up: no measurement",
        "steps": steps,
        "attention": {"B": B, "h": H, "d_k": D, "d_v": D, "mechanisms": attention},
        "environment": environment(),
    }


def table(results: Mapping[str, Any]) -> list[str]:
    """Returns lines: the bound of each step with its longest parts, and of each mechanism."""
    kind, P = DEVICES[results["device"]].kind, results["population"]
    members = f"{P} models, each of " if P > 1 else ""
    lines = [
        f"The least time on {results['chips']} x {kind}, with --kernels {results['kernels']}: a "
        "bound from the compiled program, not a measurement",
    ]
    for size, x in results["steps"].items():
        lines += [
            "",
            f"{size}, a step of {members}{x['tokens']:,} + {x['tokens']:,} tokens: "
            f"{x['ms']:.1f} ms; "
            f"{x['kernels']:,} kernels, {x['gb']:.1f} GB moved, {x['tflop']:.2f} TFLOP "
            f"({x['product_ms']:.1f} ms at the peak), {x['gib']:.2f} GiB"
            + (f", {x['sent_mb']:.0f} MB sent" if results["chips"] > 1 else ""),
            *(f"  {ms:7.3f} ms  {name}" for name, ms in x["longest"]),
        ]
    mechanisms = results["attention"]["mechanisms"]
    if mechanisms:
        lengths = [point["n"] for point in next(iter(mechanisms.values()))]
        lines += [
            "",
            f"Attention, value and gradients, B = {B}, h = {H}, d_k = d_v = {D}, bfloat16: least "
            "ms (kernels; MiB of temporaries)",
            f"{'n':28}" + "".join(f"{n:>26,}" for n in lengths),
        ]
        for name, points in mechanisms.items():
            cells = (f"{p['ms']:,.3f} ({p['kernels']:,}; {p['mib']:,.0f})" for p in points)
            label = name + ("" if is_causal(name) else " (not causal)")
            lines.append(f"{label:28}" + "".join(f"{cell:>26}" for cell in cells))
    return lines


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Plots the bound and the temporaries of every mechanism against n: PATH.png, .svg, .pdf."""
    curves = {
        name: [dict(n=p["n"], seconds=p["ms"] / 1e3, bytes=p["mib"] * 2**20) for p in points]
        for name, points in results["attention"]["mechanisms"].items()
    }
    title = f"Attention compiled for {DEVICES[results['device']].kind}: the least time"
    plot_lengths(curves, dict.fromkeys(curves, ()), title, path)


def _mesh(device: str, chips: int) -> Mesh:
    shape = tuple(chips if axis == "data" else 1 for axis in sharding.AXES)
    auto = (AxisType.Auto,) * len(shape)
    return Mesh(np.array(described(device, chips)).reshape(shape), sharding.AXES, axis_types=auto)


def _place(mesh: Mesh, x: Any, *spec: Any) -> jax.ShapeDtypeStruct:
    layout = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout)


def _stacked(mesh: Mesh, x: jax.ShapeDtypeStruct, P: int) -> jax.ShapeDtypeStruct:
    """The shape of an array for all P members of a population, from that of one."""
    wide = jax.ShapeDtypeStruct((P, *x.shape), x.dtype)
    return _place(mesh, wide, "population", *x.sharding.spec)


def _step(
    device: str, mesh: Mesh, size: str, kernels: str, P: int, tokens: int, report: Report
) -> dict[str, Any]:
    start = time.monotonic()
    c = recipe("multi30k_tiny") if size == "tiny" else recipe(size, "paper")
    c = config.replace(c, max_length=LENGTH, dtype="bfloat16", kernels=kernels)
    model = build(c, 8000 if size == "tiny" else 37_000, DEVICES[device].platform)
    h = jax.tree.map(lambda x: _place(mesh, x), jax.eval_shape(lambda: hyper(c)))
    rows = tokens // LENGTH * mesh.size
    side = _place(mesh, jax.ShapeDtypeStruct((rows, LENGTH), jnp.int32), sharding.ROWS)
    arguments: Any = abstract(model, c, mesh), dict(source=side, target=side), h
    if P > 1:
        arguments = jax.tree.map(lambda x: _stacked(mesh, x, P), arguments)
    with sharding.use_mesh(mesh):
        program = compile_for(population.vmap_step(make_step(model, c), P), P, *arguments)
    compiled: Any = program.run
    found = roofline.kernels(compiled.as_text(), P)
    total = roofline.bound(found, DEVICES[device])
    parts = roofline.by_part(found, DEVICES[device])
    report(f"{size}: {1e3 * total.seconds:.1f} ms, compiled in {time.monotonic() - start:.0f} s")
    return {
        "tokens": tokens,
        "ms": 1e3 * total.seconds,
        "kernels": total.kernels,
        "gb": total.moved / 1e9,
        "tflop": total.flops / 1e12,
        "product_ms": 1e3 * total.flops / DEVICES[device].peak,
        "gib": program.memory * P / GIB,
        "sent_mb": sum(move.sent for move in moves(program.run, mesh.size)) / 1e6,
        "longest": [(name, 1e3 * seconds) for name, seconds in parts[:10]],
    }


def _attention(
    device: str, mesh: Mesh, name: str, n: int, kernels: str, report: Report
) -> dict[str, Any]:
    mechanism = build_mechanism(default(n).get(name, name))
    fused = kernels != "plain" and DEVICES[device].platform == "gpu"
    visibility = Visibility(causal=is_causal(name))
    short = [jnp.zeros((1, 8, H, width), jnp.bfloat16) for width in (D, key_width(name), D)]
    variables = jax.eval_shape(
        lambda: meta.unbox(mechanism.init(jax.random.key(0), *short, visibility))
    )
    x, k = (
        _place(mesh, jax.ShapeDtypeStruct((B, n, H, width), jnp.bfloat16))
        for width in (D, key_width(name))
    )

    def value(variables: Any, q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array) -> jax.Array:
        out: Any = mechanism.apply(variables, q, k, v, visibility, fused=fused, method="run")
        return (out * g).sum(dtype=jnp.float32)

    gradients = jax.jit(jax.value_and_grad(value, (0, 1, 2, 3)))
    variables = jax.tree.map(lambda y: _place(mesh, y), variables)
    with sharding.use_mesh(mesh):
        program: Any = gradients.lower(variables, x, k, x, x).compile()
    total = roofline.bound(roofline.kernels(program.as_text()), DEVICES[device])
    used: Any = program.memory_analysis()
    report(f"{name}, n = {n:,}: {1e3 * total.seconds:.3f} ms")
    return {
        "n": n,
        "ms": 1e3 * total.seconds,
        "kernels": total.kernels,
        "mb": total.moved / 1e6,
        "gflop": total.flops / 1e9,
        "mib": used.temp_size_in_bytes / 2**20,
    }
