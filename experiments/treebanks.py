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

from pathlib import Path

from experiments.tools import grids
from t2t_jax import files, plotting
from t2t_jax.commands.arguments import CACHE
from t2t_jax.environment import environment
from t2t_jax.runs import published
from t2t_jax.study.requests import Request
from t2t_jax.study.statistics import spread
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
    corpus, pairs = GRIDS[name]
    files = dict(directory=directory) if corpus == "wsj_sample" else {}
    return Request("table4", "treebank", dict(corpus=corpus, pairs=pairs) | files)


def constrain(runs, known):
    """Adds the scores of constrained outputs to `known`, by the runs' keys, where they are missing.

    Runs without parameters, which were published elsewhere, are left out.
    """
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
        if not values:
            return ""
        x = spread(values)
        return f"{x.mean:.1f}" + f" ± {x.deviation:.1f}" * (x.n > 1)

    lines = []
    for name, rows in results.items():
        corpus, pairs = GRIDS[name]
        for row, scores in rows.items():
            cells = [cell(scores[kind + key]) for kind in kinds for key in SCORES]
            lines.append([TITLES[corpus], f"{pairs:,}", row, str(len(scores["f1"])), *cells])
    note = "F1 of labelled brackets on test; mean ± standard deviation over n seeds."
    return pipe_table(heads, lines) + f"\n- {note}\n"


def draw(results, folder):
    """Plots F1 over the number of sentences, in a panel for each corpus."""
    rows = [*dict.fromkeys(row for of_grid in results.values() for row in of_grid)]
    names = [row + kind for row in rows for kind in (FREE, CONSTRAINED)]
    styles, panels = plotting.styles(names), []
    values: dict[str, list[dict]] = {corpus: [] for corpus in SIZES}
    for name, of_grid in results.items():
        corpus, pairs = GRIDS[name]
        for row, scores in of_grid.items():
            for kind in (FREE, CONSTRAINED):
                if scores[kind + "f1"]:
                    F1 = spread(scores[kind + "f1"])
                    half = F1.deviation if F1.n > 1 else 0.0
                    ends = dict(low=F1.mean - half, high=F1.mean + half)
                    point = dict(sentences=pairs, F1=F1.mean) | ends
                    values[corpus].append(styles[row + kind] | point)
    for corpus, points in values.items():
        bounds = [point[end] for point in points for end in ("low", "high")]
        y = plotting.Axis.over("F1", f"F1, {TITLES[corpus]}", bounds)
        sizes = [point["sentences"] for point in points]
        x = plotting.Axis.over("sentences", "training sentences", sizes, log=True)
        layers = [plotting.interval(y), *plotting.LINES]
        last = {point["row"]: point for point in points}.values()
        panels.append(plotting.panel(x, y, (240, 240), layers, last) | {"data": {"values": points}})
    plotting.write(folder / "treebanks", plotting.chart({"hconcat": panels}, names))


def collect(folder):
    """Publishes the finished runs in a folder, with the table, which it returns, and the figure."""
    results: dict[str, dict] = {}
    runs: dict[str, dict] = {}
    path = folder / "constrained.json"
    constrained = files.read_json(path) if path.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in GRIDS:
        _, lines, of_grid = grids.compared(request(name), STORE)
        runs |= of_grid
        for line in lines:
            constrain(line.runs, constrained)
        files.write_json(path, constrained)
        finished = {x.row.name: measure(x.runs, constrained) for x in lines if x.runs}
        results |= {name: finished} if finished else {}
    published.write(folder, runs)
    files.write(folder / "table.md", table(results))
    draw(results, folder)
    return table(results)


def main():
    names = {name: name.startswith("wsj") for name in GRIDS}
    title = "folder of the sample's .mrg files"
    arguments = grids.parse(__doc__.split("\n", 1)[0], names, "--directory", title)
    requests = [request(name, arguments.folder) for name in arguments.grids]
    grids.run(requests, [RESULTS], STORE, arguments.seeds)
    print(collect(RESULTS))


if __name__ == "__main__":
    main()
