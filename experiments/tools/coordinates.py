"""Coordinate check of muP: how much a few steps change activations, by width.

    launch/local.sh experiments/tools/coordinates.py        2 minutes on 2 CPU cores

Writes experiments/results/coordinates: the mean absolute change of activations after 4 steps of
Adam on one batch, at one learning rate, for d_model from 32 to 256, and the exponent of its growth
with d_model (Yang et al. 2022, appendix D.1). Expected: exponents of 0.35 to 1.4 with the standard
parametrization, and between -0.2 and 0.1 with parametrization=mup. Under muP, the change of the
logits falls slightly with the width: one part of it is constant, and another is as large as the
initial logits, which fall as d_model^-0.5. Four steps are too few to tell power=1 from power=0.5.
"""

from functools import partial
from pathlib import Path

import jax
import numpy as np

from t2t_jax import config, plotting
from t2t_jax.bench import keep
from t2t_jax.bench.lengths import power
from t2t_jax.environment import environment
from t2t_jax.models import build
from t2t_jax.study.typeset import pipe_table
from t2t_jax.terminal import say
from t2t_jax.training.sharding import make_mesh
from t2t_jax.training.step import hyper, initialise, make_step, shift

RESULTS = Path(__file__).parents[1] / "results" / "coordinates"
WIDTHS = 32, 64, 128, 256
STEPS, SEEDS, V = 4, 3, 64
ACTIVATIONS = "input", "encoder", "decoder", "logits"
MUP = dict(parametrization="mup", mup_width=32)
INVERSE = dict.fromkeys(
    ("encoder_attention", "decoder_attention", "cross_attention"), "scaled_dot_product:power=1"
)
CASES = {
    "standard": lambda d: dict(h=d // 16, d_k=16, d_v=16),
    "muP": lambda d: dict(h=d // 16, d_k=16, d_v=16) | MUP,
    "muP, h = 2, power=1": lambda d: dict(h=2, d_k=d // 2, d_v=d // 2) | MUP | INVERSE,
}


def model_config(d, **changes):
    """Returns the config of a small model of width d_model = d, with a constant learning rate."""
    small = dict(N=2, d_model=d, d_ff=4 * d, norm_placement="pre", max_length=16, batch_tokens=256)
    training = dict(peak_lr=2**-7, schedule="linear", warmup=1, steps=10_000, P_drop=0.0)
    return config.replace(config.Config(), **small | training | changes)


def activations(model, params, batch):
    """Returns the input, the last layers' residual streams and the logits of a batch, by name."""

    def run(module, source, target_in):
        return module.decode(module.encode(source), target_in)

    apply = partial(model.apply, {"params": params}, method=run, capture_intermediates=True)
    logits, kept = apply(batch["source"], shift(batch["target"]))
    last, kept = f"{model.c.N - 1}", kept["intermediates"]
    return {
        "input": kept["embedding"]["__call__"][0],
        "encoder": kept[f"encoder_{last}"]["__call__"][0],
        "decoder": kept[f"decoder_{last}"]["__call__"][0],
        "logits": logits,
    }


def measure(configs):
    """Returns the mean absolute change of each activation, by name, over configs of one shape."""
    model = build(configs[0], V)
    step = jax.jit(make_step(model, configs[0]))
    probe = jax.jit(lambda params, batch: activations(model, params, batch))
    moved: dict[str, list[float]] = {name: [] for name in ACTIVATIONS}
    for c in configs:
        state, h = initialise(model, c, make_mesh()), hyper(c)
        random = np.random.default_rng(c.training.seed)
        tokens = random.integers(4, V, (16, 12), dtype=np.int32)
        batch = {"source": tokens, "target": tokens}
        before = probe(state.params, batch)
        for _ in range(STEPS):
            state, _ = step(state, batch, h)
        after = probe(state.params, batch)
        for name, sizes in moved.items():
            sizes.append(float(abs(after[name] - before[name]).mean()))
    return {name: sum(sizes) / len(sizes) for name, sizes in moved.items()}


def check(case, widths=WIDTHS, seeds=SEEDS, **changes):
    """Returns the changes of each activation at some widths, and the exponents of their growth."""
    measured = []
    for d in widths:
        fields = CASES[case](d) | changes
        measured.append(measure([model_config(d, seed=seed, **fields) for seed in range(seeds)]))
        say(f"{case}, d_model={d}")
    sizes = {name: [x[name] for x in measured] for name in ACTIVATIONS}
    exponents = {name: power(zip(widths, x, strict=True)) for name, x in sizes.items()}
    return {"change": sizes, "exponent": exponents}


def table(results):
    """Returns Markdown, a row for each parametrization and activation."""
    heads = ["parametrization", "activation", *(f"d_model={d}" for d in WIDTHS), "exponent"]
    lines = [
        [
            case,
            name,
            *(f"{size:.3f}" for size in result["change"][name]),
            f"{result['exponent'][name]:.2f}",
        ]
        for case, result in results.items()
        for name in ACTIVATIONS
    ]
    return pipe_table(heads, lines)


def draw(results):
    """Plots the changes over the width, with a panel for each activation."""
    styles = plotting.styles(list(results))
    panels: list[plotting.Spec] = []
    x = plotting.Axis.over("width", "d_model", WIDTHS, log=True, values=WIDTHS)
    for name in ACTIVATIONS:
        values = [
            {**styles[case], "width": width, "change": change}
            for case, result in results.items()
            for width, change in zip(WIDTHS, result["change"][name], strict=True)
        ]
        title = None if panels else "mean |change|"
        y = plotting.Axis.over("change", title, (v["change"] for v in values), log=True)
        ends = [v for v in values if name == ACTIVATIONS[-1] and v["width"] == WIDTHS[-1]]
        panel = plotting.panel(x, y, (150, 150), plotting.LINES, ends)
        panels.append(panel | {"data": {"values": values}, "title": name})
    plotting.write(RESULTS / "coordinates", plotting.chart({"hconcat": panels}, list(results)))


def main():
    results = {case: check(case) for case in CASES}
    stored = {"widths": WIDTHS, "steps": STEPS, "seeds": SEEDS, "parametrizations": results}
    stored["environment"] = environment()
    keep(RESULTS / "coordinates.md", stored, table(results))
    draw(results)


if __name__ == "__main__":
    main()
