"""Which cheap experiment predicts the order of attention mechanisms? From stored results.

    launch/local.sh experiments/decisions.py         half a minute on one CPU core

This trains nothing. The target is the order of the rows of attention.py at preset demo, by
perplexity on dev and by BLEU on test. A cheap experiment is a run that is stopped early, by its
perplexity, a whole run by its accuracy on minimal pairs, or recall.py, by its accuracy. Decision
accuracy is the share of the pairs of rows that the target separates which the cheap experiment has
in the same order; a coin has 50%. Each seed of the target in turn is the seed of the cheap
experiment, and is then left out of the target.

A second target is the order of mechanisms as decoders of documents (study `decoders` of
language_model.py). Cheap experiments are also decoders with a tenth of the steps, and the rows of
attention.py with the same mechanisms.

A third target is Table 3 of the paper, whose training of base takes 3.3e18 FLOPs (Table 2). Cheap
experiments are Table 3 at presets hour, demo (half as wide) and multi30k (on real text). Preset
hour itself is the target of demo, and of its own runs that are stopped early.
"""

import itertools
import math
import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from experiments import mechanisms
from t2t_jax import files, plotting
from t2t_jax.evaluation.metrics import CONTRASTIVE
from t2t_jax.runs.store import read_curves
from t2t_jax.study import statistics
from t2t_jax.study.agreement import SEPARATED
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "decisions"
TABLE3 = "the 20 rows of Table 3; the target is {}"
PAPER_FLOPS = 3.3e18  # of base (Table 2)
TEXT = "decoders of documents, {}"
CHEAP = 0.3  # of the target's FLOPs, for each of two experiments that are used together
SEVERAL = 3  # seeds of a cheap experiment


class Cheap(NamedTuple):
    """A cheap experiment.

    Attributes:
      values: for each of its runs, a score of each row, the best lowest [runs, rows].
      left_out: for each of its runs, the seeds that the target does without.
      flops: of the training of a row, in the median.
    """

    name: str
    values: np.ndarray
    left_out: list[list[int]]
    flops: float


class Accuracy(NamedTuple):
    """Decision accuracy in percent, its 95% interval over rows, and the mean number of pairs."""

    share: float
    low: float
    high: float
    pairs: float


def separated(values):
    """Returns for each pair of rows of values [rows, seeds] the sign of its difference.

    It is 0 if the rows do not differ by a moderated t over seeds, with p < 0.05 and no correction.
    """
    i, j = np.triu_indices(len(values), 1)
    variances, n = values.var(axis=1, ddof=1), np.full(len(values), values.shape[1])
    prior = statistics.prior(variances, n)
    both = variances[np.stack([i, j])], n[np.stack([i, j])]
    error, freedom = statistics.standard_error(*both, 0.0, prior)
    gaps = values.mean(axis=1)[i] - values.mean(axis=1)[j]
    return np.sign(gaps) * (2 * special.stdtr(freedom, -abs(gaps) / error) < statistics.LEVEL)


def separated_in_paper(metric, values):
    """Returns for each pair of the paper's values [rows, 1] the sign; 0 if they hardly differ."""
    i, j = np.triu_indices(len(values), 1)
    gaps = (values[i, 0] - values[j, 0]).round(6)
    return np.sign(gaps) * (abs(gaps) >= SEPARATED[metric])


def accuracy(target, cheap, signs_of=separated):
    """Returns how well a cheap experiment predicts the order of target [rows, seeds].

    Rows without a score of the cheap experiment do not count.
    """
    known = ~np.isnan(cheap.values).any(axis=0)
    target, values = target[known], cheap.values[:, known]
    i, j = np.triu_indices(len(target), 1)
    counts = np.random.default_rng(0).multinomial(
        len(target), [1 / len(target)] * len(target), statistics.DRAWS
    )
    weights = np.concatenate([np.ones((1, len(i))), counts[:, i] * counts[:, j]])  # [draws, pairs]
    right = total = np.zeros(len(weights))
    for row_scores, seeds in zip(values, cheap.left_out, strict=True):
        signs = signs_of(np.delete(target, seeds, axis=1))
        same = np.sign(row_scores[i] - row_scores[j]) * signs  # ties are right in half of the cases
        right = right + weights @ (np.where(signs != 0, 1 + same, 0) / 2)
        total = total + weights @ abs(signs)
    shares = 100 * right / total
    low, high = np.quantile(shares[1:], [0.025, 0.975])
    return Accuracy(shares[0], low, high, total[0] / len(values))


def stopped_early(lines):
    """Returns cheap experiments for each share of a row's steps after which it was evaluated.

    They have one seed, and the mean of `SEVERAL` if as many and two more are left for the target.
    """
    seeds = min(len(line.runs) for line in lines)
    runs = [line.runs[:seeds] for line in lines]
    curves = [[evaluations(run) for run in of_row] for of_row in runs]
    steps = max(curves[0][0])
    flops = flops_of(lines)

    def scores(share):
        return [[math.log(curve[share * max(curve)]) for curve in of_row] for of_row in curves]

    return [
        of_seeds(f"{step:,} of {steps:,} steps, PPL", scores(step / steps), flops * step / steps, n)
        for n in (1, SEVERAL)
        for step in sorted(curves[0][0])
        if n == 1 or n + 2 <= seeds
    ]


def of_seeds(name, scores, flops, n=1):
    """Returns a cheap experiment: the mean of n seeds, each set of successive seeds in turn.

    Args:
      scores: [rows, seeds], as of the target, which does without the seeds.
      flops: of one seed.
    """
    scores = np.array(scores)
    sets = (np.arange(scores.shape[1])[:, None] + np.arange(n)) % scores.shape[1]
    name += f", mean of {n} seeds" * (n > 1)
    return Cheap(name, scores[:, sets].mean(axis=2).T, sets.tolist(), flops * n)


def apart(cheap):
    """Returns a cheap experiment whose target is of other runs, and so keeps all of its seeds."""
    return cheap._replace(left_out=[[]] * len(cheap.values))


def evaluations(run):
    """Returns the perplexity on dev by step."""
    curve = read_curves(run.directory)
    return {x["step"]: x["dev_perplexity"] for x in curve if "dev_perplexity" in x}


def elsewhere(name, lines, others, metric):
    """Returns another study as a cheap experiment, by one seed and by the mean of all.

    Args:
      others: the rows of that study by the mechanism that they compare.
    """
    names = [mechanisms.mechanism_of(line.row) for line in lines]
    # Only the first of several rows with a mechanism has it in the roles that are usual there.
    chosen = [others.get(x) if x not in names[:n] else None for n, x in enumerate(names)]
    known = [line for line in chosen if line]
    (of_known,) = scores_of(known, metric)
    scores = np.full((len(lines), of_known.shape[1]), np.nan)
    scores[[n for n, line in enumerate(chosen) if line]] = of_known
    return [apart(of_seeds(name, scores, flops_of(known), n)) for n in sorted({1, scores.shape[1]})]


def by_mechanism(lines):
    """Returns the first row of each mechanism."""
    return {mechanisms.mechanism_of(line.row): line for line in reversed(lines)}


def of_recall(lines):
    """Returns the rows of recall.py with d_k = 8 by the mechanism of their second layer."""
    end = ", d_k 8"
    named = {x.row.name.removesuffix(end): x for x in lines if x.row.name.endswith(end)}
    return {mechanisms.BASE if name == "softmax" else name: line for name, line in named.items()}


def smaller(name, lines):
    """Returns a smaller grid with the rows of the target, by one seed and by the mean of all."""
    (NLL,) = scores_of(lines, "PPL")
    return [apart(of_seeds(name, NLL, flops_of(lines), n)) for n in sorted({1, NLL.shape[1]})]


def flops_of(lines):
    return np.median([run.result["flops"] for line in lines for run in line.runs])


def together(first, second):
    """Returns the sum of two cheap experiments, whose scores are standardised over the rows."""
    known = ~np.isnan(np.concatenate([first.values, second.values])).any(axis=0)
    count = max(len(first.values), len(second.values))
    total = np.zeros((count, len(known)))
    for x in (first, second):
        spread = x.values[:, known].std(axis=1, keepdims=True)
        total += np.resize(x.values / spread, total.shape)
    left_out = [
        sorted({*a, *b})
        for a, b, _ in zip(
            itertools.cycle(first.left_out), itertools.cycle(second.left_out), range(count)
        )
    ]
    name = f"{first.name} + {second.name}"
    return Cheap(name, total, left_out, first.flops + second.flops)


def scores_of(lines, *metrics):
    """Returns the scores [rows, seeds] of each metric, the best lowest; of PPL its logarithm."""
    seeds = min(len(line.runs) for line in lines)
    values = (np.array([x.measure(name).values[:seeds] for x in lines]) for name in metrics)
    return [np.log(x) if n == "PPL" else -x for n, x in zip(metrics, values, strict=True)]


def measure(lines, recall):
    """Returns for each cheap experiment, and set of rows, its decision accuracy by target."""
    NLL, BLEU, pairs = scores_of(lines, "PPL", "BLEU", CONTRASTIVE)
    targets = {"PPL": (NLL, separated), "BLEU": (BLEU, separated)}
    early, full = stopped_early(lines), flops_of(lines)
    early.append(of_seeds("minimal pairs, accuracy", pairs, full))
    others = elsewhere("recall, accuracy", lines, of_recall(recall), "accuracy")
    same_rows, count = of_same_rows([*early, *others])
    return {
        rows: judged(chosen, targets, full)
        for rows, chosen in (
            (f"all {len(lines)} rows", early),
            (f"the {count} rows whose mechanism recall has", same_rows),
        )
    }


def of_same_rows(every):
    """Returns cheap experiments without the rows that one of them lacks, and how many are left."""
    unknown = np.isnan(np.concatenate([x.values for x in every])).any(axis=0)
    same = [x._replace(values=np.where(unknown, np.nan, x.values)) for x in every]
    return same, (~unknown).sum()


def measure_text(lines, shorter, attention, recall):
    """Returns for each cheap experiment, and set of rows, how well it predicts decoders on text.

    Args:
      lines: the rows of `decoders`.
      shorter: the same rows with a tenth of the steps.
    """
    (NLL,) = scores_of(lines, "PPL")
    targets, full = {"PPL": (NLL, separated)}, flops_of(lines)
    others = [
        *elsewhere("attention, demo, PPL", lines, by_mechanism(attention), "PPL"),
        *elsewhere("attention, demo, minimal pairs", lines, by_mechanism(attention), CONTRASTIVE),
        *elsewhere("recall, accuracy", lines, of_recall(recall), "accuracy"),
    ]
    own = [*stopped_early(lines), *smaller("a tenth of the steps, PPL", shorter)]
    same_rows, count = of_same_rows([*own, *others])
    parts = same_rows[: len(own)], same_rows[len(own) :]
    small = ([x for x in part if x.flops < CHEAP * full] for part in parts)
    pairs = judged([together(*x) for x in itertools.product(*small)], targets, full)
    best = max(pairs, key=lambda name: pairs[name]["PPL"]["share"])
    return {
        TEXT.format(f"all {len(lines)} mechanisms"): judged(own, targets, full),
        TEXT.format(f"the {count} mechanisms that other studies have"): judged(
            same_rows, targets, full
        )
        | {f"the best of {len(pairs)} sums of two, {best}": pairs[best]},
    }


def measure_table3(hour, demo, multi30k):
    """Returns for each cheap experiment its decision accuracy, by target: the paper, preset hour.

    Args:
      hour, demo, multi30k: the rows of Table 3 at these presets.
    """
    NLL, BLEU = scores_of(hour, "PPL", "BLEU")
    early = stopped_early(hour)
    narrow, text = (apart(stopped_early(lines)[-1]) for lines in (demo, multi30k))
    narrow = narrow._replace(name="preset demo (half as wide), PPL")
    flops = early[-1].flops
    own = [
        *early,
        of_seeds(early[-1].name, NLL, flops, SEVERAL),
        of_seeds("whole runs, BLEU", BLEU, flops),
    ]
    of_paper = {
        metric: (
            sign * np.array([[line.row.paper[metric]] for line in hour]),
            partial(separated_in_paper, metric),
        )
        for metric, sign in (("PPL", 1), ("BLEU", -1))
    }
    of_hour = {"PPL": (NLL, separated), "BLEU": (BLEU, separated)}
    others = [narrow, *map(apart, own), text._replace(name="preset multi30k, PPL")]
    return {
        TABLE3.format("the paper"): judged(others, of_paper, PAPER_FLOPS),
        TABLE3.format("preset hour"): judged([narrow, *early], of_hour, flops),
    }


def judged(every, targets, flops):
    """Returns the FLOPs and the decision accuracy of cheap experiments.

    Args:
      targets: by metric, the values [rows, seeds] and the function that separates them.
      flops: of the target.
    """
    return {
        x.name: dict(flops=x.flops, of_target=x.flops / flops)
        | {name: accuracy(values, x, signs)._asdict() for name, (values, signs) in targets.items()}
        for x in every
    }


def table(results):
    """Returns Markdown: a line for each cheap experiment, by set of rows."""
    heads = ["rows", "cheap experiment, one seed", "FLOPs of a row", "of the target's"]
    heads += [f"{name}: pairs in order (%)" for name in ("PPL", "BLEU")] + ["pairs, PPL", "BLEU"]
    lines = []
    for rows, of_rows in results.items():
        for n, (name, x) in enumerate(of_rows.items()):
            both = [x.get(metric) for metric in ("PPL", "BLEU")]
            shares = [
                f"{y['share']:.0f} ({y['low']:.0f} to {y['high']:.0f})" if y else "" for y in both
            ]
            pairs = [f"{y['pairs']:.0f}" if y else "" for y in both]
            share = x["of_target"]
            cost = f"{x['flops']:.1e}", f"{share:.0%}" if share > 0.001 else f"{share:.0e}"
            lines.append(["" if n else rows, name, *cost, *shares, *pairs])
    return pipe_table(heads, lines)


def draw(results, path):
    """Plots decision accuracy by PPL over FLOPs, for the rows that recall.py has, too."""
    of_recall = {rows: x for rows, x in results.items() if "recall, accuracy" in x}
    kinds = {name: kind(name) for x in of_recall.values() for name in x}
    styles = plotting.styles([*dict.fromkeys(kinds.values())])
    values = {
        rows: [styles[kinds[name]] | dict(flops=x["of_target"]) | x["PPL"] for name, x in y.items()]
        for rows, y in of_recall.items()
    }
    shares = [v["flops"] for of_rows in values.values() for v in of_rows]
    x = plotting.Axis.over("flops", "FLOPs, relative to the target", shares, log=True)
    y = plotting.Axis("share", "pairs of rows in order (%), 95% interval", 25, 102)
    layers = [plotting.interval(y), *plotting.LINES]
    coin = {"data": {"values": [{}]}, "mark": {"type": "rule", "strokeDash": [4, 4]}}
    panels = []
    for rows, of_rows in values.items():
        last = {v["row"]: v for v in of_rows}.values()
        panel = plotting.panel(x, y, (300, 260), layers, last)
        panel["layer"].append(coin | {"encoding": {"y": {"datum": 50}}})
        panels.append(panel | {"data": {"values": of_rows}, "title": rows})
    title = ["Which cheap experiment predicts", "dashed: a coin"]
    plotting.write(path, plotting.chart({"hconcat": panels}, [*styles], title))


def kind(name):
    """Returns the name of a cheap experiment without its number of steps or seeds."""
    name = re.sub(r"^[\d,]+ of [\d,]+ steps", "stopped early", name)
    return "the best sum of two" if " + " in name else name.partition(", mean of")[0]


def stored():
    """Returns the decision accuracy of all cheap experiments, by set of rows."""
    table3 = (mechanisms.stored("table3", x) for x in ("hour", "demo", "multi30k"))
    homes = RESULTS.parent, RESULTS.parent / "decoders_tenth"
    decoders = (mechanisms.stored("decoders", "text", home) for home in homes)
    studies = ("attention", "demo"), ("recall", "diagnostic")
    others = [mechanisms.stored(*x) for x in studies]
    return measure(*others) | measure_text(*decoders, *others) | measure_table3(*table3)


def main():
    results = stored()
    files.make_directory(RESULTS)
    files.write_json(RESULTS / "decisions.json", results)
    files.write(RESULTS / "table.md", table(results))
    draw(results, RESULTS / "accuracy")
    print(table(results))


if __name__ == "__main__":
    main()
