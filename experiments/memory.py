"""Memory: what a step of base and big holds at the paper's batch, whole and taken in parts.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python experiments/memory.py         half an hour on 2 CPU cores, no TPU

Writes experiments/results/memory, and goes on with what it has not yet. Every step is compiled by
the TPU's compiler for one v5e chip of 16 GiB, which refuses what that does not hold, with some
25,000 tokens a side in sentences of 64, in bf16 with float32 parameters. `experiments/gpu.py
memory` measures the same on a GPU.
"""

from functools import partial
from pathlib import Path

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "memory"
TOKENS, LENGTH, PARTS = 25_000, 64, (1, 2, 4)


def bytes_of(c):
    """Of the step's arguments, results and temporaries at their largest."""
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh
    from scaling import compiled_on

    from t2t_jax.training.sharding import AXES

    chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    rows = TOKENS // LENGTH // c.training.accumulate * c.training.accumulate
    one = Mesh(np.reshape(chips[:1], (1,) * len(AXES)), AXES)
    program, _ = compiled_on(c, one, rows * LENGTH)
    return program.memory


def table(found):
    """Markdown, a row a model."""
    heads, lines = ["", *(f"in {n} parts" if n > 1 else "whole" for n in PARTS)], []
    for model in dict.fromkeys(name.rsplit(", ", 1)[0] for name in found):
        lines.append([model, *(f"{found[f'{model}, {n}'] / 2**30:.1f} GiB" for n in PARTS)])
    return pipe_table(heads, lines)


def main():
    from scaling import go_on

    from t2t_jax import config
    from t2t_jax.recipes import recipe

    wanted = {}
    for model in ("base", "big"):
        for parts in PARTS:
            c = config.replace(recipe(model, "paper"), max_length=LENGTH, accumulate=parts)
            wanted[f"{model}, {parts}"] = partial(bytes_of, c)
    go_on(RESULTS, "bytes", wanted, table)


if __name__ == "__main__":
    main()
