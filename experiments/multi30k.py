"""Multi30k EN-DE, test2016: two quick recipes, and Transformer-Tiny of Wu et al. (2021).

    launch/local.sh train multi30k_quick --directory DIR    10 minutes on 2 CPU cores
    launch/local.sh train multi30k_hour --directory DIR     under an hour
    launch/local.sh train multi30k_tiny --directory DIR     2 hours if nothing else runs
    launch/local.sh experiments/multi30k.py runs/multi30k_*

The last command publishes finished runs in experiments/results/multi30k, beside those already
there, and writes the table and the curves of all runs there. Expected: 36.3, 39.9 and 38.7 BLEU
(13a, cased); Wu et al. report 41.02 for Tiny, on tokenised lowercased text.

Tiny differs from the published model in three ways: it is trained on raw, cased text instead of
lowercased and tokenised text; its length penalty is GNMT's, (5 + n) / 6 with exponent 1, instead of
n; and its batch of 8K tokens has 4,096 on each side.

DIR holds train.en.gz, train.de.gz, val.* and test_2016_flickr.*; without --directory they are
downloaded.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from t2t_jax import plotting
from t2t_jax.evaluation import bleu
from t2t_jax.runs import published, store
from t2t_jax.study.typeset import pipe_table
from t2t_jax.training.progress import duration

RESULTS = Path(__file__).parent / "results" / "multi30k"
KEPT = *published.KEPT, "test.de"
SCORES = {
    bleu.CASED: "BLEU 13a",
    bleu.LOWERCASED: "13a lowercased",
    bleu.MOSES: "tokenised lowercased",
}


def keep(runs: list[Path]) -> None:
    """Publishes the files of finished runs that the table is made of."""
    kept = {run.name: published.contents(run, KEPT) for run in published.directories(RESULTS)}
    for run in runs:
        if not (run / "result.json").exists():
            print(f"{run} is not finished and is left out", file=sys.stderr)
            continue
        kept[run.name] = published.contents(run, KEPT)
    RESULTS.mkdir(parents=True, exist_ok=True)
    published.write(RESULTS, dict(sorted(kept.items())))


def step_seconds(records: list[dict[str, Any]]) -> float:
    """Returns the median time of a step, which pauses hardly change."""
    return statistics.median(r["seconds_per_step"] for r in records if "seconds_per_step" in r)


def table(results: dict[str, dict[str, Any]]) -> str:
    """Returns Markdown, a row for each run."""
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
        seconds = step_seconds(store.read_curves(RESULTS / name))
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
        "`in steps` is the median time of a step times their number; `in all` adds compilation, "
        "evaluation, checkpoints, pauses, and what sharing the machine cost."
    )
    notes.append(
        "A row RECIPE-SEED is `launch/local.sh train RECIPE --seed SEED --directory DIR`; "
        "`experiments/multi30k.py` makes the table."
    )
    return pipe_table(heads, lines) + "\n" + "".join(f"- {note}\n" for note in notes)


def draw(results: dict[str, dict[str, Any]]) -> None:
    """Plots dev perplexity against the time in training steps."""
    with plotting.figure(RESULTS / "curves", 1, 1, size=(6, 4)) as (_, axes):
        for i, (name, r) in enumerate(results.items()):
            records = store.read_curves(RESULTS / name)
            minutes = step_seconds(records) / 60
            points = [
                (m["step"] * minutes, m["dev_perplexity"]) for m in records if "dev_perplexity" in m
            ]
            label = f"{name}: {r['scores']['test'][bleu.CASED]['score']:.1f} BLEU"
            axes.plot(*zip(*points, strict=True), label=label, **plotting.line(i))
        axes.set(xlabel="minutes in training steps", ylabel="dev perplexity", yscale="log")
        axes.set_title("Multi30k EN-DE")
        axes.legend(title="test2016, 13a cased")


def main(runs: list[Path]) -> None:
    if runs:
        keep(runs)
    directories = published.directories(RESULTS)
    results = {run.name: published.read(run, "result.json") for run in directories}
    if not results:
        sys.exit("experiments/multi30k.py: nothing is published yet: name finished runs.")
    (RESULTS / "table.md").write_text(table(results))
    draw(results)
    print(table(results))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
