"""Weak scaling: what a step of base and big moves between 8 to 256 devices, and where that stops.

    launch/local.sh experiments/scaling.py        20 minutes on 2 CPU cores

Writes experiments/results/scaling. Every step is compiled for as many simulated devices, with 4,096
tokens a side for each of them, and its collective operations are read from the program: the bytes
that a device sends in a ring, in float32. The CPU's compiler knows no reduce-scatter and adds the
three gradients of the embedding after reducing each; an accelerator's sends less. The rest is on
paper: devices like an H100 that reach 40% of 989 TFLOP/s, 450 GB/s between the 8 of a host and 50 GB/s
beyond. The efficiency is the share of a step spent computing, at worst (nothing that is sent is
hidden behind it) and at best (all is).
"""

import os
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "scaling"
DEVICES = (8, 16, 32, 64, 128, 256)
MESHES = {"data": "data={n}", "fsdp": "fsdp={n}", "tensor": "data={hosts},tensor=8"}
TOKENS, LENGTH, V = 4096, 64, 37_000  # of a device's part of a batch, a side
FLOPS, HOST, WITHIN, BEYOND = 0.4 * 989e12, 8, 450e9, 50e9


def compiled_on(c, mesh, tokens):
    """The step of a config on a mesh, from shapes alone: `Program`, and its collectives."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from t2t_jax.bench.collectives import moves
    from t2t_jax.models import build
    from t2t_jax.training import population, sharding
    from t2t_jax.training.step import abstract, hyper, make_step
    from t2t_jax.training.throughput import compile_for

    def lay(x, *spec):
        layout = NamedSharding(mesh, PartitionSpec("population", *spec))
        return jax.ShapeDtypeStruct((1, *x.shape), x.dtype, sharding=layout)

    model = build(c, V)
    with sharding.on(mesh):
        state = jax.tree.map(lambda x: lay(x, *x.sharding.spec), abstract(model, c, mesh))
        h = jax.tree.map(lay, jax.eval_shape(lambda: hyper(c)))
        side = lay(jax.ShapeDtypeStruct((tokens // LENGTH, LENGTH), jnp.int32), sharding.ROWS)
        batch = {"source": side, "target": side}
        step = population.together(make_step(model, c), 1, False)
        program = compile_for(step, 1, False, state, batch, h)
    return program, list(moves(program.run, mesh.size))


def figures(c, name, n, say):
    """A row of the table."""
    from t2t_jax.training.flops import step_flops
    from t2t_jax.training.sharding import make_mesh

    mesh = make_mesh(MESHES[name].format(n=n, hosts=n // HOST), n)
    tokens = TOKENS * n
    program, sent = compiled_on(c, mesh, tokens)
    counted = step_flops(c.model, V, tokens // LENGTH, LENGTH, LENGTH)
    seconds = counted / n / FLOPS
    moving = sum(move.sent / (WITHIN if move.group <= HOST else BEYOND) for move in sent)
    kinds = {move.kind for move in sent}
    row = {
        "mesh": name,
        "devices": n,
        "bytes": {k: sum(m.sent for m in sent if m.kind == k) for k in sorted(kinds)},
        "memory": program.memory,
        "compute": seconds,
        "moving": moving,
        "worst": seconds / (seconds + moving),
        "best": seconds / max(seconds, moving),
    }
    say(f"{name} {n}: {sum(row['bytes'].values()) / 1e6:,.0f} MB, {row['worst']:.0%}")
    return row


def main():
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(DEVICES)}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    from t2t_jax import config
    from t2t_jax.recipes import recipe
    from t2t_jax.study.store import environment, write, write_json

    def say(line):
        print(line, file=sys.stderr, flush=True)

    found = {}
    for model in ("base", "big"):
        c = config.replace(recipe(model, "paper"), max_length=LENGTH)
        found[model] = [figures(c, name, n, say) for name in MESHES for n in DEVICES]
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / "scaling.json", {"models": found, "environment": environment()})
    write(RESULTS / "scaling.md", table(found))
    print(table(found))


def table(found):
    """Markdown, a row a model, mesh and number of devices."""
    heads = ["model", "mesh", "devices", "MB sent a step", "computing (ms)", "moving (ms)",
             "efficiency at worst", "at best"]  # fmt: skip
    lines = [heads, ["---"] * len(heads)]
    for model, rows in found.items():
        for x in rows:
            lines.append(
                [
                    model,
                    x["mesh"],
                    str(x["devices"]),
                    f"{sum(x['bytes'].values()) / 1e6:,.0f}",
                    f"{x['compute'] * 1e3:.1f}",
                    f"{x['moving'] * 1e3:.1f}",
                    f"{x['worst']:.0%}",
                    f"{x['best']:.0%}",
                ]
            )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    main()
