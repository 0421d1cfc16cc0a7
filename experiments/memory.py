"""Memory: what a step of base and big holds at the paper's batch, whole and taken in parts.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python experiments/memory.py         half an hour on 2 CPU cores, no TPU

Writes experiments/results/memory, and goes on with what it has not yet. Every step is compiled by
the TPU's compiler for one v5e chip, with 25,000 tokens a side in sentences of 64, in bf16 with
float32 parameters; a program that its 16 GiB do not hold is refused by the compiler, which says
what it would take. `experiments/gpu.py memory` measures the same on a GPU.
"""

import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "memory"
TOKENS, LENGTH, PARTS = 25_000, 64, (1, 2, 4)
GIB = 2**30


def bytes_of(c):
    """Of the step's arguments, results and temporaries at their largest."""
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh
    from scaling import compiled_on

    from t2t_jax.training.sharding import AXES

    chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    rows = TOKENS // LENGTH // c.training.accumulate * c.training.accumulate
    try:
        program, _ = compiled_on(
            c, Mesh(np.reshape(chips[:1], (1,) * len(AXES)), AXES), rows * LENGTH
        )
    except Exception as error:
        if used := re.search(r"Used ([\d.]+)([MG]) of", str(error)):
            return float(used[1]) * {"M": 2**20, "G": GIB}[used[2]]
        raise
    return program.memory


def table(found):
    """Markdown, a row a model."""
    lines = [["", *(f"in {n} parts" if n > 1 else "whole" for n in PARTS)]]
    lines.append(["---"] * len(lines[0]))
    for model in dict.fromkeys(name.rsplit(", ", 1)[0] for name in found):
        lines.append([model, *(f"{found[f'{model}, {n}'] / GIB:.1f} GiB" for n in PARTS)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main():
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    from t2t_jax import config
    from t2t_jax.recipes import recipe
    from t2t_jax.study.store import environment, write, write_json

    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "memory.json"
    found = json.loads(path.read_text())["bytes"] if path.exists() else {}
    for model in ("base", "big"):
        for parts in PARTS:
            name = f"{model}, {parts}"
            if name not in found:
                print(name, file=sys.stderr, flush=True)
                c = config.replace(recipe(model, "paper"), max_length=LENGTH, accumulate=parts)
                found[name] = bytes_of(c)
                made = environment() | {"libtpu": version("libtpu")}
                write_json(path, {"bytes": found, "environment": made})
    write(RESULTS / "memory.md", table(found))
    print(table(found))


if __name__ == "__main__":
    main()
