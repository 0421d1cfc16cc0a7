"""False stars and power of the test of this project, on simulated tables of 20 rows.

    launch/local.sh experiments/significance.py        1 minute on one CPU core

Writes experiments/results/significance. Every table has two columns, whose seeds and sentences are
correlated like BLEU and NLL in the stored studies, and is tested as `t2t_jax.study.comparison`
tests it. `3 + 12` are 3 seeds of each row and 12 of base. A false star marks a difference where
there is none; power is the share of true differences that have a star.

Expected: at most 5% of tables have a false star, whatever the deviations over seeds. With equal
deviations, 3 + 12 seeds find 49 to 63% of the differences of 3 BLEU, and 3 + 3 seeds 15 to 36%.
"""

import itertools
from pathlib import Path

import numpy as np

from experiments.tools import grids
from t2t_jax import files, plotting
from t2t_jax.study.power import Margins, Noise, margins, power
from t2t_jax.study.requests import Request
from t2t_jax.study.statistics import spread
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "significance"
SEEDS = (3, 3), (3, 12), (5, 20)  # of each row, and of base
ROWS = 20
DEVIATION, SENTENCES = 0.8, (0.0, 0.3, 0.6)  # BLEU: over seeds; over sentences, of a difference
MOST = 0.05  # tables with a false star
EFFECTS = {"BLEU": (1, 2, 3, 5), "nats": (0.01, 0.02, 0.05, 0.1)}
NATS = 0.008 / DEVIATION, 0.004 / 0.3  # deviations in nats for each BLEU, seeds and sentences
STORED = "attention-demo", "table3-hour"  # studies whose rows lend their deviations of BLEU


def scenes() -> dict[str, np.ndarray]:
    """Returns the deviations over seeds of every row, base first."""
    equal, first = np.full(ROWS, DEVIATION), np.arange(ROWS) == 0
    return {
        "equal": equal,
        **{name: over_seeds(name) for name in STORED},
        "base varies 2.5 times less": np.where(first, equal / 2.5, equal),
        "base varies 2.5 times more": np.where(first, equal * 2.5, equal),
        "one row varies 5 times more": np.where(first[::-1], equal * 5, equal),
        "half the rows vary 5 times more": np.where(np.arange(ROWS) < ROWS / 2, 0.3, 1.5),
    }


def over_seeds(name: str) -> np.ndarray:
    """Returns the deviations of BLEU over the seeds of the first rows of a stored study."""
    study, preset = name.split("-")
    _, rows = grids.collected(Request(study, preset), RESULTS.parent / name)
    scores = [[run.score for run in row.runs if run.score is not None] for row in rows[:ROWS]]
    return np.array([spread(of_row).deviation for of_row in scores])


def false_stars(found: Margins) -> float:
    """Returns the share of tables without a difference that have a star."""
    differences, least = found
    return float((abs(differences) > least).any(axis=(1, 2)).mean())


def figure(path: Path, tables: int) -> None:
    """Plots the power by the difference, for equal deviations and the largest over sentences."""
    names = [f"{row} + {base} seeds" for row, base in SEEDS]
    styles, values, equal = plotting.styles(names), [], scenes()["equal"]
    for name, seeds in zip(names, SEEDS, strict=True):
        drawn = margins(Noise(equal, SENTENCES[-1]), seeds, tables)
        for size in np.linspace(0, 6, 25).tolist():
            values.append(styles[name] | {"size": size, "power": 100 * power(drawn, size)})
    x = plotting.Axis("size", "true difference (BLEU)", 0, 6)
    y = plotting.Axis("power", "differences with a star (%)", 0, 100)
    named = [v for v in values if v["size"] == x.high]
    body = plotting.panel(x, y, (360, 260), [("line", {})], named) | {"data": {"values": values}}
    plotting.write(path, plotting.chart(body, names))


def main() -> None:
    tables, lines = 4000, []
    for name, deviations in scenes().items():
        for seeds, sentences in itertools.product(SEEDS, SENTENCES):
            BLEU = margins(Noise(deviations, sentences), seeds, tables)
            of_nats = Noise(deviations * NATS[0], sentences * NATS[1])
            nats = margins(of_nats, seeds, tables)
            rates = [false_stars(BLEU), *(power(BLEU, size) for size in EFFECTS["BLEU"])]
            rates += [power(nats, size) for size in EFFECTS["nats"]]
            texts = [f"{100 * rate:.1f}" for rate in rates]
            lines.append([name, f"{seeds[0]} + {seeds[1]}", f"{sentences}", *texts])
    head = ["deviations over seeds", "seeds", "over sentences", "false stars"]
    head += [f"{size} {unit}" for unit, sizes in EFFECTS.items() for size in sizes]
    title = (
        f"Tables with a false star (% of {tables:,}), and differences of BLEU or NLL that have a "
        "star (%)"
    )
    files.make_directory(RESULTS)
    files.write(RESULTS / "table.md", f"**{title}**\n\n{pipe_table(head, lines)}")
    figure(RESULTS / "power", tables)


if __name__ == "__main__":
    main()
