"""How often a table has a false star: procedures compared on tables whose truth is known.

    python experiments/significance.py        2 minutes on one CPU core

Writes experiments/results/significance. Tables of scores are drawn with the deviations over seeds
of the stored studies, with and without a part of the variance over sentences that a row's seeds
share (0.3 BLEU, as in the same studies). Expected: Welch's t with Bonferroni's correction, which
`t2t_jax.study.statistics` uses, has a false star in at most 5% of tables, whichever rows differ.
With Holm's correction it has them in up to 7%; with moderated variances in up to 30%, with one
pooled variance in up to 40%, with normal p, as those of a bootstrap over seeds are, in up to 97%.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from t2t_jax.study.statistics import p_value, standard_error
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "significance"
STUDIES = "attention-demo", "attention_flops-demo", "table2-demo"
SEEDS, EFFECTS = (2, 3, 5, 10), (1, 2, 3, 5)
SENTENCES = 0.3  # BLEU
LEVEL = 0.05


class Scene(NamedTuple):
    """What tables are drawn from.

    Attributes:
      deviations: of every row over seeds; the first row is base.
      sentences: deviation over sentences that the seeds of a row share.
      over: which comparisons are made, those with "base" or all "pairs".
      others_differ: all rows differ, but for base and the row that varies most.
      effect: by which every other row differs from base.
    """

    deviations: tuple[float, ...]
    seeds: int
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

    def comparisons(self) -> tuple[np.ndarray, np.ndarray]:
        rows = len(self.deviations)
        if self.over == "pairs":
            return np.triu_indices(rows, 1)
        return np.arange(1, rows), np.zeros(rows - 1, int)


def welch(scene, sizes, variances):
    """p as the package has it, [tables, comparisons]; variances over seeds [tables, rows]."""
    return p_value(sizes, *_error(scene, variances))


def _error(scene, variances):
    of_both = np.stack([variances[:, rows] for rows in scene.comparisons()])
    return standard_error(of_both, np.full((2, 1, 1), scene.seeds), 2 * scene.sentences**2)


def normal(scene, sizes, variances):
    """p as if the deviations were known: a bootstrap that draws K - 1 of K seeds has the same."""
    return p_value(sizes, _error(scene, variances)[0], np.inf)


def pooled(scene, sizes, variances):
    """p with one variance for all rows, as Dunnett's (1955)."""
    mean = np.broadcast_to(variances.mean(axis=1, keepdims=True), variances.shape)
    return p_value(sizes, _error(scene, mean)[0], variances.shape[1] * (scene.seeds - 1))


def moderated(scene, sizes, variances):
    """p with each row's variance drawn towards that of all (Smyth 2004)."""
    own, rows = scene.seeds - 1, variances.shape[1]
    logs = np.log(variances) - special.digamma(own / 2) + math.log(own / 2)
    beyond = logs.var(axis=1, ddof=1, keepdims=True) - special.polygamma(1, own / 2)
    prior = 2 * _inverse_trigamma(np.maximum(beyond, 1e-3))
    common = np.exp(logs.mean(axis=1, keepdims=True) + special.digamma(prior / 2)) / (prior / 2)
    shrunk = (prior * common + own * variances) / (prior + own)
    freedom = np.minimum(prior + own, rows * own)
    a, b = (shrunk[:, part] for part in scene.comparisons())
    freedom = (a + b) ** 2 / ((a**2 + b**2) / freedom)
    return p_value(sizes, np.sqrt((a + b) / scene.seeds + 2 * scene.sentences**2), freedom)


def _inverse_trigamma(y):
    x = 0.5 + 1 / y
    for _ in range(20):  # Newton's method on 1 / trigamma
        value = special.polygamma(1, x)
        x += value * (1 - value / y) / special.polygamma(2, x)
    return x


def bonferroni(p):
    """Which comparisons [tables, comparisons] have a star."""
    return p * p.shape[1] < LEVEL


def holm(p):
    """The same, the smallest p first, each corrected for those that are left (Holm 1979)."""
    order = np.argsort(p, axis=1)
    factors = np.arange(p.shape[1], 0, -1)
    below = np.take_along_axis(p, order, axis=1) * factors < LEVEL
    out = np.empty_like(below)
    np.put_along_axis(out, order, np.logical_and.accumulate(below, axis=1), axis=1)
    return out


Procedure = tuple[Callable, Callable]
WELCH: Procedure = welch, bonferroni
PROCEDURES: dict[str, Procedure] = {
    "Welch's t, Bonferroni": WELCH,
    "Welch's t, Holm": (welch, holm),
    "moderated t, Holm": (moderated, holm),
    "pooled variance, Holm": (pooled, holm),
    "normal p, Holm": (normal, holm),
}


def stars(scene: Scene, tables: int, procedure: Procedure) -> tuple[np.ndarray, np.ndarray]:
    """Stars [tables, comparisons], and which comparisons are of equal rows."""
    random = np.random.default_rng(0)
    deviations, rows = np.array(scene.deviations), len(scene.deviations)
    scores = deviations[:, None] * random.normal(size=(tables, rows, scene.seeds))
    shared = scene.sentences * random.normal(size=(tables, rows))
    i, j = scene.comparisons()
    means = scores.mean(axis=2) + shared + scene.means()
    p, star = procedure
    equal = scene.means()[i] == scene.means()[j]
    return star(p(scene, means[:, i] - means[:, j], scores.var(axis=2, ddof=1))), equal


def false_stars(scene: Scene, tables: int, procedure: Procedure) -> float:
    """The share of tables with one or more."""
    drawn, equal = stars(scene, tables, procedure)
    return float(drawn[:, equal].any(axis=1).mean())


def power(scene: Scene, tables: int, procedure: Procedure) -> float:
    """The share of rows which differ that have a star."""
    drawn, equal = stars(scene, tables, procedure)
    return float(drawn[:, ~equal].mean())


def grids() -> dict[str, tuple[float, ...]]:
    """Deviations of BLEU over seeds in the stored studies, and of 20 rows drawn from all."""
    out = {}
    for name in STUDIES:
        rows = json.loads((RESULTS.parent / name / "table.json").read_text())
        out[name] = tuple(row["BLEU"]["deviation"] for row in rows)
    every = [deviation for row in out.values() for deviation in row]
    drawn = np.random.default_rng(0).choice(every, 20, replace=False)
    return out | {"20 rows of these": tuple(drawn.tolist())}


def scenes(deviations, seeds):
    """Those in which a star can be false."""
    return [
        Scene(deviations, seeds, sentences, over, others_differ)
        for over in ("base", "pairs")
        for others_differ in (False, True)
        for sentences in (0.0, SENTENCES)
    ]


def rates(tables):
    """Of false stars: {procedure: {grid: {seeds: [rate of each scene]}}}."""
    return {
        name: {
            grid: {n: [false_stars(s, tables, procedure) for s in scenes(d, n)] for n in SEEDS}
            for grid, d in grids().items()
        }
        for name, procedure in PROCEDURES.items()
    }


def powers(tables):
    """{procedure: {seeds: [power at each effect]}}, with the deviations of the first study."""
    deviations = grids()[STUDIES[0]]
    return {
        name: {
            n: [
                power(Scene(deviations, n, SENTENCES, effect=e), tables, procedure) for e in EFFECTS
            ]
            for n in SEEDS
        }
        for name, procedure in PROCEDURES.items()
    }


def in_detail(measured, tables):
    """The rates of the procedure that the package uses, a row a scene."""
    (by_grid,) = [measured[name] for name, p in PROCEDURES.items() if p is WELCH]
    head = ["deviations of", "compared", "rows that differ", "sentences", *map(seeds_of, SEEDS)]
    lines = []
    for grid, by_seeds in by_grid.items():
        for k, scene in enumerate(scenes((1.0, 1.0), 2)):
            compared = "all pairs" if scene.over == "pairs" else "with base"
            differ = "all but two" if scene.others_differ else "none"
            cells = [f"{100 * by_seeds[n][k]:.1f}" for n in SEEDS]
            lines.append([grid, compared, differ, "vary" if scene.sentences else "", *cells])
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / tables)
    return (
        f"**Tables with a false star, % of {tables:,} (standard error at 5%: {error:.1f}): "
        f"Welch's t, Bonferroni**\n\n{pipe_table(head, lines)}"
    )


def against_others(measured, shares):
    """The worst rate of every procedure, and its power, a row a procedure."""
    head = ["", "seeds", "none differ", "all but two differ", *(f"{e} BLEU" for e in EFFECTS)]
    lines = []
    differ = [scene.others_differ for scene in scenes((1.0, 1.0), 2)]
    for name, by_grid in measured.items():
        for n in SEEDS:
            each = np.array([by_seeds[n] for by_seeds in by_grid.values()])
            worst = [each[:, np.array(differ) == d].max() for d in (False, True)]
            numbers = [*worst, *shares[name][n]]
            lines.append([name, str(n), *(f"{100 * share:.1f}" for share in numbers)])
    return (
        "**False stars at worst (% of tables), and power at differences of 1 to 5 BLEU (% of rows "
        f"that differ; with base, sentences vary, {STUDIES[0]})**\n\n{pipe_table(head, lines)}"
    )


def seeds_of(n):
    return f"{n} seeds"


def main():
    tables = 10_000
    RESULTS.mkdir(parents=True, exist_ok=True)
    measured = rates(tables)
    text = f"{in_detail(measured, tables)}\n{against_others(measured, powers(tables // 5))}"
    (RESULTS / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
