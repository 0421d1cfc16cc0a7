"""Memory of a training step of base and big at the paper's batch, whole and accumulated in parts.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python -m experiments.tools.memory         half an hour on 2 CPU cores, no TPU

Writes experiments/results/memory; steps that are already there are not compiled again. Expected:
base takes 9.8 GiB whole, 6.0 in 2 parts and 4.0 in 4; big takes 14.6, 13.2 and 9.2 GiB. The TPU
compiler compiles each step for one v5e chip of 16 GiB, and fails if a step needs more. A step has
25,000 tokens a side in sentences of 64 subwords, in bf16 with float32 parameters.
"""

from functools import partial
from pathlib import Path

import numpy as np
from jax.sharding import Mesh

from experiments.tools.devices import described
from experiments.tools.programs import LENGTH, compile_step
from experiments.tools.scaling import V, complete
from t2t_jax import config
from t2t_jax.recipes import recipe
from t2t_jax.study.typeset import pipe_table
from t2t_jax.training.sharding import AXES

RESULTS = Path(__file__).parents[1] / "results" / "memory"
TOKENS, PARTS = 25_000, (1, 2, 4)


def bytes_of(c):
    """Returns the peak bytes of a step: arguments, results and temporaries."""
    mesh = Mesh(np.reshape(described("v5e"), (1,) * len(AXES)), AXES)
    rows = TOKENS // LENGTH // c.training.accumulate * c.training.accumulate
    return compile_step(c, V, "tpu", mesh, rows * LENGTH).memory


def table(results):
    """Returns Markdown, a row for each model."""
    heads, lines = ["", *(f"in {n} parts" if n > 1 else "whole" for n in PARTS)], []
    for model in dict.fromkeys(name.rsplit(", ", 1)[0] for name in results):
        lines.append([model, *(f"{results[f'{model}, {n}'] / 2**30:.1f} GiB" for n in PARTS)])
    return pipe_table(heads, lines)


def main():
    measurements = {}
    for model in ("base", "big"):
        for parts in PARTS:
            c = config.replace(recipe(model), max_length=LENGTH, accumulate=parts)
            measurements[f"{model}, {parts}"] = partial(bytes_of, c)
    complete(RESULTS / "memory.md", "bytes", measurements, table)


if __name__ == "__main__":
    main()
