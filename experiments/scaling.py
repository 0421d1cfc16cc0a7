"""Weak scaling: what a step of base and big moves between 8 to 256 TPU chips, and where that stops.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python experiments/scaling.py        an hour and a half on 2 CPU cores, no TPU

Writes experiments/results/scaling, and goes on with what it has not yet. Every step is compiled by
the TPU's compiler for a v5e slice, with 4,096 tokens a side for each chip, in bf16 with float32
parameters; its collective operations and its memory are read from the program. The rest is on
paper, from Google's figures for a chip: 197 TFLOP/s, of which 40% are reached, 90 GB/s on a ring of
the torus, 16 GiB. The efficiency is the share of a step spent computing, at worst (nothing that is
sent is hidden behind it) and at best (all is).
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
TOKENS, LENGTH, V = 4096, 64, 37_000  # a chip's part of a batch, a side
FLOPS, RING = 0.4 * 197e12, 90e9


def compiled_on(c, mesh, tokens):
    """The step of a config on a mesh, from shapes alone: `Program`, and its collectives."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from t2t_jax.bench.collectives import moves
    from t2t_jax.models import build
    from t2t_jax.training import sharding
    from t2t_jax.training.step import abstract, hyper, make_step
    from t2t_jax.training.throughput import compile_for

    def lay(x, *spec):
        layout = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout)

    model = build(c, V).clone(dtype=jnp.bfloat16)
    state = abstract(model, c, mesh)
    h = jax.tree.map(lay, jax.eval_shape(lambda: hyper(c)))
    side = lay(jax.ShapeDtypeStruct((tokens // LENGTH, LENGTH), jnp.int32), sharding.ROWS)
    batch = {"source": side, "target": side}
    step = make_step(model, c)
    with sharding.use_mesh(mesh):
        program = compile_for(step, 1, state, batch, h)
    return program, list(moves(program.run, mesh.size))


def figures(c, shape, n):
    """What the step of a config on a slice moves, holds and takes."""
    from jax.experimental import mesh_utils, topologies
    from jax.sharding import Mesh

    from t2t_jax.training.flops import step_flops
    from t2t_jax.training.sharding import AXES

    slice = topologies.get_topology_desc(platform="tpu", topology_name=f"v5e:{SLICES[n]}")
    chips = mesh_utils.create_device_mesh(
        shape(n), list(slice.devices), allow_split_physical_axes=True
    )
    program, sent = compiled_on(c, Mesh(chips, AXES), TOKENS * n)
    pairs = TOKENS * n // LENGTH
    computing = step_flops(c.model, V, pairs, LENGTH, LENGTH) / n / FLOPS
    moving = sum(move.sent for move in sent) / RING
    return {
        "sent": {
            k: sum(m.sent for m in sent if m.kind == k) for k in sorted({m.kind for m in sent})
        },
        "memory": program.memory,
        "computing": computing,
        "moving": moving,
        "worst": computing / (computing + moving),
        "best": computing / max(computing, moving),
    }


def table(found):
    """Markdown, a row a model, mesh and number of chips."""
    heads = ["model, mesh", "chips", "MB sent a step", "of these reduced", "computing (ms)",
             "moving (ms)", "efficiency at worst", "at best", "GiB a chip"]  # fmt: skip
    lines = []
    for name, x in found.items():
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


def go_on(results, what, wanted, table):
    """Keeps what each of `wanted`, functions by name, finds and is not kept yet, and the table."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    from t2t_jax.environment import environment
    from t2t_jax.files import write, write_json

    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{results.name}.json"
    found = json.loads(path.read_text())[what] if path.exists() else {}
    for name, find in wanted.items():
        if name not in found:
            print(name, file=sys.stderr, flush=True)
            found[name] = find()
            made = environment() | {"libtpu": version("libtpu")}
            write_json(path, {what: found, "environment": made})
    write(results / f"{results.name}.md", table(found))
    print(table(found))


def main():
    from t2t_jax import config
    from t2t_jax.recipes import recipe

    wanted = {}
    for model in ("base", "big"):
        c = config.replace(recipe(model, "paper"), max_length=LENGTH)
        for mesh, shape in MESHES.items():
            for n in SLICES:
                wanted[f"{model}, {mesh}, {n}"] = partial(figures, c, shape, n)
    go_on(RESULTS, "steps", wanted, table)


if __name__ == "__main__":
    main()
