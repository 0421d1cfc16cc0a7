"""Lower bounds on the time of training steps and attention on H100, H200 and v5e, without one.

    python3 -m venv gpu && gpu/bin/pip install -e .[cuda,tpu]
    gpu/bin/python -m experiments.tools.programs       40 minutes on 2 CPU cores; 6 GB of packages
    gpu/bin/python -m experiments.tools.programs --mechanisms local --sizes       these alone

Without options it compiles all programs of BENCHES that are not in experiments/results/programs
yet; with options it writes to --out. Expected for an H100: at least 20 ms for a step of base at the
paper's batch, and 30 ms with --kernels plain.

Compiling needs JAX's packages for the device, but no device. A step has the paper's 25,000 tokens
per side, in sentences of LENGTH subwords. `big` has half of them, as if its batch were divided over
two GPUs.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.tools import roofline
from experiments.tools.collectives import moves
from experiments.tools.devices import DEVICES, SLICES, described, without_devices
from t2t_jax import config
from t2t_jax.attention.choice import parse as parse_mechanism
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.bench import keep
from t2t_jax.bench.attention import B, D, H, is_causal, key_width, mechanism_at, weighted_sum
from t2t_jax.bench.lengths import plot as plot_lengths
from t2t_jax.config import Config
from t2t_jax.environment import environment
from t2t_jax.models import build
from t2t_jax.recipes import recipe
from t2t_jax.terminal import say
from t2t_jax.training import population, sharding
from t2t_jax.training.step import abstract, hyper, make_step
from t2t_jax.training.throughput import Program, compile_for

RESULTS = Path(__file__).parents[1] / "results" / "programs"
BENCHES = {  # name of the result: its options
    "compile-h100": "--sizes tiny base big --mechanisms",
    "compile-h100-plain": "--sizes tiny base big --kernels plain",
    "compile-h200": "--device h200 --sizes tiny base big",
    "compile-h100x8": "--chips 8 --sizes base big",
    "compile-h100-2048-tokens": "--sizes tiny --batch_tokens 2048",
    "compile-h100-3-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 3",
    "compile-h100-8-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 8",
    "compile-h100-20-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 20",
    "compile-v5e": "--device v5e --sizes tiny base big",
}
TOKENS = {"tiny": 25_000, "base": 25_000, "big": 12_500}  # per side, on each device
LENGTH = 64
GIB = 2**30


def measure(a: argparse.Namespace) -> dict[str, Any]:
    """Compiles steps and attention, and adds up the least times of their kernels.

    Args:
      a: the options of `parse`.

    Returns:
      Results for JSON and `table`.
    """
    mesh, one = _mesh(a.device, a.chips), _mesh(a.device, 1)
    steps = {size: _step(a, mesh, size, a.batch_tokens or TOKENS[size]) for size in a.sizes}
    attention = {name: [_attention(a, one, name, n) for n in a.lengths] for name in a.mechanisms}
    return {
        "device": a.device,
        "chips": a.chips,
        "kernels": a.kernels,
        "population": a.population,
        "bound": "the least time of every kernel, added up: no measurement",
        "steps": steps,
        "attention": {"B": B, "h": H, "d_k": D, "d_v": D, "mechanisms": attention},
        "environment": environment(),
    }


def table(results: Mapping[str, Any]) -> str:
    """Returns the bound of each step with its longest parts, and of each mechanism."""
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
    return "\n".join(lines) + "\n"


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Plots the bound and the temporaries of every mechanism against n: PATH.png, .svg, .pdf."""
    curves = {
        name: [dict(n=p["n"], seconds=p["ms"] / 1e3, bytes=p["mib"] * 2**20) for p in points]
        for name, points in results["attention"]["mechanisms"].items()
    }
    title = f"Attention compiled for {DEVICES[results['device']].kind}: the least time"
    plot_lengths(curves, dict.fromkeys(curves, ()), title, path)


def compile_step(c: Config, V: int, platform: str, mesh: Mesh, tokens: int, P: int = 1) -> Program:
    """Compiles a training step from shapes, with sentences of LENGTH subwords.

    Args:
      platform: gpu or tpu.
      mesh: of devices that need not be present.
      tokens: tokens of the batch per side, on all devices.
      P: number of models that a step trains in one vectorised program.
    """
    model = build(c, V, platform)
    h = jax.tree.map(lambda x: _place(mesh, x), jax.eval_shape(lambda: hyper(c)))
    shape = jax.ShapeDtypeStruct((tokens // LENGTH, LENGTH), jnp.int32)
    side = _place(mesh, shape, sharding.ROWS)
    arguments: Any = abstract(model, c, mesh), dict(source=side, target=side), h
    if P > 1:
        arguments = jax.tree.map(lambda x: _stacked(mesh, x, P), arguments)
    with sharding.use_mesh(mesh):
        return compile_for(population.vmap_step(make_step(model, c), P), P, *arguments)


def _mesh(device: str, chips: int) -> Mesh:
    shape = tuple(chips if axis == "data" else 1 for axis in sharding.AXES)
    return Mesh(np.array(described(device, chips)).reshape(shape), sharding.AXES)


def _place(mesh: Mesh, x: Any, *spec: Any) -> jax.ShapeDtypeStruct:
    layout = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout)


def _stacked(mesh: Mesh, x: jax.ShapeDtypeStruct, P: int) -> jax.ShapeDtypeStruct:
    """The shape of an array for all P members of a population, from the shape of one."""
    wide = jax.ShapeDtypeStruct((P, *x.shape), x.dtype)
    return _place(mesh, wide, "population", *x.sharding.spec)


def _step(a: argparse.Namespace, mesh: Mesh, size: str, tokens: int) -> dict[str, Any]:
    start, device, P = time.monotonic(), DEVICES[a.device], a.population
    c = recipe("multi30k_tiny" if size == "tiny" else size)
    c = config.replace(c, max_length=LENGTH, dtype="bfloat16", kernels=a.kernels)
    rows = tokens // LENGTH * mesh.size
    V = 8000 if size == "tiny" else 37_000
    program = compile_step(c, V, device.platform, mesh, rows * LENGTH, P)
    compiled: Any = program.run
    kernels = roofline.kernels(compiled.as_text(), P)
    total = roofline.bound(kernels, device)
    say(f"{size}: {1e3 * total.seconds:.1f} ms, compiled in {time.monotonic() - start:.0f} s")
    return {
        "tokens": tokens,
        "ms": 1e3 * total.seconds,
        "kernels": total.kernels,
        "gb": total.moved / 1e9,
        "tflop": total.flops / 1e12,
        "product_ms": 1e3 * total.flops / device.peak,
        "gib": program.memory * P / GIB,
        "sent_mb": sum(move.sent for move in moves(program.run, mesh.size)) / 1e6,
        "longest": [
            (name, 1e3 * seconds) for name, seconds in roofline.by_part(kernels, device)[:10]
        ],
    }


def _attention(a: argparse.Namespace, mesh: Mesh, name: str, n: int) -> dict[str, Any]:
    device, (mechanism, variables) = DEVICES[a.device], mechanism_at(name, n)
    fused = a.kernels != "plain" and device.platform == "gpu"
    x, k = (jax.ShapeDtypeStruct((B, n, H, w), jnp.bfloat16) for w in (D, key_width(name)))
    gradients = jax.value_and_grad(weighted_sum(mechanism, is_causal(name), fused), (0, 1, 2, 3))
    arguments = jax.tree.map(lambda y: _place(mesh, y), (variables, x, k, x, x))
    with sharding.use_mesh(mesh):
        program: Any = jax.jit(gradients).lower(*arguments).compile()
    total = roofline.bound(roofline.kernels(program.as_text()), device)
    used: Any = program.memory_analysis()
    say(f"{name}, n = {n:,}: {1e3 * total.seconds:.3f} ms")
    return {
        "n": n,
        "ms": 1e3 * total.seconds,
        "kernels": total.kernels,
        "mib": used.temp_size_in_bytes / 2**20,
    }


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Returns the options of one result; exits if one of them is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="h100", choices=DEVICES, help="[h100]")
    parser.add_argument("--chips", type=int, default=1, help="devices that share a step [1]")
    parser.add_argument("--population", type=int, default=1, metavar="P", help="models at once [1]")
    parser.add_argument("--batch_tokens", type=int, help="of a model, a side and device")
    parser.add_argument("--sizes", nargs="*", choices=TOKENS, default=["base"], help="[base]")
    parser.add_argument(
        "--mechanisms", nargs="*", metavar="NAME", help="also attention: these, or all [none]"
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[256, 1024, 4096, 16384])
    parser.add_argument("--kernels", default="auto", choices=("auto", "plain"), help="[auto]")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="directory [bench]")
    a = parser.parse_args(words)
    a.mechanisms = [] if a.mechanisms is None else a.mechanisms or [*MECHANISMS]
    for name in a.mechanisms:
        parse_mechanism(name)
    device = DEVICES[a.device]
    if device.platform == "tpu" and a.chips not in SLICES:
        parser.error(f"--chips {a.chips}: choose one of {', '.join(map(str, SLICES))}.")
    if find_spec(device.package) is None:
        parser.error(f"install JAX's packages for {a.device}: pip install -e '.[{device.extra}]'.")
    return a


def name_of(a: argparse.Namespace) -> str:
    """The file name of a result, from the options that change it."""
    name = f"compile-{a.device}" + (f"x{a.chips}" if a.chips > 1 else "")
    name += f"-{a.population}-models" if a.population > 1 else ""
    name += f"-{a.batch_tokens}-tokens" if a.batch_tokens else ""
    return name + ("-plain" if a.kernels == "plain" else "")


def main(words: Sequence[str]) -> None:
    if not words:
        for name, options in BENCHES.items():
            if not (RESULTS / f"{name}.json").exists():
                command = [sys.executable, "-m", "experiments.tools.programs", *options.split()]
                subprocess.run([*command, "--out", str(RESULTS)], check=True)
        return
    a = parse(words)
    without_devices()
    results, path = measure(a), a.out / name_of(a)
    keep(path.with_suffix(".txt"), results, table(results))
    if a.mechanisms:
        plot(results, path)


if __name__ == "__main__":
    main(sys.argv[1:])
