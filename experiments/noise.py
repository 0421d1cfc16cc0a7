"""How far seeds move the loss of each attention mechanism, and which part of a seed does so.

    launch/local.sh run noise --seeds 5 --base-seeds 5          5 core-hours
    launch/local.sh run attention --seeds 3 --base-seeds 3      3 core-hours
    launch/local.sh experiments/noise.py                    tables and figure of published results

Study `noise` compares sources in six mechanisms. A seed sets the initial parameters, the order of
the batches and dropout. The rows of a mechanism move one of the three to the next seed. Such a run
and the run of the same seed differ in this source alone. Such a run and the run of the next seed
share this source alone. Half of a squared difference estimates the variance over what differs. If
sources did not interact, the variances over one source alone would sum to the whole. The last row
of a mechanism changes label smoothing by three units in the last place of float32, so that only
rounding differs. If rounding moves a result as far as a seed does, training amplifies whatever
differs (Summers and Dinneen 2021). Study `attention` gives the deviation of every mechanism over
seeds, the seeds with which a test finds a difference, and how often usual rules declare a winner
between two rows whose true means are equal.
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
SOURCES = {"init": "initialisation", "order": "order of batches", "dropout": "dropout"}
ROUNDED = 0.1 * (1 + 2**-22)  # eps_ls, three units in the last place of float32 above its default
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
COLUMNS = *(f"{x}_attention" for x in EVERYWHERE), *(f"{x}_offset" for x in SOURCES), "eps_ls"


@study(
    "Sources of noise",
    columns=" ".join(COLUMNS),
    split="test",
    metrics=dict(grammar="PPL,BLEU"),
)
def noise():
    return [
        row
        for name, roles in MECHANISMS.items()
        for row in (
            Row(name, roles),
            *(Row(f"{name}, other {x}", {**roles, f"{x}_offset": 1}) for x in SOURCES),
            Row(f"{name}, other rounding", {**roles, "eps_ls": ROUNDED}),
        )
    ]


class Deviation(NamedTuple):
    """A standard deviation, and the ends of its 95% interval, if values are normal."""

    size: float
    low: float
    high: float
    freedom: float

    @classmethod
    def of(cls, variance, freedom):
        low, high = np.sqrt(freedom * variance / stats.chi2.ppf([0.975, 0.025], freedom))
        return cls(math.sqrt(variance), float(low), float(high), freedom)

    @classmethod
    def of_pairs(cls, first, second, chained):
        """Returns the deviation over what differs in pairs of runs.

        Args:
          chained: whether neighbouring pairs share a seed of what differs. Then m of them have
            2 m^2 / (3 m - 1) degrees of freedom (Satterthwaite 1946) if sources do not interact,
            and more if they do; otherwise they have m.
        """
        halves, m = (np.asarray(first) - np.asarray(second)) ** 2 / 2, len(first)
        return cls.of(halves.mean(), 2 * m * m / (3 * m - 1) if chained else m)


def sources(values):
    """Returns the deviations over all sources, over one alone, over all but one, and over rounding.

    Args:
      values: of seeds 0 to n - 1, by what a row moves: nothing (""), a source, or rounding.
    """
    whole = np.array(values[""])
    deviations = {"all sources": Deviation.of(whole.var(ddof=1), len(whole) - 1)}
    for name, title in SOURCES.items():
        moved = values[name]
        deviations[f"{title} alone"] = Deviation.of_pairs(whole, moved, chained=True)
        deviations[f"all but {title}"] = Deviation.of_pairs(whole[1:], moved[:-1], chained=True)
    rounded = Deviation.of_pairs(whole, values["rounding"], chained=False)
    return deviations | {"rounding alone": rounded}


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


def shrunk(deviations):
    """Returns the size of each `Deviation`, with variances shrunk as in `statistics.prior`.

    Estimates differ more than what they estimate.
    """
    variances = np.array([x.size**2 for x in deviations])
    d = np.array([x.freedom for x in deviations])
    common, d_common = statistics.prior(variances, d + 1)
    return np.sqrt((d * variances + d_common * common) / (d + d_common))


def false_winners(deviations):
    """Returns how often each rule declares a winner between two rows with equal true means.

    The rows of a pair are drawn at random, and their runs from normal distributions.

    Args:
      deviations: the standard deviation of each row.
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
    return {name: float(declared.mean()) for name, declared in rules.items()}


def values_of(run):
    """Returns the NLL on dev and the BLEU on test of a run."""
    scores = run.result["scores"]["test"]
    return {"NLL": math.log(run.result["dev_perplexity"]), "BLEU": scores["bleu"]["score"]}


def by_metric(line):
    """Returns the values of the runs of a row by metric, each by seed."""
    of_seed = {run.seed: values_of(run) for run in line.runs}
    return {metric: {seed: x[metric] for seed, x in of_seed.items()} for metric in METRICS}


def consecutive(rows):
    """Returns the number of seeds 0, 1, ... that all rows have, each a mapping by seed."""
    return next(n for n in count() if any(n not in row for row in rows))


def measure(lines_of_noise, lines_of_attention):
    """Returns deviations by mechanism and source, deviations of all rows, and false winners.

    Rows with fewer than three seeds are left out.
    """
    by_name = {line.row.name: by_metric(line) for line in lines_of_noise}
    of_sources = {}
    for name in MECHANISMS:
        moved = {x: by_name[f"{name}, other {x}"] for x in (*SOURCES, "rounding")}
        rows = {"": by_name[name]} | moved
        n = consecutive([row["NLL"] for row in rows.values()])
        if n > 2:
            of_sources[name] = {
                metric: sources({x: [row[metric][i] for i in range(n)] for x, row in rows.items()})
                for metric in METRICS
            }
    base, *_ = (line.row.name for line in lines_of_attention)
    deviations = {
        line.row.name: {
            metric: Deviation.of(np.var([*values.values()], ddof=1), len(values) - 1)
            for metric, values in by_metric(line).items()
        }
        for line in lines_of_attention
        if len(line.runs) > 2
    }
    NLL = {name: x["NLL"] for name, x in deviations.items()}
    sizes = dict(zip(NLL, shrunk(NLL.values()), strict=True))
    return {
        "sources": of_sources,
        "rows": {
            name: x
            | {
                "p": min(1.0, noisier(NLL[name], NLL[base]) * (len(NLL) - 1)),
                "seeds": [seeds_to_detect(d, [sizes[name], sizes[base]]) for d in DETECTED],
            }
            for name, x in deviations.items()
        },
        "false winners": false_winners([*sizes.values()]),
        "unusual": sorted(
            line.row.name for line in lines_of_attention if any(run.unusual for run in line.runs)
        ),
    }


def shown(x, metric):
    digits = 4 if metric == "NLL" else 2
    return f"{x.size:.{digits}f} ({x.low:.{digits}f} to {x.high:.{digits}f})"


def relative(logs):
    """Returns the geometric mean of ratios with its 95% interval over mechanisms."""
    half = stats.t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs))
    low, mean, high = np.exp(np.mean(logs) + np.array([-half, 0, half]))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def table_of_sources(results, metric):
    """Returns Markdown: deviations by mechanism and source, and their variances in the mean."""
    of_mechanism = {name: x[metric] for name, x in results.items()}
    titles = next(iter(of_mechanism.values()))
    lines = [[name, *(shown(x[t], metric) for t in titles)] for name, x in of_mechanism.items()]
    mean = ["variance relative to all sources, geometric mean"]
    for title in titles:
        ratios = [x[title].size / x["all sources"].size for x in of_mechanism.values()]
        mean.append("1" if title == "all sources" else relative(2 * np.log(ratios)))
    return pipe_table(["mechanism", *titles], [*lines, mean])


def tables(results):
    """Returns Markdown: deviations by source, the rows by their deviation, and false winners."""
    parts = []
    for metric, unit in METRICS.items() if results["sources"] else ():
        parts.append(f"Standard deviation of {metric} ({unit}) by source:\n")
        parts.append(table_of_sources(results["sources"], metric))
    heads = ["row", "n", "deviation of NLL", "noisier than base, p", "deviation of BLEU"]
    heads += [f"seeds to find {size} nats" for size in DETECTED]
    lines = []
    for name, x in sorted(results["rows"].items(), key=lambda x: x[1]["NLL"].size):
        NLL, BLEU = (shown(x[metric], metric) for metric in METRICS)
        seeds = (f"{n:,}" for n in x["seeds"])
        lines.append([name, f"{x['NLL'].freedom + 1}", NLL, f"{x['p']:.2g}", BLEU, *seeds])
    parts += ["Every row of attention.py by its deviation over seeds:\n", pipe_table(heads, lines)]
    rules = [[name, f"{100 * x:.0f}"] for name, x in results["false winners"].items()]
    heads = ["rule, for two rows with equal true means", "declares a winner (%)"]
    parts += [pipe_table(heads, rules)]
    notes = [
        "Intervals: 95%, if values are normal. p: an F test of the variances, corrected for all "
        f"rows (Bonferroni). Seeds: of both rows, for a power of {POWER:.0%} of one Welch's t.",
        "Winners: two rows drawn at random, with normal runs. Seeds and winners are computed from "
        "deviations whose variances are shrunk, as estimates differ more than what they estimate.",
    ]
    if results["unusual"]:
        rows = ", ".join(results["unusual"])
        notes.append(f"Rows with runs of other code, libraries or devices than most: {rows}.")
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


def stored():
    """Returns what `measure` does of the published runs of both studies."""
    from experiments import mechanisms  # not at the top: finding a study executes this file

    return measure(*(mechanisms.stored(name, "demo") for name in ("noise", "attention")))


def main():
    results = stored()
    files.make_directory(RESULTS)
    files.write_json(RESULTS / "noise.json", results)
    files.write(RESULTS / "table.md", tables(results))
    draw(results, RESULTS / "deviations")
    print(tables(results))


if __name__ == "__main__":
    main()
