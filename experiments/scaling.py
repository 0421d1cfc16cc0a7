"""Weak scaling from 8 to 256 TPU chips: the communication of a step, and its efficiency.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python experiments/scaling.py        an hour and a half on 2 CPU cores, no TPU

Writes experiments/results/scaling; steps that are already there are not compiled again. Expected:
an efficiency of 75% to 89% at worst on the meshes `data` and `fsdp`, up to 256 chips, and of 26%
(base) and 37% (big) with `tensor=8`.

The TPU compiler compiles each step for a v5e slice, with 4,096 tokens a side on each chip, in bf16
with float32 parameters; collective operations and memory are read from the program. Times are
estimates from Google's figures for a chip: 40% of 197 TFLOP/s, 90 GB/s on a ring of the torus,
16 GiB. Efficiency is the share of a step's time that is spent on computation: at worst if no
communication overlaps with it, at best if all does.
"""

import json
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "scaling"
SLICES = {8: "2x4", 16: "4x4", 64: "8x8", 256: "16x16"}
TENSOR = 8
MESHES = {
    "data": lambda n: (1, n, 1, 1),
    "fsdp": lambda n: (1, 1, n, 1),
    f"data, tensor={TENSOR}": lambda n: (1, n // TENSOR, 1, TENSOR),
}
TOKENS, LENGTH, V = 4096, 64, 37_000  # tokens of a batch on each chip, a side
FLOPS, RING = 0.4 * 197e12, 90e9


def compiled_on(c, mesh, tokens):
    """Compiles the step of a config on a mesh from shapes: the program and its collectives."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from t2t_jax.bench.collectives import moves
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import abstract, hyper, make_step
    from t2t_jax.training.throughput import compile_for

    def place(x, *spec):
        layout = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout)

    model = build(c, V, "tpu")
    state = abstract(model, c, mesh)
    h = jax.tree.map(place, jax.eval_shape(lambda: hyper(c)))
    side = place(jax.ShapeDtypeStruct((tokens // LENGTH, LENGTH), jnp.int32), sharding.ROWS)
    batch = {"source": side, "target": side}
    step = make_step(model, c)
    with sharding.use_mesh(mesh):
        program = compile_for(step, 1, state, batch, h)
    return program, list(moves(program.run, mesh.size))


def figures(c, shape, n):
    """Returns what the step of a config on a slice sends, how much memory and time it takes."""
    from jax.experimental import mesh_utils, topologies
    from jax.sharding import Mesh

    from t2t_jax.models.flops import step_flops
    from t2t_jax.training.sharding import AXES

    slice = topologies.get_topology_desc(platform="tpu", topology_name=f"v5e:{SLICES[n]}")
    chips = mesh_utils.create_device_mesh(
        shape(n), list(slice.devices), allow_split_physical_axes=True
    )
    program, collectives = compiled_on(c, Mesh(chips, AXES), TOKENS * n)
    pairs = TOKENS * n // LENGTH
    computing = step_flops(c.model, V, pairs, LENGTH, LENGTH) / n / FLOPS
    moving = sum(move.sent for move in collectives) / RING
    sent = dict.fromkeys(sorted({move.kind for move in collectives}), 0)
    for move in collectives:
        sent[move.kind] += move.sent
    return {
        "sent": sent,
        "memory": program.memory,
        "computing": computing,
        "moving": moving,
        "worst": computing / (computing + moving),
        "best": computing / max(computing, moving),
    }


def table(results):
    """Returns Markdown, a row for each model, mesh and number of chips."""
    heads = ["model, mesh", "chips", "MB sent a step", "of these by reductions", "computation (ms)",
            "communication (ms)", "efficiency at worst", "at best", "GiB a chip"]  # fmt: skip
    lines = []
    for name, x in results.items():
        model, chips = name.rsplit(", ", 1)
        reduced = sum(b for kind, b in x["sent"].items() if "reduce" in kind)
        lines.append(
            [
                model,
                chips,
                f"{sum(x['sent'].values()) / 1e6:,.0f}",
                f"{reduced / 1e6:,.0f}",
                f"{x['computing'] * 1e3:.1f}",
                f"{x['moving'] * 1e3:.1f}",
                f"{x['worst']:.0%}",
                f"{x['best']:.0%}",
                f"{x['memory'] / 2**30:.1f}",
            ]
        )
    return pipe_table(heads, lines)


def complete(results_folder, key, measurements, table):
    """Takes the measurements that are not stored yet; writes them and the table of all.

    Args:
      key: the entry of the stored file that holds the results, by name.
      measurements: functions by name.
      table: returns Markdown for the results.
    """
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    from t2t_jax.environment import environment
    from t2t_jax.files import write, write_json

    results_folder.mkdir(parents=True, exist_ok=True)
    path = results_folder / f"{results_folder.name}.json"
    results = json.loads(path.read_text())[key] if path.exists() else {}
    for name, measure in measurements.items():
        if name not in results:
            print(name, file=sys.stderr, flush=True)
            results[name] = measure()
            versions = environment() | {"libtpu": version("libtpu")}
            write_json(path, {key: results, "environment": versions})
    write(path.with_suffix(".md"), table(results))
    print(table(results))


def main():
    from t2t_jax import config
    from t2t_jax.recipes import recipe

    measurements = {}
    for model in ("base", "big"):
        c = config.replace(recipe(model, "paper"), max_length=LENGTH)
        for mesh, shape in MESHES.items():
            for n in SLICES:
                measurements[f"{model}, {mesh}, {n}"] = partial(figures, c, shape, n)
    complete(RESULTS, "steps", measurements, table)


if __name__ == "__main__":
    main()
