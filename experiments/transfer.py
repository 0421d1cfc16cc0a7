"""Does the best learning rate of a small model serve a wide one, and does muP make it so?

    launch/local.sh run transfer --seeds 1 --base-seeds 1     an hour on 2 CPU cores
    launch/local.sh experiments/transfer.py                   draws the figure from stored results

Every width is trained at every peak of the learning rate, under the standard parametrization and
under muP (Yang et al. 2022), which equals it at d_model 512. A head has 64 features at every
width, and d_ff is 4 d_model, as muP assumes. Learning rates transfer if the lines of NLL
against peak_lr have their lowest point at the same rate for every width. Expected in preset demo
(experiments/results/transfer-demo): with muP between 0.0121 and 0.0128, with the standard
parametrization from 0.0256 at the narrowest width to 0.0031 at the widest.
"""

from pathlib import Path

import numpy as np
from scipy import special

from t2t_jax import files, plotting
from t2t_jax.study import cross, study
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "transfer-demo"


@study(
    "Widths and learning rates under the standard parametrization and muP",
    columns="parametrization d_model peak_lr",
    split="",
    V=41_100,
    base=dict(norm_placement="pre"),
)
def transfer():
    return cross(
        parametrization=["standard", "mup"],
        d_model=[256, 512, 1024, 2048],
        peak_lr=[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064],
        d_ff=lambda row: 4 * row["d_model"],
        h=lambda row: row["d_model"] // 64,
    )


def curves(lines):
    """Returns the rates, and NLL [seeds, rates] of each (parametrization, d_model)."""
    cells: dict[tuple[str, int], dict[float, np.ndarray]] = {}
    for line in lines:
        m, rate = line.c.model, line.c.training.peak_lr
        cells.setdefault((m.parametrization, m.d_model), {})[rate] = np.log(line.PPL.values)
    rates = sorted({rate for of_model in cells.values() for rate in of_model})
    return rates, {x: np.stack([y[rate] for rate in rates], axis=1) for x, y in cells.items()}


def lowest(rates, NLL):
    """Returns the rate at the lowest point of NLL [rates], by a parabola over the rate's logarithm.

    The parabola goes through the lowest of the points and its neighbours. An end of the range that
    is the lowest point is returned as it is.
    """
    i = int(np.argmin(NLL))
    if i in (0, len(rates) - 1):
        return float(rates[i])
    a, b, _ = np.polyfit(np.log2(rates[i - 1 : i + 2]), NLL[i - 1 : i + 2], 2)
    return float(2 ** (-b / (2 * a)))


def summary(rates, NLL, narrowest):
    """Returns what a line of the table shows of a width.

    Args:
      NLL: [seeds, rates].
      narrowest: NLL of the narrowest width.
    """
    transferred = narrowest.mean(axis=0).argmin()
    best = np.array([lowest(rates, x) for x in NLL])
    logs = np.log2(best)
    n = len(best)
    ends = special.stdtrit(n - 1, [0.025, 0.975]) * logs.std(ddof=1) / n**0.5 if n > 1 else None
    return {
        "best": float(2 ** logs.mean()),
        "interval": (2 ** (logs.mean() + ends)).tolist() if n > 1 else None,
        "NLL": float(NLL.min(axis=1).mean()),
        "transferred": float((NLL[:, transferred] - NLL.min(axis=1)).mean()),
        "seeds": n,
    }


def measure(lines):
    """Returns a summary of each width, by parametrization."""
    rates, NLL = curves(lines)
    widths = sorted({d_model for _, d_model in NLL})
    return {
        name: {d: summary(rates, NLL[name, d], NLL[name, widths[0]]) for d in widths}
        for name in dict.fromkeys(name for name, _ in NLL)
    }


def table(results):
    """Returns Markdown: a line for each parametrization and width."""
    heads = ["parametrization", "d_model", "best peak_lr (95% interval over seeds)"]
    heads += ["NLL at the best of the rates", "cost in nats of the narrowest width's best rate"]
    lines = []
    for name, of_width in results.items():
        for n, (d_model, x) in enumerate(of_width.items()):
            low, high = x["interval"] or (None, None)
            interval = f" ({low:.4f} to {high:.4f})" if low else ""
            cost = f"{x['transferred']:.3f}"
            cells = [f"{x['best']:.4f}{interval}", f"{x['NLL']:.3f}", cost]
            lines.append(["" if n else name, str(d_model), *cells])
    return pipe_table(heads, lines)


def draw(lines, path):
    """Plots NLL over the learning rate, with a panel for each parametrization."""
    rates, NLL = curves(lines)
    styles = plotting.styles([f"d_model={d}" for d in sorted({d for _, d in NLL})])
    x = plotting.Axis.over("rate", "peak_lr", rates, log=True, values=rates)
    y = plotting.Axis.over(
        "NLL", "NLL on dev, in nats", (z.mean() for v in NLL.values() for z in v.T)
    )
    panels: list[plotting.Spec] = []
    for name in dict.fromkeys(name for name, _ in NLL):
        values = [
            styles[f"d_model={d}"]
            | dict(rate=rate, NLL=float(z.mean()), low=float(z.min()), high=float(z.max()))
            for (of, d), all_rates in NLL.items()
            if of == name
            for rate, z in zip(rates, all_rates.T, strict=True)
        ]
        layers = [*plotting.LINES, plotting.interval(y)]
        ends = {v["row"]: v for v in values}.values() if panels else ()
        panel = plotting.panel(x, y, (220, 220), layers, ends)
        panels.append(panel | {"data": {"values": values}, "title": name})
    plotting.write(path, plotting.chart({"hconcat": panels}, [*styles]))


def main():
    from experiments.mechanisms import stored  # no study file may import it when it is loaded

    lines = stored("transfer", "demo")
    results = measure(lines)
    files.write_json(RESULTS / "widths.json", results)
    files.write(RESULTS / "rates.md", table(results))
    draw(lines, RESULTS / "rates")
    print(table(results))


if __name__ == "__main__":
    main()
