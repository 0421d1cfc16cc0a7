"""Multi30k EN-DE, test2016: two quick recipes, and Transformer-Tiny as Wu et al. (2021) publish it.

    launch/local.sh train multi30k_quick --directory DIR    10 minutes on 2 cores
    launch/local.sh train multi30k_hour --directory DIR     under an hour
    launch/local.sh train multi30k_tiny --directory DIR     hours; published: 41.0, tokenised

Tiny differs from the published one in three ways: it is trained on raw, cased text rather than on
lowercased and tokenised text, its length penalty of 1 is GNMT's, ((5 + n) / 6), rather than n, and
its 8K tokens a batch are 4,096 a side.

DIR holds train.en.gz, train.de.gz, val.* and test_2016_flickr.*; without it they are downloaded.

    launch/local.sh experiments/multi30k.py runs/multi30k_*

keeps config, metrics and result of finished runs in experiments/results/multi30k and draws the
table and the curves from what is kept there.
"""

import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from t2t_jax.config import PATHS
from t2t_jax.evaluation import bleu
from t2t_jax.report import style
from t2t_jax.study.typeset import pipe_table
from t2t_jax.training.progress import duration, read_metrics

RESULTS = Path(__file__).parent / "results" / "multi30k"
KEPT = "data.json", "metrics.jsonl", "result.json", "test.de"
SCORES = {
    bleu.CASED: "BLEU 13a",
    bleu.LOWERCASED: "13a lowercased",
    bleu.MOSES: "tokenised lowercased",
}


def keep(runs: list[Path]) -> None:
    """Copies what a table is made of out of finished runs."""
    for run in runs:
        if not (run / "result.json").exists():
            print(f"{run} is not finished and is left out", file=sys.stderr)
            continue
        (RESULTS / run.name).mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copy(run / name, RESULTS / run.name / name)
        config = json.loads((run / "config.json").read_text()) | dict.fromkeys(PATHS, "")
        (RESULTS / run.name / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def step_seconds(records: list[dict[str, Any]]) -> float:
    """Median time of a step, which a run that stood still for a while has, too."""
    return statistics.median(r["seconds_per_step"] for r in records if "seconds_per_step" in r)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown, a row a run."""
    heads = ["run", "parameters", "steps", "in steps", "in all", "dev PPL", *SCORES.values()]
    signatures = {
        (label, r["scores"]["test"][s]["signature"])
        for r in results.values()
        for s, label in SCORES.items()
    }
    lines = []
    for name, r in results.items():
        test = r["scores"]["test"]
        cells = [name, f"{r['parameters'] / 1e6:.2f}M", f"{r['steps']:,}"]
        seconds = step_seconds(read_metrics(RESULTS / name / "metrics.jsonl"))
        cells += [
            duration(r["steps"] * seconds),
            duration(r["training_seconds"] + r["overhead_seconds"]),
        ]
        cells.append(f"{r['dev_perplexity']:.2f}")
        lines.append([*cells, *(f"{test[s]['score']:.2f}" for s in SCORES)])
    notes = [f"{label}: `{signature}`" for label, signature in sorted(signatures)]
    where = sorted({json.dumps(r["environment"]) for r in results.values()})
    notes += [", ".join(f"{k} {v}" for k, v in json.loads(w).items()) for w in where]
    notes.append(
        "`in steps` is the median step times their number; `in all` has compiling, evaluations and "
        "checkpoints, too, and the time in which a run was stopped or shared the machine."
    )
    notes.append(
        "A row RECIPE-SEED is `launch/local.sh train RECIPE --seed SEED --directory DIR`; "
        "`experiments/multi30k.py` makes the table."
    )
    return pipe_table(heads, lines) + "\n" + "".join(f"- {note}\n" for note in notes)


def draw(results: dict[str, dict[str, Any]]) -> None:
    """Dev perplexity against the time in steps."""
    with style.figure(RESULTS / "curves", 1, 1, size=(6, 4)) as (_, axes):
        for i, (name, r) in enumerate(results.items()):
            records = read_metrics(RESULTS / name / "metrics.jsonl")
            minutes = step_seconds(records) / 60
            points = [
                (m["step"] * minutes, m["dev_perplexity"]) for m in records if "dev_perplexity" in m
            ]
            label = f"{name}: {r['scores']['test'][bleu.CASED]['score']:.1f} BLEU"
            axes.plot(*zip(*points, strict=True), label=label, **style.line(i))
        axes.set(xlabel="minutes in training steps", ylabel="dev perplexity", yscale="log")
        axes.set_title("Multi30k EN-DE")
        axes.legend(title="test2016, 13a cased")


def main(runs: list[Path]) -> None:
    keep(runs)
    results = {p.parent.name: json.loads(p.read_text()) for p in RESULTS.glob("*/result.json")}
    if not results:
        sys.exit("experiments/multi30k.py: nothing is kept yet; name finished runs.")
    results = dict(sorted(results.items()))
    (RESULTS / "table.md").write_text(table(results))
    draw(results)
    print(table(results))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
