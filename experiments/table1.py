"""Table 1: per-layer complexity, sequential operations and maximum path length, measured.

    launch/local.sh experiments/table1.py        3 minutes on 2 CPU cores

Writes table, figures and plot into experiments/results/table1. A layer is what Table 1 counts:
attention without its projections (8 heads, d = 512), an LSTM, a gated convolution of width 3. FLOPs
are those of matrix products, counted in the traced program; time and memory are of the forward
pass, times medians of five laps. Exponents are fitted over n = 256 ... 4,096. A path is as long as
the layers until the first position moves the last, times the sequential steps within a layer.
"""

import statistics
import sys
from pathlib import Path

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "table1"
D, HEADS, R, KERNEL = 512, 8, 32, 3
LENGTHS = (256, 512, 1024, 2048, 4096)
LAPS = 5  # of all the lengths: what disturbs the machine for a minute disturbs one of them
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
    """Layer i of a kind as a function of x [1, n, d], its weights drawn."""
    import jax
    import jax.numpy as jnp

    from t2t_jax.attention import MECHANISMS, Visibility
    from t2t_jax.models.convolutional import Convolution
    from t2t_jax.models.recurrent import Cell

    def attend(mechanism):
        def layer(x):
            heads = x.reshape(*x.shape[:2], HEADS, -1)
            return mechanism.apply({}, heads, heads, heads, Visibility()).reshape(x.shape)

        return lambda i: layer

    def module(build, **how):
        def at(i):
            layer = build(i)
            variables = layer.init(jax.random.key(i), jnp.zeros((1, 2, d)), **how)
            return lambda x: run(layer.apply(variables, x, **how))

        return at

    def run(out):
        return out[0] if isinstance(out, tuple) else out

    return {
        "self-attention": lambda: attend(MECHANISMS["scaled_dot_product"]()),
        "restricted": lambda: attend(MECHANISMS["local"](w=r // 2)),
        "recurrent": lambda: module(
            lambda i: Cell("lstm", d, d, jnp.float32), method="run", carry=None
        ),
        "convolutional": lambda: module(
            lambda i: Convolution(d, KERNEL, 1, jnp.float32), causal=False
        ),
        "dilated": lambda: module(
            lambda i: Convolution(d, KERNEL, KERNEL**i, jnp.float32), causal=True
        ),
    }[name]()


def measure(say):
    import jax

    from t2t_jax.bench.layers import counted, layers_to_the_end
    from t2t_jax.bench.race import compiled, power, race
    from t2t_jax.environment import environment

    def program(name, n):
        return compiled(make(name, D)(0), jax.random.normal(jax.random.key(1), (1, n, D)))

    def flops(name, n, d):
        return counted(make(name, d)(0), n, d)[0]

    laps = [race(list(PAPER), LENGTHS, 60.0, program, say) for _ in range(LAPS)]
    found = {}
    for name in PAPER:
        at = [
            turns[0] | {"seconds": statistics.median(x["seconds"] for x in turns)}
            for turns in zip(*(lap[name] for lap in laps), strict=True)
        ]
        steps = {n: max(1, counted(make(name, 16)(0), n, 16)[1]) for n in PATHS}
        layers = {n: layers_to_the_end(make(name, 16, 8), n, 16) for n in PATHS}
        found[name] = {
            "at": at,
            "flops": {n: flops(name, n, D) for n in LENGTHS},
            "flops ~ n": power((n, flops(name, n, D)) for n in LENGTHS),
            "flops ~ d": power((d, flops(name, 256, d)) for d in (D, 2 * D, 4 * D)),
            "seconds ~ n": power((x["n"], x["seconds"]) for x in at),
            "bytes ~ n": power((x["n"], x["bytes"]) for x in at),
            "steps": steps,
            "path": {n: layers[n] * steps[n] for n in PATHS},
        }
    constants = {"d": D, "heads": HEADS, "r": R, "r of paths": 8, "k": KERNEL}
    return {"layers": found, **constants, "environment": environment()}


def table(found):
    """Markdown, a row a layer."""
    from t2t_jax.bench.race import power

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
    lines = []
    for name, (flops, _, steps, path) in PAPER.items():
        x = found["layers"][name]
        grown = power(x["steps"].items())
        lines.append(
            [
                name,
                f"O({flops})",
                f"n^{x['flops ~ n']:.2f} d^{x['flops ~ d']:.2f}",
                f"n^{x['seconds ~ n']:.2f}",
                f"n^{x['bytes ~ n']:.2f}",
                f"{x['at'][-1]['seconds'] * 1e3:,.1f}",
                f"O({steps})",
                "1" if grown < 0.01 else f"n^{grown:.2f}",
                f"O({path})",
                ", ".join(map(str, x["path"].values())),
            ]
        )
    device = found["environment"]["device"]
    note = (
        f"d = {D}, {HEADS} heads, r = {R} (in paths {found['r of paths']}), k = {KERNEL}, on "
        f"{device} with jax {found['environment']['jax']}, by `experiments/table1.py`. Dilated: "
        "taps of layer i stand k^i apart. Memory: temporaries of the forward pass."
    )
    return f"{pipe_table(heads, lines)}\n{note}\n"


if __name__ == "__main__":
    from t2t_jax.bench.race import draw
    from t2t_jax.files import write, write_json

    RESULTS.mkdir(parents=True, exist_ok=True)
    found = measure(lambda line: print(line, file=sys.stderr, flush=True))
    write_json(RESULTS / "table1.json", found)
    write(RESULTS / "table1.md", table(found))
    draw(
        {name: x["at"] for name, x in found["layers"].items()},
        {name: (x["seconds ~ n"], x["bytes ~ n"]) for name, x in found["layers"].items()},
        f"Forward pass of a layer, d = {D}, on {found['environment']['device']}",
        RESULTS / "table1",
    )
    print(table(found))
