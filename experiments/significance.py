"""False-positive rate and power of tests for a table of BLEU scores, on simulated tables.

    launch/local.sh experiments/significance.py        2 minutes on one CPU core

Writes experiments/results/significance. Scores are simulated with the standard deviations over
seeds of the stored studies, with and without the variation over sentences that the seeds of a row
share (a standard deviation of 0.3 BLEU and 0.005 nats; 0 to 0.3 and 0 to 0.005 in the median of
these studies' rows). A false star marks a difference where there is none. `3 + 12` are 3 seeds of
each row and 12 of base.

Expected: with the procedure of `t2t_jax.study.statistics` (Welch's t, with more seeds of base also
a pooled variance, Bonferroni's correction for all rows of two columns), at most 5% of tables have a
false star, whichever rows differ; with Welch's t alone, up to 30% where base has more seeds. With
12 seeds of base in place of 3, the same 3 seeds of the other rows find several times as many
differences.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from t2t_jax import files
from t2t_jax.study.collecting import collect
from t2t_jax.study.declaration import find
from t2t_jax.study.requests import Request
from t2t_jax.study.statistics import p_value, spread, standard_error
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "significance"
STUDIES = "attention-demo", "table2-hour"
SEEDS = (2, 2), (2, 8), (3, 3), (3, 12), (5, 5), (5, 20), (10, 10)  # of each row, and of base
EFFECTS = {"BLEU": (1, 2, 3, 5), "NLL": (0.01, 0.02, 0.05, 0.1)}
SENTENCES, SENTENCES_NLL = 0.3, 0.005  # BLEU, and nats for each token
LEVEL, COLUMNS = 0.05, 2  # a table tests PPL and BLEU


class Scene(NamedTuple):
    """The distribution that tables are drawn from.

    Attributes:
      deviations: standard deviation of every row over seeds; the first row is base.
      seeds: of each row, and of base.
      sentences: standard deviation over sentences, which the seeds of a row share.
      over: which comparisons are made: those with "base", or all "pairs".
      others_differ: whether all rows differ except base and the row that varies most.
      effect: the difference from base of every other row.
    """

    deviations: tuple[float, ...]
    seeds: tuple[int, int]
    sentences: float = 0.0
    over: str = "base"
    others_differ: bool = False
    effect: float = 0.0

    def means(self) -> np.ndarray:
        rows = len(self.deviations)
        if not self.others_differ:
            return self.effect * (np.arange(rows) % 2)
        means = 1000.0 * np.arange(rows)
        means[1 + np.argmax(self.deviations[1:])] = 0
        return means

    def counts(self) -> np.ndarray:
        """Returns the number of seeds of every row."""
        row, base = self.seeds
        return np.array([base, *[row] * (len(self.deviations) - 1)])

    def comparisons(self) -> tuple[np.ndarray, np.ndarray]:
        rows = len(self.deviations)
        if self.over == "pairs":
            return np.triu_indices(rows, 1)
        return np.arange(1, rows), np.zeros(rows - 1, int)


def welch(scene, sizes, variances):
    """Returns p [tables, comparisons] by Welch's t; variances over seeds [tables, rows]."""
    return p_value(sizes, *_error(scene, variances))


def guarded(scene, sizes, variances):
    """Returns p as the package does: base's extra seeds count only with a pooled variance, too."""
    p = welch(scene, sizes, variances)
    row, base = scene.seeds
    return np.maximum(p, pooled(scene, sizes, variances)) if base > row else p


def _error(scene, variances):
    of_both = np.stack([variances[:, rows] for rows in scene.comparisons()])
    n = np.stack([scene.counts()[rows] for rows in scene.comparisons()])
    return standard_error(of_both, n[:, None], 2 * scene.sentences**2)


def normal(scene, sizes, variances):
    """Returns p as if the deviations were known, as does a bootstrap of K - 1 of K seeds."""
    return p_value(sizes, _error(scene, variances)[0], np.inf)


def pooled(scene, sizes, variances):
    """Returns p with one variance for all rows (Dunnett 1955)."""
    own = scene.counts() - 1
    mean = np.average(variances, axis=1, weights=own)[:, None]
    return p_value(sizes, _error(scene, np.broadcast_to(mean, variances.shape))[0], own.sum())


def moderated(scene, sizes, variances):
    """Returns p with the variance of each row shrunk towards a common one (Smyth 2004)."""
    own = scene.counts() - 1
    logs = np.log(variances) - special.digamma(own / 2) + np.log(own / 2)
    beyond = logs.var(axis=1, ddof=1, keepdims=True) - special.polygamma(1, own / 2).mean()
    prior = 2 * _inverse_trigamma(np.maximum(beyond, 1e-3))
    common = np.exp(logs.mean(axis=1, keepdims=True) + special.digamma(prior / 2)) / (prior / 2)
    shrunk = (prior * common + own * variances) / (prior + own)
    squares, freedom = shrunk / (own + 1), np.minimum(prior + own, own.sum())
    (a, b), (m, n) = ([x[:, part] for part in scene.comparisons()] for x in (squares, freedom))
    joint = (a + b) ** 2 / (a**2 / m + b**2 / n)
    return p_value(sizes, np.sqrt(a + b + 2 * scene.sentences**2), joint)


def _inverse_trigamma(y):
    x = 0.5 + 1 / y
    for _ in range(20):  # Newton's method on 1 / trigamma
        value = special.polygamma(1, x)
        x += value * (1 - value / y) / special.polygamma(2, x)
    return x


def bonferroni(p):
    """Returns which comparisons have a star, bool [tables, comparisons]."""
    return p * p.shape[1] * COLUMNS < LEVEL


def holm(p):
    """Corrects each p, smallest first, for the comparisons left (Holm 1979); as `bonferroni`."""
    order = np.argsort(p, axis=1)
    factors = COLUMNS * np.arange(p.shape[1], 0, -1)
    below = np.take_along_axis(p, order, axis=1) * factors < LEVEL
    out = np.empty_like(below)
    np.put_along_axis(out, order, np.logical_and.accumulate(below, axis=1), axis=1)
    return out


Procedure = tuple[Callable, Callable]
OURS: Procedure = guarded, bonferroni
PROCEDURES: dict[str, Procedure] = {
    "ours: Welch's t and pooled, Bonferroni": OURS,
    "Welch's t, Bonferroni": (welch, bonferroni),
    "Welch's t, Holm": (welch, holm),
    "moderated t, Holm": (moderated, holm),
    "pooled variance, Holm": (pooled, holm),
    "normal p, Holm": (normal, holm),
}


def stars(scene: Scene, tables: int, procedure: Procedure) -> tuple[np.ndarray, np.ndarray]:
    """Returns stars [tables, comparisons], and which comparisons are of equal rows."""
    random = np.random.default_rng(0)
    deviations, rows = np.array(scene.deviations), len(scene.deviations)
    n = scene.counts()
    scores = deviations[:, None] * random.normal(size=(tables, rows, n.max()))
    drawn = np.arange(n.max()) < n[:, None]
    averages = (scores * drawn).sum(axis=2) / n
    squares = (scores - averages[..., None]) ** 2
    variances = (squares * drawn).sum(axis=2) / (n - 1)
    shared = scene.sentences * random.normal(size=(tables, rows))
    i, j = scene.comparisons()
    means = averages + shared + scene.means()
    p, star = procedure
    equal = scene.means()[i] == scene.means()[j]
    return star(p(scene, means[:, i] - means[:, j], variances)), equal


def false_stars(scene: Scene, tables: int, procedure: Procedure) -> float:
    """Returns the share of tables with a false star."""
    drawn, equal = stars(scene, tables, procedure)
    return float(drawn[:, equal].any(axis=1).mean())


def power(scene: Scene, tables: int, procedure: Procedure) -> float:
    """Returns the share of true differences that have a star."""
    drawn, equal = stars(scene, tables, procedure)
    return float(drawn[:, ~equal].mean())


def over_seeds(name: str, metric: str = "BLEU") -> tuple[float, ...]:
    """Returns the deviation over the seeds of every row of a stored study, untuned."""
    study, scale = name.split("-")
    rows = collect(Request(study, scale).grid(find(study), RESULTS.parent / name), mix=True)

    def value(run):
        return run.score if metric == "BLEU" else math.log(run.result["dev_perplexity"])

    return tuple(spread([value(run) for run in row.runs]).deviation for row in rows)


def grids() -> dict[str, tuple[float, ...]]:
    """Returns deviations of BLEU over seeds, of each stored study and of 20 random rows of all."""
    out = {name: over_seeds(name) for name in STUDIES}
    every = [deviation for row in out.values() for deviation in row]
    drawn = np.random.default_rng(0).choice(every, 20, replace=False)
    return out | {"20 rows of these": tuple(drawn.tolist())}


def scenes(deviations, seeds):
    """Returns the scenes in which a star can be false."""
    return [
        Scene(deviations, seeds, sentences, over, others_differ)
        for over in ("base", "pairs")
        for others_differ in (False, True)
        for sentences in (0.0, SENTENCES)
    ]


def rates(tables):
    """Returns rates of false stars: {procedure: {grid: {seeds: [rate of each scene]}}}."""
    return {
        name: {
            grid: {n: [false_stars(s, tables, procedure) for s in scenes(d, n)] for n in SEEDS}
            for grid, d in grids().items()
        }
        for name, procedure in PROCEDURES.items()
    }


def powers(tables, metric):
    """Returns {procedure: {seeds: [power at each effect]}}, with the first study's deviations."""
    deviations = over_seeds(STUDIES[0], metric)
    sentences = SENTENCES if metric == "BLEU" else SENTENCES_NLL
    return {
        name: {
            n: [
                power(Scene(deviations, n, sentences, effect=e), tables, procedure)
                for e in EFFECTS[metric]
            ]
            for n in SEEDS
        }
        for name, procedure in PROCEDURES.items()
    }


def in_detail(measured, tables):
    """Returns the rates of the package's procedure, a row for each scene."""
    (by_grid,) = [measured[name] for name, p in PROCEDURES.items() if p is OURS]
    head = ["deviations of", "compared", "rows that differ", "sentences", *map(seeds_of, SEEDS)]
    lines = []
    for grid, by_seeds in by_grid.items():
        for k, scene in enumerate(scenes((1.0, 1.0), (2, 2))):
            compared = "all pairs" if scene.over == "pairs" else "with base"
            differ = "all but two" if scene.others_differ else "none"
            cells = [f"{100 * by_seeds[n][k]:.1f}" for n in SEEDS]
            lines.append([grid, compared, differ, "vary" if scene.sentences else "", *cells])
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / tables)
    return (
        f"**Tables with a false star, % of {tables:,} (standard error at 5%: {error:.1f}): "
        f"ours**\n\n{pipe_table(head, lines)}"
    )


def against_others(measured, shares):
    """Returns the worst rate and the power of every procedure and number of seeds."""
    effects = [f"{e} {metric}" for metric, sizes in EFFECTS.items() for e in sizes]
    head = ["", "seeds", "none differ", "all but two differ", *effects]
    lines = []
    differ = [scene.others_differ for scene in scenes((1.0, 1.0), (2, 2))]
    for name, by_grid in measured.items():
        for n in SEEDS:
            each = np.array([by_seeds[n] for by_seeds in by_grid.values()])
            worst = [each[:, np.array(differ) == d].max() for d in (False, True)]
            numbers = [*worst, *(share for metric in EFFECTS for share in shares[metric][name][n])]
            lines.append([name, f"{n[0]} + {n[1]}", *(f"{100 * share:.1f}" for share in numbers)])
    return (
        "**Worst rate of false stars (% of tables), and power (% of rows that differ) at "
        "differences of BLEU and of negative log-likelihood in nats for each token (with base, "
        f"sentences vary, {STUDIES[0]})**\n\n{pipe_table(head, lines)}"
    )


def seeds_of(n):
    return f"{n[0]} + {n[1]} seeds"


def main():
    tables = 3_000
    RESULTS.mkdir(parents=True, exist_ok=True)
    measured = rates(tables)
    shares = {metric: powers(tables // 3, metric) for metric in EFFECTS}
    text = f"{in_detail(measured, tables)}\n{against_others(measured, shares)}"
    files.write(RESULTS / "table.md", text)
    print(text)


if __name__ == "__main__":
    main()
