"""Weak scaling from 8 to 256 TPU chips: the communication of a step, and its efficiency.

    python3 -m venv tpu && tpu/bin/pip install -e .[tpu]
    tpu/bin/python -m experiments.tools.scaling        an hour and a half on 2 CPU cores, no TPU

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
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jax.experimental import mesh_utils
from jax.sharding import Mesh

from experiments.tools.collectives import moves
from experiments.tools.devices import described, without_devices
from experiments.tools.programs import LENGTH, compile_step
from t2t_jax import config
from t2t_jax.bench import keep
from t2t_jax.config import Config
from t2t_jax.environment import environment
from t2t_jax.models.flops import step_flops
from t2t_jax.recipes import recipe
from t2t_jax.study.typeset import pipe_table
from t2t_jax.terminal import say
from t2t_jax.training.sharding import AXES

RESULTS = Path(__file__).parents[1] / "results" / "scaling"
CHIPS = 8, 16, 64, 256
TENSOR = 8
MESHES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "data": lambda n: (1, n, 1, 1),
    "fsdp": lambda n: (1, 1, n, 1),
    f"data, tensor={TENSOR}": lambda n: (1, n // TENSOR, 1, TENSOR),
}
TOKENS, V = 4096, 37_000  # tokens of a batch on each chip, a side
FLOPS, RING = 0.4 * 197e12, 90e9


def figures(c: Config, shape: Callable[[int], tuple[int, ...]], n: int) -> dict[str, Any]:
    """Returns what the step of a config on n chips sends, how much memory and time it takes."""
    chips = mesh_utils.create_device_mesh(
        shape(n), described("v5e", n), allow_split_physical_axes=True
    )
    program = compile_step(c, V, "tpu", Mesh(chips, AXES), TOKENS * n)
    collectives = list(moves(program.run, n))
    pairs = TOKENS * n // LENGTH
    computing = step_flops(c.model, V, pairs, LENGTH, LENGTH) / n / FLOPS
    moving = sum(move.sent for move in collectives) / RING
    sent = dict.fromkeys(sorted({move.kind for move in collectives}), 0.0)
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


def table(results: Mapping[str, Any]) -> str:
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


def complete(
    path: Path,
    key: str,
    measurements: Mapping[str, Callable[[], Any]],
    table: Callable[[dict[str, Any]], str],
) -> None:
    """Takes the measurements that are not stored yet; writes them and the table of all.

    Args:
      path: of the table, as Markdown; the results are beside it as JSON.
      key: the entry of the JSON that holds the results, by name.
      measurements: functions by name.
      table: returns Markdown for the results.
    """
    without_devices()
    stored = path.with_suffix(".json")
    results = json.loads(stored.read_text())[key] if stored.exists() else {}
    for name, measure in measurements.items():
        if name not in results:
            say(name)
            results[name] = measure()
            versions = environment() | {"libtpu": version("libtpu")}
            keep(path, {key: results, "environment": versions}, table(results))


def main() -> None:
    measurements = {}
    for model in ("base", "big"):
        c = config.replace(recipe(model), max_length=LENGTH)
        for mesh, shape in MESHES.items():
            for n in CHIPS:
                measurements[f"{model}, {mesh}, {n}"] = partial(figures, c, shape, n)
    complete(RESULTS / "scaling.md", "steps", measurements, table)


if __name__ == "__main__":
    main()
