"""How small can Table 3 be and still tell what the paper's tells?

    launch/local.sh experiments/scale.py --text DIR --seeds 3 GRID ...   runs grids
    launch/local.sh experiments/scale.py                                 only makes table and figure

The paper's base has 65 M parameters and reads 135 M target tokens about 18 times: 2 tokens of text
for every parameter, with a warm-up of 4% of the steps. A grid is Table 3 in miniature. Grids of
real text vary the tokens for each parameter, by the number of training pairs, and the epochs; DIR
has train.en, train.de, dev.en and so on (the stored runs read English and German software
documentation and other prose, 285,042 pairs), or the files of Multi30k. The other grids are presets
on the built-in corpus, some with changes. A grid on real text of d_model 64 takes a core 1 to 20
minutes for each run.

Runs are stored in runs/scale, and a stopped grid continues there. What is finished is published in
a folder for each grid in experiments/results/scale, also of unfinished grids, from which a new
machine continues. The stored tables of presets are grids, too, and are not run again.

The agreement is Kendall's tau with the paper's values, and the share of the pairs of rows that the
paper separates which have its order. No regime was chosen by looking at groups A, B and E.
"""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.tools import grids
from t2t_jax import files, plotting
from t2t_jax.runs import published
from t2t_jax.runs.results import costs
from t2t_jax.runs.store import LIKELIHOOD, read_statistics
from t2t_jax.study.agreement import SEPARATED, agreements
from t2t_jax.study.declaration import find
from t2t_jax.study.requests import Request
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "scale"
STORE = Path("runs/scale")


class Regime(NamedTuple):
    """How a grid differs from Table 3 with the paper's own scale.

    Attributes:
      rows: names or groups of the rows that are run; empty for all.
      stored: of a grid that is not run here, its folder in experiments/results.
    """

    changes: Mapping[str, Any] = {}
    sweep: Mapping[str, tuple[float, ...]] = {}
    preset: str = "demo"
    rows: tuple[str, ...] = ()
    stored: str = ""


# Pairs in a batch, by corpus and vocabulary size. The peak of the learning rate is base's best
# of four for d_model 64 on about 22,400 pairs, with pre-norm and a linear schedule, and falls as
# d_model^-0.5: it is base's best of three for d_model 32. With post-norm and the paper's schedule,
# base is far worse at each of three peaks.
PAIRS_A_STEP = {
    ("text", 2300): 26.1, ("text", 4600): 29.3, ("text", 9200): 33.9, ("multi30k", 2300): 41.9
}  # fmt: skip
PEAK = 0.00531
TEXT = dict(
    max_length=128, batch_tokens=1024, N=3, norm_placement="pre", schedule="linear", beam=1,
    max_extra=144,  # learned positions for the longest sentence of dev
)  # fmt: skip
ALL_BUT_BIG = ("base", "A", "B", "C", "D", "E")  # big takes half of the time of a grid


def text(
    pairs: int, epochs: int, d_model: int = 64, h: int = 8, corpus: str = "text"
) -> dict[str, Regime]:
    """Returns a regime of real text, by its name; warm-up and vocabulary are in the paper's ratios.

    So are heads if h is 8; fewer are wider, and rows of A have as many of base's as the paper's.
    """
    vocabulary = round(72 * d_model, -2)
    steps = round(pairs * epochs / PAIRS_A_STEP[corpus, vocabulary])
    warmup = round(0.04 * steps)
    changes = dict(
        corpus=corpus, vocabulary=vocabulary, pairs=pairs, steps=steps, warmup=warmup,
        d_model=d_model, d_ff=4 * d_model, h=h, d_k=d_model // h, d_v=d_model // h,
        evaluate_every=steps, lr_scale=round(PEAK * (64 * warmup) ** 0.5, 3),
    )  # fmt: skip
    heads = f", {h} heads" if (d_model, h) == (64, 4) else ""
    name = f"{corpus}, d_model {d_model}{heads}, {pairs:,} pairs, {epochs} epochs"
    return {name: Regime(TEXT | changes, preset="paper", rows=ALL_BUT_BIG)}


NORMAL = dict(grade="normal", pairs=5000, steps=7680, warmup=1920, lr_scale=1.0, P_drop=0.1)
HALF = dict(pairs=2500, steps=3840)
SHORT_WARMUP = HALF | dict(P_drop=0.06, warmup=240)
GRIDS = {
    **text(1200, 18, 32, 4), **text(4800, 18, 32, 4), **text(12_000, 18, 32, 4),
    **text(12_000, 6, 32, 4),
    **text(5600, 6), **text(22_400, 6), **text(56_000, 6), **text(56_000, 18),
    **text(22_400, 6, h=4),
    **text(25_600, 6, 128), **text(102_400, 6, 128), **text(256_000, 6, 128),
    **text(29_000, 6, 32, 4, "multi30k"),
    "demo": Regime(stored="table3-demo"),
    "demo, quarter of the steps": Regime(dict(steps=320)),
    "demo, 4 heads": Regime(dict(h=4, d_k=16, d_v=16)),
    "demo, 4 heads, 6,000 pairs": Regime(dict(h=4, d_k=16, d_v=16, pairs=6000)),
    "hour": Regime(preset="hour", stored="table3-hour"),
    "hour, 4 heads": Regime(dict(h=4, d_k=32, d_v=32), preset="hour"),
    "hour, tuned": Regime({}, {"lr_scale": (0.25, 0.35, 0.5, 0.7)}, "hour"),
    "normal sentences": Regime(NORMAL, preset="hour"),
    "normal sentences, half": Regime(NORMAL | HALF | dict(warmup=960), preset="hour"),
    "normal sentences, half, short warm-up": Regime(
        NORMAL | SHORT_WARMUP | dict(lr_scale=0.5), preset="hour"
    ),
}  # fmt: skip
PRESETS = [RESULTS.parent / regime.stored for regime in GRIDS.values() if regime.stored]
BUILT_IN = "built-in corpus"
PARTS = {"all": "", "C, D": "CD", "A, B, E": "ABE"}  # groups; base belongs to each


def kind(name):
    """Returns the corpus of a grid, real text with the epochs, as the figure names it."""
    known = {"text": "text", "multi30k": "Multi30k", None: None}
    corpus = known[GRIDS[name].changes.get("corpus")]
    return f"{corpus}, {name.rpartition(', ')[2]}" if corpus else BUILT_IN


def request(name, directory=None):
    """Returns the request for a grid; its paths lie in a directory, if it reads text."""
    changes, sweep, preset, rows, _ = GRIDS[name]
    paths: dict[str | None, dict[str, str]] = {
        "text": {split: f"{directory}/{split}" for split in ("train", "dev", "test")},
        "multi30k": {"directory": str(directory)},
    }
    if directory:
        changes = {**changes, **paths.get(changes.get("corpus"), {})}
    return Request("table3", preset, changes, sweep, rows)


def measure(name, home):
    """Returns agreement and cost of a grid, None if a row is missing; and its runs."""
    made, lines, runs = grids.compared(request(name), home)
    untried = (line.choice.missing for line in lines)
    if not all(line.score for line in lines) or any(untried):
        return None, runs
    of_run = {name: costs(x["result.json"], x["metrics.jsonl"]) for name, x in runs.items()}
    spent = of_run.values()
    trials = {path.name for line in lines for path in line.choice.directories}
    flops = [
        statistics.mean(of_run[x.directory.name]["flops"] for x in line.runs) for line in lines
    ]
    flops += [of_run[name]["flops"] for name in trials]
    parts = "training_seconds", "overhead_seconds", "scoring_seconds"
    seeds = [len(line.runs) for line in lines]
    return {
        "rows": len(lines),
        "seeds": [min(seeds), max(seeds)],
        "flops": sum(x["flops"] for x in spent),
        "flops_of_a_seed": sum(flops),
        "core_hours": sum(x[part] for x in spent for part in parts) / 3600,
        "tokens_per_parameter": tokens(made, lines[0].runs[0]),
        "agreement": agreement_of(made, lines),
        "wrong": wrong(made, lines),
    }, runs


def tokens(made, base):
    """Returns target tokens of text for each parameter of base, with sentences as long as dev's."""
    statistics = read_statistics(base.directory, base.result, LIKELIHOOD) or []
    lengths = [n for _, n in statistics]
    return made.data.pairs * sum(lengths) / len(lengths) / base.result["parameters"]


def agreement_of(made, lines):
    """Returns tau, its interval and the pairs of rows in the paper's order, by part and metric."""

    def of_part(groups):
        chosen = [x for x in lines if not groups or x.row.group in ("base", *groups)]
        return {
            x.metric: dict(tau=x.tau, interval=[x.low, x.high], ordered=x.ordered, pairs=x.pairs)
            for x in agreements(made, chosen)
        }

    return {part: of_part(groups) for part, groups in PARTS.items()}


def wrong(made, lines):
    """Returns for each row, by metric, the other rows on whose wrong side it is.

    Pairs of rows count that the paper separates.
    """
    found = {}
    for x in agreements(made, lines):
        far = SEPARATED[x.metric] - 1e-6
        found[x.metric] = {
            p.line.row.name: [
                q.line.row.name
                for q in x.points
                if abs(p.paper - q.paper) > far and (p.paper - q.paper) * (p.ours - q.ours) <= 0
            ]
            for p in x.points
        }
    return found


def attainable(metric, groups):
    """Returns the expected tau of a table that orders as the paper the pairs that it separates.

    The order of the other pairs is random. The rows are of these groups, or all if there are none.
    """
    rows = [x for x in find("table3").rows if not groups or x.group in ("base", *groups)]
    values = np.array([row.paper[metric] for row in rows])
    gaps = np.abs(values[:, None] - values)[np.triu_indices(len(values), k=1)].round(6)
    return (gaps >= SEPARATED[metric]).sum() / np.sqrt(len(gaps) * (gaps > 0).sum())


def table(results):
    """Returns Markdown: the cost and the agreement of every grid, and what they mean."""
    metrics = [(metric, part) for metric in ("PPL", "BLEU") for part in PARTS]
    best = [f"{attainable(metric, PARTS[part]):.2f}" for metric, part in metrics]
    heads = ["grid", "rows", "seeds", "core-hours", "FLOPs", "tokens per parameter"]
    heads += [f"tau of {metric}, {part}" for metric, part in metrics]
    heads += ["pairs in order, PPL", "pairs in order, BLEU"]
    notes = [
        "Tokens per parameter: target tokens of the training text for each parameter of base (the "
        "paper: 2).",
        "A table with the paper's order in all pairs of rows that the paper separates (by 0.1 PPL "
        f"or 0.3 BLEU), and a random order in the others, has an expected tau of {best[0]} (PPL; "
        f"C, D: {best[1]}; A, B, E: {best[2]}) and {best[3]} (BLEU; C, D: {best[4]}; A, B, E: "
        f"{best[5]}).",
        "In parentheses: the 95% interval over rows, seeds and sentences, where there are several "
        "seeds. FLOPs and core-hours cover all seeds; core-hours depend on what else the machine "
        "did.",
    ]

    def line(name, x):
        low, high = x["seeds"]
        cells = [name, f"{x['rows']}", f"{low}" if low == high else f"{low} to {high}"]
        cells += [f"{x['core_hours']:.2f}", f"{x['flops']:.1e}"]
        cells += [f"{x['tokens_per_parameter']:.2g}"]
        for metric, part in metrics:
            if found := x["agreement"][part].get(metric):  # none if all rows are equal
                low, high = found["interval"]
                interval = "" if low is None else f" ({low:.2f} to {high:.2f})"
            cells.append(f"{found['tau']:.2f}{interval}" if found else "")
        both = (x["agreement"]["all"].get(metric) for metric in ("PPL", "BLEU"))
        return [*cells, *(f"{one['ordered']} of {one['pairs']}" if one else "" for one in both)]

    lines = [line(name, x) for name, x in results.items()]
    below = "".join(f"- {note}\n" for note in notes)
    return f"{pipe_table(heads, lines)}\n{below}\n{rows_table(results)}"


def rows_table(results):
    """Returns Markdown: for each row and grid, the number of rows on whose wrong side it is."""
    rows = dict.fromkeys(row for x in results.values() for row in x["wrong"]["PPL"])
    cells = [
        [row, *(f"{len(x['wrong']['PPL'][row])}" if row in x["wrong"]["PPL"] else ""
                for x in results.values())]
        for row in rows
    ]  # fmt: skip
    title = (
        "Rows of Table 3 by PPL: how many others, which the paper separates, are on the wrong side"
    )
    return f"{title}:\n\n{pipe_table(['row', *results], cells)}"


def draw(results, folder):
    """Plots tau of PPL over the tokens for each parameter and over the FLOPs, part by part."""
    kinds = [*dict.fromkeys(map(kind, results))]
    styles = plotting.styles(kinds)
    values = [
        styles[kind(name)]
        | {"grid": name, "part": part, "tau": found["tau"]}
        | dict(zip(("low", "high"), found["interval"], strict=True))
        | {"tokens": x["tokens_per_parameter"], "flops": x["flops_of_a_seed"]}
        for name, x in results.items()
        for part in PARTS
        if (found := x["agreement"][part].get("PPL"))
    ]
    ends = [v[n] for v in values for n in ("tau", "low", "high") if v[n] is not None]
    titles = {"tokens": "target tokens per parameter", "flops": "FLOPs of a seed of all rows"}
    rows = []
    for field, title in titles.items():
        x = plotting.Axis.over(field, title, [v[field] for v in values], log=True)
        row = []
        for part in PARTS:
            y = plotting.Axis.over("tau", f"tau of PPL, {part}", ends)
            layers = [plotting.interval(y), ({"type": "point", "size": 40}, plotting.SHAPE)]
            of_part = [v for v in values if v["part"] == part]
            named = {v["row"]: v for v in of_part}  # of each kind the last
            labels = named.values() if part == [*PARTS][-1] else ()
            panel = plotting.panel(x, y, (180, 180), layers, labels)
            row.append(panel | {"data": {"values": of_part}})
        rows.append({"hconcat": row})
    plotting.write(folder / "scale", plotting.chart({"vconcat": rows}, kinds))


def without_curves(run):
    """Returns the files of a run with the times of its steps alone in place of its curves."""
    times = [
        (x["step"], x["seconds_per_step"]) for x in run["metrics.jsonl"] if "seconds_per_step" in x
    ]
    return run | {"metrics.jsonl": [{"step": n, "seconds_per_step": round(x, 6)} for n, x in times]}


def collect(folder):
    """Publishes all finished runs in a folder, with the table, which it returns, and the figure.

    Every grid has a folder of its own. Left out are runs that the folder of a preset or of an
    earlier grid has, and curves but for the times of steps.
    """
    stored = {path.name for preset in PRESETS for path in published.directories(preset)}
    results: dict[str, dict[str, Any]] = {}
    for name, regime in GRIDS.items():
        home = RESULTS.parent / regime.stored if regime.stored else STORE
        found, of_grid = measure(name, home)
        results |= {name: found} if found else {}
        if runs := {key: without_curves(x) for key, x in of_grid.items() if key not in stored}:
            home = folder / re.sub(r"\W+", "-", name)
            files.make_directory(home)
            published.write(home, runs)
            stored |= {*runs}
    files.write_json(folder / "agreement.json", results)
    files.write(folder / "table.md", table(results))
    draw(results, folder)
    return table(results)


def main():
    runnable = [name for name, regime in GRIDS.items() if not regime.stored]
    names = {name: kind(name) != BUILT_IN for name in runnable}
    title = "folder of the files of text or Multi30k"
    arguments = grids.parse(__doc__.split("\n", 1)[0], names, "--text", title)
    requests = [request(name, arguments.folder) for name in arguments.grids]
    grids.run(requests, [*RESULTS.glob("*/"), *PRESETS], STORE, arguments.seeds)
    print(collect(RESULTS))


if __name__ == "__main__":
    main()
