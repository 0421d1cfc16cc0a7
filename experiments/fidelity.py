"""How small can Table 3 be and still agree with the paper's, and must each row be tuned?

    launch/local.sh experiments/fidelity.py --seeds 3 GRID ...   runs grids: 4 to 90 minutes for a
                                                                 seed of a grid on 2 CPU cores
    launch/local.sh experiments/fidelity.py                      only makes the table and figure

A grid is Table 3 with a preset and a few changes: steps, training pairs, widths, difficulty, tuning
of each row, muP. Runs are stored in runs/fidelity, and a stopped grid continues there.
Finished grids are published in experiments/results/fidelity, from which a new machine continues.
The stored tables of presets are grids, too, and are not run again.

The agreement is Kendall's tau with the paper's values. So that no grid is selected by the values on
which it is judged, the grid that agrees best on groups C and D is judged on A, B and E, and vice
versa.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "fidelity"
STORE = Path("runs/fidelity")


class Regime(NamedTuple):
    """How a grid differs from Table 3 with the paper's own scale.

    Attributes:
      stored: of a grid that is not run here, its folder in experiments/results.
    """

    changes: Mapping[str, Any] = {}
    sweep: Mapping[str, tuple[float, ...]] = {}
    preset: str = "demo"
    stored: str = ""


TUNED = {"lr_scale": (0.25, 0.5, 1.0)}
HALF = dict(pairs=2500, steps=3840)
SHORT_WARMUP = HALF | dict(P_drop=0.06, warmup=240)
MUP = dict(parametrization="mup")
GRIDS = {
    "demo": Regime(stored="table3-demo"),
    "hour": Regime(preset="hour", stored="table3-hour"),
    "hour, tuned": Regime({}, {"lr_scale": (0.25, 0.35, 0.5, 0.7)}, "hour", "table3-hour"),
    "night": Regime(preset="night", stored="table3-night"),
    "night, half": Regime(HALF | dict(warmup=960), preset="night"),
    "night, half, short warm-up": Regime(SHORT_WARMUP | dict(lr_scale=0.5), preset="night"),
    "night, half, short warm-up, tuned": Regime(SHORT_WARMUP, {"lr_scale": (0.25, 0.5)}, "night"),
    "quarter of the steps": Regime(dict(steps=320)),
    "half of the steps": Regime(dict(steps=640)),
    "twice the steps": Regime(dict(steps=2560)),
    "half of the pairs": Regime(dict(pairs=1000)),
    "twice the pairs": Regime(dict(pairs=4000)),
    "all pairs": Regime(dict(pairs=0)),
    "half of the width": Regime(dict(d_model=32, d_ff=128, d_k=4, d_v=4)),
    "twice the width": Regime(dict(d_model=128, d_ff=512, d_k=16, d_v=16)),
    "normal grade": Regime(dict(grade="normal")),
    "tuned": Regime({}, TUNED),
    "muP": Regime(MUP),
    "tuned muP": Regime(MUP, TUNED),
}
PARTS = {"all": "", "C, D": "CD", "A, B, E": "ABE"}  # groups; base belongs to each
THRESHOLDS = 0.5, 0.6, 0.7, 0.8


def words(name):
    """Returns the arguments that a command of the study needs for a grid."""
    changes, sweep, preset, _ = GRIDS[name]
    fields = [word for n, x in changes.items() for word in (f"--{n}", str(x))]
    swept = [f"--sweep={n}={','.join(map(str, x))}" for n, x in sweep.items()]
    return ["table3", "--preset", preset, *fields, *swept, "--store", str(STORE)]


def run(name, seeds):
    """Runs a grid, or continues it."""
    command = [sys.executable, "-m", "t2t_jax.cli", "run", *words(name), "--seeds", str(seeds)]
    subprocess.run(command, check=True)


def grid(name, home):
    from t2t_jax.study.declaration import find
    from t2t_jax.study.requests import Request

    changes, sweep, preset, _ = GRIDS[name]
    return Request("table3", preset, changes, sweep).grid(find("table3"), home)


def measure(name, home):
    """Returns agreement and cost of a grid, and its runs; None if a row or a trial is missing."""
    from t2t_jax.runs.results import costs
    from t2t_jax.study import collecting, comparison
    from t2t_jax.study.publish import runs_of

    made = grid(name, home)
    lines = comparison.compare_with_base(made, collecting.collect(made, mix=True))
    untried = (line.choice and line.choice.missing for line in lines)
    if not all(line.score for line in lines) or any(untried):
        return None
    runs = runs_of(made, lines, translations=False)
    spent = [costs(run["result.json"], run["metrics.jsonl"]) for run in runs.values()]
    parts = "training_seconds", "overhead_seconds", "scoring_seconds"
    seconds = sum(x[part] for x in spent for part in parts)
    seeds = [len(line.runs) for line in lines]
    measured = {
        "seeds": [min(seeds), max(seeds)],
        "runs": len(runs),
        "flops": sum(x["flops"] for x in spent),
        "core_hours": seconds / 3600,
        "agreement": agreement_of(made, lines),
    }
    if made.sweep:
        measured["untuned"] = agreement_of(made, [line.untuned for line in lines])
    return measured, runs


def agreement_of(made, lines):
    """Returns tau, its interval and the rows with the paper's sign, by part and metric."""
    from t2t_jax.study.agreement import agreements

    def of_part(groups):
        chosen = [x for x in lines if not groups or x.row.group in ("base", *groups)]
        return {
            x.metric: {
                "tau": x.tau,
                "interval": [x.low, x.high],
                "same_sign": len(x.same_sign),
                "separated": len(x.separated),
            }
            for x in agreements(made, chosen)
        }

    return {part: of_part(groups) for part, groups in PARTS.items()}


def tau(measured, part, metric="PPL"):
    return measured["agreement"][part][metric]["tau"]


def attainable(metric):
    """Returns the expected tau of a table that orders as the paper the pairs that it separates.

    The order of the other pairs is random.
    """
    import numpy as np

    from t2t_jax.study.agreement import SEPARATED
    from t2t_jax.study.declaration import find

    values = np.array([row.paper[metric] for row in find("table3").rows])
    gaps = np.abs(values[:, None] - values)[np.triu_indices(len(values), k=1)].round(6)
    return (gaps >= SEPARATED[metric]).sum() / np.sqrt(len(gaps) * (gaps > 0).sum())


def table(results):
    """Returns Markdown: agreement and cost of every grid, the cheapest grids, held-out groups."""
    heads = ["grid", "changes", "seeds", "core-hours", "FLOPs"]
    heads += [f"tau of {metric}, {part}" for metric in ("PPL", "BLEU") for part in PARTS]
    heads += ["signs, PPL", "signs, BLEU"]
    lines = [[name, *_cells(name, x)] for name, x in results.items()]
    cheapest = [
        [f"{at}", *_cheapest(results, at, "PPL"), *_cheapest(results, at, "BLEU")]
        for at in THRESHOLDS
    ]
    notes = [
        _held_out(results, "C, D", "A, B, E"),
        _held_out(results, "A, B, E", "C, D"),
        "A table with the paper's order in all pairs of rows that the paper separates (by 0.1 PPL "
        "or 0.3 BLEU), and a random order in the others, has an expected tau of "
        f"{attainable('PPL'):.2f} (PPL) and {attainable('BLEU'):.2f} (BLEU).",
        "Core-hours depend on what else the machine did: compare grids by their FLOPs.",
        "In parentheses: the 95% interval over sentences, and over seeds where there are several. "
        "FLOPs and core-hours cover all seeds. Signs: rows that move in the paper's direction from "
        "base, of the rows that the paper (0.1 PPL, 0.3 BLEU) and, with several seeds, the grid "
        "with significance separate from base.",
    ]
    heads_of_cheapest = ["tau at least", "PPL: cheapest grid", "FLOPs"]
    heads_of_cheapest += ["BLEU: cheapest grid", "FLOPs"]
    return "\n".join(
        [
            pipe_table(heads, lines),
            pipe_table(heads_of_cheapest, cheapest),
            "".join(f"- {note}\n" for note in notes),
        ]
    )


def _cells(name, x):
    regime = GRIDS[name]
    shown = [f"{n}={value}" for n, value in regime.changes.items()]
    shown += [f"{n} in {', '.join(map(str, values))}" for n, values in regime.sweep.items()]
    low, high = x["seeds"]
    cells = ["; ".join(shown), f"{low}" if low == high else f"{low} to {high}"]
    cells += [f"{x['core_hours']:.2f}", f"{x['flops']:.1e}"]
    of = x["agreement"]
    for metric in ("PPL", "BLEU"):
        for part in PARTS:
            value, (low, high) = of[part][metric]["tau"], of[part][metric]["interval"]
            cells.append(
                f"{value:.2f}" + (f" ({low:.2f} to {high:.2f})" if low is not None else "")
            )
    for metric in ("PPL", "BLEU"):
        signs = of["all"][metric]
        cells.append(f"{signs['same_sign']} of {signs['separated']}")
    return cells


def _cheapest(results, at, metric):
    reached = [(x["flops"], name) for name, x in results.items() if tau(x, "all", metric) >= at]
    if not reached:
        return "none", ""
    name = min(reached)[1]
    return name, f"{results[name]['flops']:.1e}"


def _held_out(results, chosen_by, reported):
    best = max(results, key=lambda name: tau(results[name], chosen_by))
    return (
        f"By groups {chosen_by} (tau of PPL {tau(results[best], chosen_by):.2f}) the grid "
        f"`{best}` agrees best; on {reported}, which did not choose it, its tau is "
        f"{tau(results[best], reported):.2f}."
    )


def draw(results):
    """Plots tau of all rows over the FLOPs of the whole grid, with a panel for each metric."""
    from t2t_jax import plotting

    styles, panels = plotting.styles(list(results)), []
    for metric in ("PPL", "BLEU"):
        found = {name: grid["agreement"]["all"][metric] for name, grid in results.items()}
        values = [
            {**styles[name], "flops": results[name]["flops"], "tau": value["tau"],
             "low": value["interval"][0], "high": value["interval"][1]}
            for name, value in found.items()
        ]  # fmt: skip
        ends = [v[n] for v in values for n in ("tau", "low", "high") if v[n] is not None]
        flops = (v["flops"] for v in values)
        x = plotting.Axis.over("flops", "FLOPs of the whole grid", flops, log=True)
        y = plotting.Axis.over("tau", "Kendall's tau with the paper's", ends)
        layers = [plotting.interval(y), ({"type": "point", "size": 40}, plotting.SHAPE)]
        panel = plotting.panel(x, y, (240, 240), layers, values)
        panels.append(panel | {"data": {"values": values}, "title": metric})
    plotting.write(RESULTS / "fidelity", plotting.chart({"hconcat": panels}, list(results)))


def home_of(name):
    """Returns the folder of a grid's runs."""
    return RESULTS.parent / GRIDS[name].stored if GRIDS[name].stored else STORE


def main():
    names = [name for name, regime in GRIDS.items() if not regime.stored]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("grids", nargs="*", metavar="GRID", help=f"to run: {', '.join(names)}")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row [1]")
    arguments = parser.parse_args()
    from t2t_jax import files
    from t2t_jax.runs import published

    if unknown := [name for name in arguments.grids if name not in names]:
        parser.error(f"there is no grid {unknown[0]!r} to run: choose from {', '.join(names)}.")
    for folder in (RESULTS, home_of("demo")):  # tuned grids have runs of demo
        if (folder / published.NAME).exists():
            published.unpack(folder, STORE)
    for name in arguments.grids:
        run(name, arguments.seeds)
    found = {name: measure(name, home_of(name)) for name in GRIDS}
    results = {name: x[0] for name, x in found.items() if x}
    RESULTS.mkdir(parents=True, exist_ok=True)
    runs = {key: run for name in names if found.get(name) for key, run in found[name][1].items()}
    if runs:
        published.write(RESULTS, runs)
    files.write_json(RESULTS / "agreement.json", results)
    files.write(RESULTS / "table.md", table(results))
    draw(results)
    print(table(results))


if __name__ == "__main__":
    main()
