"""Parsing by the size of the treebank: does the Transformer of Table 4 overtake the LSTM?

    launch/local.sh experiments/treebanks.py --seeds 3 GRID ...   runs grids
    launch/local.sh experiments/treebanks.py                      only makes table and figure

A grid is Table 4 with preset treebank on a number of sentences: of the free sample of the Wall
Street Journal (--directory SAMPLE), or of the trees of the built-in grammar, of which there are any
number. All grids have the preset's 10,000 steps. Every model is decoded freely, as in training, and
again so that all outputs are well-formed trees with as many words as their input.

Runs are stored in runs/treebanks, and a stopped grid continues there. What is finished is published
in experiments/results/treebanks, from which a new machine continues. Both rows of a grid with one
seed take one CPU core about 40 minutes.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "treebanks"
STORE = Path("runs/treebanks")
SIZES = {"wsj_sample": (500, 1000, 2547), "grammar_trees": (2500, 10_000, 40_000, 100_000)}
GRIDS = {f"{corpus}-{n}": (corpus, n) for corpus, sizes in SIZES.items() for n in sizes}
TITLES = {"wsj_sample": "Wall Street Journal", "grammar_trees": "built-in grammar"}
SCORES = {"f1": "F1", "valid": "valid trees (%)"}
FREE, CONSTRAINED = "", ", constrained"


def request(name, directory=""):
    """Returns the request for a grid."""
    from t2t_jax.study.requests import Request

    corpus, pairs = GRIDS[name]
    changes = dict(corpus=corpus, pairs=pairs)
    if corpus == "wsj_sample":
        changes |= dict(directory=directory)
    return Request("table4", "treebank", changes)


def run(name, seeds, directory):
    """Runs a grid, or continues it."""
    flags = request(name, directory).flags
    words = ["run", "table4", *flags, "--store", STORE, "--seeds", seeds]
    subprocess.run([sys.executable, "-m", "t2t_jax.cli", *map(str, words)], check=True)


def rows_of(name):
    """Returns the finished runs of a grid by row, and what is published of them."""
    from t2t_jax.study import collecting, comparison
    from t2t_jax.study.declaration import find
    from t2t_jax.study.publish import runs_of

    grid = request(name).grid(find("table4"), STORE)
    lines = comparison.compare_with_base(grid, collecting.collect(grid, mix=True))
    return {x.row.name: x.runs for x in lines}, runs_of(grid, lines, translations=False)


def constrain(runs, known):
    """Adds the scores of constrained outputs to `known`, by the runs' keys, where they are missing.

    Runs without parameters, which were published elsewhere, are left out.
    """
    from t2t_jax.arguments import CACHE
    from t2t_jax.environment import environment
    from t2t_jax.runs.loading import evaluate

    for made in runs:
        if made.directory.name in known or not (made.directory / "final").exists():
            continue
        changes = dict(output_rule="trees")
        scores = evaluate(made.directory, CACHE, "test", None, changes, "", print)
        before, now = made.result["environment"], environment()
        known[made.directory.name] = {key: scores[key]["score"] for key in SCORES} | {
            "environment": {n: x for n, x in now.items() if before.get(n) != x}
        }


def measure(runs, constrained):
    """Returns the scores of a row: by key of the metric and kind of decoding, one for each seed."""
    free = [made.result["scores"]["test"] for made in runs]
    again = [constrained[x.directory.name] for x in runs if x.directory.name in constrained]
    of_free = {FREE + key: [x[key]["score"] for x in free] for key in SCORES}
    return of_free | {CONSTRAINED + key: [x[key] for x in again] for key in SCORES}


def table(results):
    """Returns Markdown: the scores of every grid and row, with free and constrained decoding."""
    kinds = {FREE: "free", CONSTRAINED: "constrained"}
    heads = ["corpus", "sentences", "row", "n"]
    heads += [f"{title}, {word}" for kind, word in kinds.items() for title in SCORES.values()]

    def cell(values):
        mean, deviation = summary(values)
        return "" if mean is None else f"{mean:.1f}" + f" ± {deviation:.1f}" * (len(values) > 1)

    lines = []
    for name, rows in results.items():
        corpus, pairs = GRIDS[name]
        for row, scores in rows.items():
            cells = [cell(scores[kind + key]) for kind in kinds for key in SCORES]
            lines.append([TITLES[corpus], f"{pairs:,}", row, str(len(scores["f1"])), *cells])
    note = "F1 of labelled brackets on test; mean ± standard deviation over n seeds."
    return pipe_table(heads, lines) + f"\n- {note}\n"


def summary(values):
    """Returns the mean and the deviation of scores; (None, None) if there are none."""
    import numpy as np

    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def draw(results, folder):
    """Plots F1 over the number of sentences, in a panel for each corpus."""
    from t2t_jax import plotting

    rows = [*dict.fromkeys(row for of_grid in results.values() for row in of_grid)]
    names = [row + kind for row in rows for kind in (FREE, CONSTRAINED)]
    styles, panels, values = plotting.styles(names), [], {corpus: [] for corpus in SIZES}
    for name, of_grid in results.items():
        corpus, pairs = GRIDS[name]
        for row, scores in of_grid.items():
            for kind in (FREE, CONSTRAINED):
                mean, deviation = summary(scores[kind + "f1"])
                if mean is not None:
                    point = dict(sentences=pairs, F1=mean, low=mean - deviation)
                    point |= dict(high=mean + deviation)
                    values[corpus].append(styles[row + kind] | point)
    for corpus, points in values.items():
        ends = [x for point in points for x in (point["low"], point["high"])]
        y = plotting.Axis.over("F1", f"F1, {TITLES[corpus]}", ends)
        x = plotting.Axis.over("sentences", "training sentences", SIZES[corpus], log=True)
        layers = [plotting.interval(y), *plotting.LINES]
        last = {point["row"]: point for point in points}.values()
        panels.append(plotting.panel(x, y, (240, 240), layers, last) | {"data": {"values": points}})
    plotting.write(folder / "treebanks", plotting.chart({"hconcat": panels}, names))


def collect(folder):
    """Publishes the finished runs in a folder, with the table, which it returns, and the figure."""
    from t2t_jax import files
    from t2t_jax.runs import published

    path, results, runs = folder / "constrained.json", {}, {}
    constrained = files.read_json(path) if path.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in GRIDS:
        rows, of_grid = rows_of(name)
        runs |= of_grid
        for made in rows.values():
            constrain(made, constrained)
        files.write_json(path, constrained)
        finished = {row: measure(made, constrained) for row, made in rows.items() if made}
        results |= {name: finished} if finished else {}
    published.write(folder, runs)
    files.write(folder / "table.md", table(results))
    draw(results, folder)
    return table(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("grids", nargs="*", metavar="GRID", help=f"to run: {'; '.join(GRIDS)}")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each row [1]")
    parser.add_argument("--directory", default="", help="folder of the sample's .mrg files")
    arguments = parser.parse_args()
    from t2t_jax.runs import published

    if unknown := [name for name in arguments.grids if name not in GRIDS]:
        parser.error(f"there is no grid {unknown[0]!r}: choose from {'; '.join(GRIDS)}.")
    if any(name.startswith("wsj") for name in arguments.grids) and not arguments.directory:
        parser.error("grids of wsj_sample need --directory SAMPLE, the folder of its .mrg files.")
    if (RESULTS / published.NAME).exists():
        published.unpack(RESULTS, STORE)
    for name in arguments.grids:
        run(name, arguments.seeds, arguments.directory)
    print(collect(RESULTS))


if __name__ == "__main__":
    main()
