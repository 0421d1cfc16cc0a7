"""Table 1: FLOPs, sequential operations and maximum path length of a layer, measured.

    launch/local.sh experiments/table1.py        3 minutes on 2 CPU cores

Writes table, figures and plot into experiments/results/table1. Expected: FLOPs and memory grow with
exactly the paper's powers of n and d, and the exponent of time is within 0.1 of the paper's (2 for
self-attention, 1 for the others). The maximum path is 1 layer of self-attention and, at n = 128, 32
layers of restricted attention, 128 steps of an LSTM, 127 convolutions or 5 dilated ones.

A layer is what Table 1 counts: attention without its projections (8 heads, d = 512), an LSTM, a
gated convolution of width 3. FLOPs count the matrix products of the traced program. Time and
memory belong to the forward pass; times are medians of five laps. Exponents are fitted over
n = 256 ... 4,096. The path length is the number of layers after which the last position depends on
the first, times the sequential steps within a layer.
"""

import statistics
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.tools.layers import counted, layers_to_the_end
from t2t_jax.attention import build
from t2t_jax.attention.visibility import Visibility
from t2t_jax.bench import keep
from t2t_jax.bench.lengths import compiled, plot, power, sweep
from t2t_jax.environment import environment
from t2t_jax.models.convolutional import Convolution
from t2t_jax.models.recurrent import LSTM
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "table1"
D, HEADS, R, KERNEL = 512, 8, 32, 3
LENGTHS = (256, 512, 1024, 2048, 4096)
LAPS = 5  # sweeps over all lengths: a disturbance of a minute spoils one lap of a length
PATHS = (16, 32, 64, 128)
#        layer               FLOPs            time ~ n  sequential  path
PAPER = {
    "self-attention":       ("n^2 d",         2,        "1",        "1"),
    "restricted":           ("r n d",         1,        "1",        "n/r"),
    "recurrent":            ("n d^2",         1,        "n",        "n"),
    "convolutional":        ("k n d^2",       1,        "1",        "n/k"),
    "dilated":              ("k n d^2",       1,        "1",        "log_k(n)"),
}  # fmt: skip


def make(name, d, r=R):
    """Returns a function that maps i to layer i: a function of x [1, n, d] with random weights."""
    if name == "self-attention":
        return attention_layers("scaled_dot_product")
    if name == "restricted":
        return attention_layers(f"local:w={r // 2}")
    if name == "recurrent":
        return module_layers(lambda i: LSTM(d, d, jnp.float32), d, method="run", carry=None)
    dilation = KERNEL if name == "dilated" else 1
    return module_layers(
        lambda i: Convolution(d, KERNEL, dilation**i, jnp.float32), d, causal=name == "dilated"
    )


def attention_layers(mechanism):
    """Returns a function that maps i to a layer of self-attention without projections."""

    def layer(x):
        heads = x.reshape(*x.shape[:2], HEADS, -1)
        out = build(mechanism).apply({}, heads, heads, heads, Visibility())
        return out.reshape(x.shape)

    return lambda i: layer


def module_layers(module, d, **arguments):
    """Returns a function that maps i to `module(i)` as a function of x, without its carry."""

    def layer_at(i):
        layer = module(i)
        variables = layer.init(jax.random.key(i), jnp.zeros((1, 2, d)), **arguments)

        def apply(x):
            out = layer.apply(variables, x, **arguments)
            return out[0] if isinstance(out, tuple) else out

        return apply

    return layer_at


def measure():
    """Returns results for JSON and `table`, by layer."""

    def program(name, n):
        return compiled(make(name, D)(0), jax.random.normal(jax.random.key(1), (1, n, D)))

    laps = [sweep(list(PAPER), LENGTHS, 60.0, program) for _ in range(LAPS)]
    layers = {name: measure_layer(name, [lap[name] for lap in laps]) for name in PAPER}
    constants = {"d": D, "heads": HEADS, "r": R, "r of paths": 8, "k": KERNEL}
    return {"layers": layers, **constants, "environment": environment()}


def measure_layer(name, laps):
    """Returns the curve of time and memory, FLOPs, sequential steps, paths, and the exponents.

    Args:
      laps: the curve of each lap, as `t2t_jax.bench.lengths.sweep` returns it.
    """

    def flops(n, d):
        return counted(make(name, d)(0), n, d)[0]

    curve = [
        points[0] | {"seconds": statistics.median(point["seconds"] for point in points)}
        for points in zip(*laps, strict=True)
    ]
    steps = {n: max(1, counted(make(name, 16)(0), n, 16)[1]) for n in PATHS}
    return {
        "at": curve,
        "flops": {n: flops(n, D) for n in LENGTHS},
        "flops ~ n": power((n, flops(n, D)) for n in LENGTHS),
        "flops ~ d": power((d, flops(256, d)) for d in (D, 2 * D, 4 * D)),
        "seconds ~ n": power((x["n"], x["seconds"]) for x in curve),
        "bytes ~ n": power((x["n"], x["bytes"]) for x in curve),
        "steps": steps,
        "path": {n: layers_to_the_end(make(name, 16, 8), n, 16) * steps[n] for n in PATHS},
    }


def table(results):
    """Returns Markdown, a row for each layer."""
    heads = [
        "layer",
        "per layer, paper",
        "FLOPs counted",
        "time",
        "memory",
        f"ms at n = {LENGTHS[-1]:,}",
        "sequential, paper",
        "ours",
        "path, paper",
        f"ours at n = {', '.join(map(str, PATHS))}",
    ]
    lines = [cells(name, x) for name, x in results["layers"].items()]
    environment = results["environment"]
    note = (
        f"d = {D}, {HEADS} heads, r = {R} (in paths {results['r of paths']}), k = {KERNEL}, on "
        f"{environment['device']} with jax {environment['jax']}, by `experiments/table1.py`. "
        "Dilated: layer i has dilation k^i. Memory: temporaries of the forward pass."
    )
    return f"{pipe_table(heads, lines)}\n{note}\n"


def cells(name, x):
    """Returns the cells of a layer's row."""
    flops, _, sequential, path = PAPER[name]
    growth = power((int(n), steps) for n, steps in x["steps"].items())
    return [
        name,
        f"O({flops})",
        f"n^{x['flops ~ n']:.2f} d^{x['flops ~ d']:.2f}",
        f"n^{x['seconds ~ n']:.2f}",
        f"n^{x['bytes ~ n']:.2f}",
        f"{x['at'][-1]['seconds'] * 1e3:,.1f}",
        f"O({sequential})",
        "1" if growth < 0.01 else f"n^{growth:.2f}",
        f"O({path})",
        ", ".join(map(str, x["path"].values())),
    ]


def main():
    results = measure()
    keep(RESULTS / "table1.md", results, table(results))
    layers = results["layers"]
    plot(
        {name: x["at"] for name, x in layers.items()},
        {name: (x["seconds ~ n"], x["bytes ~ n"]) for name, x in layers.items()},
        f"Forward pass of a layer, d = {D}, on {results['environment']['device']}",
        RESULTS / "table1",
    )


if __name__ == "__main__":
    main()
