"""An atlas of noise: how far seeds move each mechanism's loss, and what in a seed does it.

    launch/local.sh run noise --store runs/noise --seeds 8           1.5 hours of one CPU core
    launch/local.sh run attention --store runs/noise --seeds 8       3 hours
    launch/local.sh experiments/noise.py                             tables and figure

The first compares sources in six mechanisms. A seed sets the initial parameters, the order of the
batches and dropout. The rows of a mechanism move one of the three to the next seed. Two runs that
differ in one source alone show its variance with the others fixed: half of their squared
difference. A run and the next seed's run share one source alone, and show the variance without it.
If sources did not interact, the variances of one source alone would sum to the whole.

The second gives the deviation of every row of attention.py over seeds, the seeds with which a test
finds a difference, and how often usual rules declare a winner between two rows whose true means
are equal. What has finished is published in experiments/results/noise, without the statistics of
sentences; both grids continue from there on a new machine.
"""

import math
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from t2t_jax import files, plotting
from t2t_jax.study import Row, statistics, study
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "noise"
STORE = Path("runs/noise")
SOURCES = {"init": "initialisation", "order": "order of batches", "dropout": "dropout"}
EVERYWHERE = "encoder", "decoder", "cross"
MECHANISMS = {  # as in attention.py, whose runs they share
    "scaled dot product": {},
    "dot product": {f"{role}_attention": "dot_product" for role in EVERYWHERE},
    "additive": {f"{role}_attention": "additive" for role in EVERYWHERE},
    "local": {f"{role}_attention": "local:w=4" for role in EVERYWHERE[:2]},
    "linear": {f"{role}_attention": "linear" for role in EVERYWHERE},
    "gated linear": {f"{role}_attention": "gated_linear" for role in EVERYWHERE[:2]},
}
METRICS = {"NLL": "nats", "BLEU": "BLEU"}
DETECTED = 0.01, 0.05  # nats
POWER = 0.8
PAIRS = 20_000  # simulated comparisons of two rows
PICKED = 3  # runs of each row in a comparison


COLUMNS = *(f"{x}_attention" for x in EVERYWHERE), *(f"{x}_offset" for x in SOURCES)


@study(
    "Sources of noise",
    columns=" ".join(COLUMNS),
    split="test",
    V=41_100,
    metrics=dict(grammar="PPL,BLEU"),
)
def noise():
    return [
        row
        for name, roles in MECHANISMS.items()
        for row in (
            Row(name, roles),
            *(Row(f"{name}, other {x}", {**roles, f"{x}_offset": 1}) for x in SOURCES),
        )
    ]


class Deviation(NamedTuple):
    """A standard deviation, and the ends of its 95% interval, if values are normal."""

    size: float
    low: float
    high: float
    freedom: int

    @classmethod
    def of(cls, variance, freedom):
        low, high = np.sqrt(freedom * variance / stats.chi2.ppf([0.975, 0.025], freedom))
        return cls(math.sqrt(variance), float(low), float(high), freedom)


def halves(first, second):
    """Returns half of the squared differences, each an estimate of a variance."""
    return (np.asarray(first) - np.asarray(second)) ** 2 / 2


def sources(values):
    """Returns the deviations over all sources, over one source alone, and over all but one.

    Args:
      values: of seeds 0 to n - 1, by the source that a row moves; "" is the row that moves none.
    """
    whole, n = np.array(values[""]), len(values[""])
    found = {"all sources": Deviation.of(whole.var(ddof=1), n - 1)}
    for name, title in SOURCES.items():
        alone = halves(whole, values[name]).mean()
        without = halves(whole[1:], values[name][:-1]).mean()
        found[f"{title} alone"] = Deviation.of(alone, n)
        found[f"all but {title}"] = Deviation.of(without, n - 1)
    return found


def seeds_to_detect(size, deviations):
    """Returns the seeds of both rows with which Welch's t finds a difference in 80% of tables."""
    variances = np.square(deviations)
    for n in count(2):
        freedom = (n - 1) * variances.sum() ** 2 / np.square(variances).sum()
        shift = size / math.sqrt(variances.sum() / n)
        critical = special.stdtrit(freedom, 1 - statistics.LEVEL / 2)
        if 1 - special.nctdtr(freedom, shift, critical) >= POWER:
            return n


def noisier(row, base):
    """Returns the p of an F test that a row's variance exceeds base's, one-sided."""
    return float(stats.f.sf((row.size / base.size) ** 2, row.freedom, base.freedom))


def false_winners(deviations):
    """Returns how often each rule declares a winner between two rows with equal true means.

    The rows of a pair are drawn at random, and their runs from normal distributions.
    """
    assumed, random = float(np.median(deviations)), np.random.default_rng(0)
    rows = np.array([random.choice(deviations, 2, replace=False) for _ in range(PAIRS)])
    a, b = (random.normal(scale=x[:, None], size=(PAIRS, PICKED)) for x in rows.T)
    gaps = abs(a.mean(1) - b.mean(1))
    error = np.sqrt((a.var(1, ddof=1) + b.var(1, ddof=1)) / PICKED)
    p = stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue
    normal = special.ndtri(1 - statistics.LEVEL / 2) * math.sqrt(2 / PICKED) * assumed
    rules = {
        "one seed each, apart by more than 0.01 nats": abs(a[:, 0] - b[:, 0]) > DETECTED[0],
        "best of three each, apart by more than 0.01 nats": abs(a.min(1) - b.min(1)) > DETECTED[0],
        "means of three, apart by more than 0.01 nats": gaps > DETECTED[0],
        f"means of three, normal test, deviation of {assumed:.4f} assumed for all": gaps > normal,
        "means of three, intervals of one standard deviation do not overlap": (
            gaps > a.std(1, ddof=1) + b.std(1, ddof=1)
        ),
        "means of three, further apart than two standard errors": gaps > 2 * error,
        "means of three, Welch's t, p < 0.05": p < statistics.LEVEL,
    }
    return {name: float(found.mean()) for name, found in rules.items()}


def values_of(run):
    """Returns the NLL on dev and the BLEU on test of a run."""
    scores = run.result["scores"]["test"]
    return {"NLL": math.log(run.result["dev_perplexity"]), "BLEU": scores["bleu"]["score"]}


def by_metric(runs):
    """Returns the values of runs by metric."""
    found = [values_of(run) for run in runs]
    return {metric: [x[metric] for x in found] for metric in METRICS}


def measure(lines_of_noise, lines_of_attention):
    """Returns deviations by mechanism and source, deviations of all rows, and false winners."""
    by_name = {line.row.name: by_metric(line.runs) for line in lines_of_noise}
    of_sources = {}
    for name in MECHANISMS:
        rows = {"": by_name[name]} | {x: by_name[f"{name}, other {x}"] for x in SOURCES}
        n = min(len(x["NLL"]) for x in rows.values())
        if n > 2:
            of_sources[name] = {
                metric: sources({x: values[metric][:n] for x, values in rows.items()})
                for metric in METRICS
            }
    rows = {line.row.name: by_metric(line.runs) for line in lines_of_attention}
    rows = {name: x for name, x in rows.items() if len(x["NLL"]) > 2}
    deviations = {
        name: {m: Deviation.of(np.var(v, ddof=1), len(v) - 1) for m, v in x.items()}
        for name, x in rows.items()
    }
    base = next(iter(deviations.values()))
    return {
        "sources": of_sources,
        "rows": {
            name: x
            | {
                "p": min(1.0, noisier(x["NLL"], base["NLL"]) * (len(deviations) - 1)),
                "seeds": [seeds_to_detect(d, [x["NLL"].size, base["NLL"].size]) for d in DETECTED],
            }
            for name, x in deviations.items()
        },
        "false winners": false_winners([x["NLL"].size for x in deviations.values()]),
    }


def shown(x, metric):
    digits = 4 if metric == "NLL" else 2
    return f"{x.size:.{digits}f} ({x.low:.{digits}f} to {x.high:.{digits}f})"


def relative(logs):
    """Returns the geometric mean of ratios with its 95% interval over mechanisms."""
    half = stats.t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    low, mean, high = np.exp(np.mean(logs) + np.array([-half, 0, half]))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def tables(results):
    """Returns Markdown: deviations by source, the rows by their deviation, and false winners."""
    parts = []
    for metric, unit in METRICS.items():
        lines = [
            [name, *(shown(x, metric) for x in found[metric].values())]
            for name, found in results["sources"].items()
        ]
        titles = next(iter(results["sources"].values()))[metric]
        mean = ["variance relative to all sources, geometric mean"]
        for title in titles:
            found = [x[metric] for x in results["sources"].values()]
            logs = [2 * math.log(x[title].size / x["all sources"].size) for x in found]
            mean.append(relative(logs) if any(logs) else "1")
        parts.append(f"Standard deviation of {metric} ({unit}) by source:\n")
        parts.append(pipe_table(["mechanism", *titles], [*lines, mean]))
    heads = ["row", "n", "deviation of NLL", "noisier than base, p", "deviation of BLEU"]
    heads += [f"seeds to find {size} nats" for size in DETECTED]
    rows = sorted(results["rows"].items(), key=lambda x: x[1]["NLL"].size)
    lines = []
    for name, x in rows:
        NLL, BLEU = (shown(x[metric], metric) for metric in METRICS)
        seeds = (f"{n:,}" for n in x["seeds"])
        lines.append([name, f"{x['NLL'].freedom + 1}", NLL, f"{x['p']:.2g}", BLEU, *seeds])
    parts += ["Every row of attention.py by its deviation over seeds:\n", pipe_table(heads, lines)]
    rules = [[name, f"{100 * x:.0f}"] for name, x in results["false winners"].items()]
    heads = ["rule, for two rows with equal true means", "declares a winner (%)"]
    parts += [pipe_table(heads, rules)]
    notes = (
        "Intervals: 95%, if values are normal. p: an F test of the variances, corrected for all "
        f"rows (Bonferroni). Seeds: of both rows, for a power of {POWER:.0%} of one Welch's t.",
        "Winners: two rows drawn at random, with normal runs of their deviations.",
    )
    return "\n".join([*parts, *(f"- {note}" for note in notes), ""])


def draw(results, path):
    """Plots the deviation of every row with its interval."""
    rows = sorted(results["rows"].items(), key=lambda x: x[1]["NLL"].size)
    values = [dict(row=name, **x["NLL"]._asdict()) for name, x in rows]
    ends = [v[end] for v in values for end in ("low", "high")]
    x = plotting.Axis.over("size", "deviation of NLL over seeds (nats)", ends, log=True)
    y = {"field": "row", "type": "nominal", "sort": None, "title": None}
    layers = [
        {"mark": "rule", "encoding": {"x": x.channel("low"), "x2": {"field": "high"}}},
        {"mark": "point", "encoding": {"x": x.channel()}},
    ]
    body = {"data": {"values": values}, "width": 360, "height": {"step": 14}, "layer": layers}
    title = ["Deviation over seeds, by attention mechanism", "95% intervals"]
    plotting.write(path, plotting.chart(body | {"encoding": {"y": y}}, title=title))


def collect(folder):
    """Publishes the finished runs in a folder, with tables, which it returns, and the figure."""
    from experiments.tools import grids
    from t2t_jax.runs import published
    from t2t_jax.study.requests import Request

    runs: dict[str, published.Contents] = {}
    lines = []
    for name in ("noise", "attention"):
        _, rows = grids.collected(Request(name, "demo"), STORE)
        lines.append(rows)
        finished = [run.directory for row in rows for run in row.runs]
        runs |= {directory.name: published.contents(directory) for directory in finished}
    results = measure(*lines)
    files.make_directory(folder)
    published.write(folder, runs)
    files.write_json(folder / "noise.json", results)
    files.write(folder / "table.md", tables(results))
    draw(results, folder / "deviations")
    return tables(results)


def main():
    from experiments.tools import grids

    grids.run([], [RESULTS, RESULTS.parent / "attention-demo"], STORE, 0)
    print(collect(RESULTS))


if __name__ == "__main__":
    main()
