"""Does the best learning rate of a small model serve a wide one, or a deep one?

    launch/local.sh run transfer --seeds 1 --base-seeds 1         an hour on 2 CPU cores
    launch/local.sh run transfer_depth --seeds 1 --base-seeds 1   half an hour
    launch/local.sh experiments/transfer.py                       figures of stored results

Every width is trained at every peak of the learning rate, under the standard parametrization and
under muP (Yang et al. 2022), which equals it at d_model 512 (64 in preset demo). A head has 64
features at every width, and d_ff is 4 d_model, as muP assumes. Learning rates transfer if the lines
of NLL against peak_lr have their lowest point at the same rate for every width. Expected in preset
demo (experiments/results/transfer-demo): with muP between 0.0121 and 0.0128, with the standard
parametrization from 0.0256 at the narrowest width to 0.0031 at the widest.

In transfer_depth the depth varies. CompleteP (Dey et al. 2025) with alpha = 1 multiplies residual
branches by 2 / N, so that it equals pre-norm with two layers (row N=4 in preset demo); the best
learning rate should then not depend on N. Adam's epsilon, which CompleteP also scales, is constant.
"""

from pathlib import Path

import numpy as np
from scipy import special

from t2t_jax import files, plotting
from t2t_jax.study import cross, norm_placement, study
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results"
STUDIES = {"transfer": ("parametrization", "d_model"), "transfer_depth": ("norm_placement", "N")}
RATES = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064]
DEPTH = 2  # layers, after the preset, with which `complete` equals pre-norm


@norm_placement("complete", "x + 2 f(Norm(x)) / N (CompleteP, with alpha = 1)", final_norm=True)
def complete(layer, x, sublayers, P_drop):
    for name, f in sublayers.items():
        add_norm = layer.add_norm(name)
        x = x + DEPTH / layer.c.N * add_norm.drop(f(add_norm.norm(x)), P_drop)
    return x


@study(
    "Widths and learning rates under the standard parametrization and muP",
    columns="parametrization d_model peak_lr",
    split="",
    base=dict(norm_placement="pre"),
)
def transfer():
    return cross(
        parametrization=["standard", "mup"],
        d_model=[256, 512, 1024, 2048],
        peak_lr=RATES,
        d_ff=lambda row: 4 * row["d_model"],
        h=lambda row: row["d_model"] // 64,
    )


@study(
    "Depths and learning rates with pre-norm and CompleteP",
    columns="norm_placement N peak_lr",
    split="",
)
def transfer_depth():
    return cross(norm_placement=["pre", "complete"], N=[4, 8, 16, 32], peak_lr=RATES)


def curves(lines, kind, size):
    """Returns the rates, and NLL [seeds, rates] by the values of two fields, kind and size."""
    cells: dict[tuple[str, int], dict[float, np.ndarray]] = {}
    for line in lines:
        m, rate = line.c.model, line.c.training.peak_lr
        cell = getattr(m, kind), getattr(m, size)
        cells.setdefault(cell, {})[rate] = np.log(line.PPL.values)
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


def summary(rates, NLL, smallest):
    """Returns what a line of the table shows of a size.

    Args:
      NLL: [seeds, rates].
      smallest: NLL of the smallest size.
    """
    transferred = smallest.mean(axis=0).argmin()
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


def measure(lines, kind, size):
    """Returns a summary of each size, by kind."""
    rates, NLL = curves(lines, kind, size)
    sizes = sorted({x for _, x in NLL})
    return {
        name: {x: summary(rates, NLL[name, x], NLL[name, sizes[0]]) for x in sizes}
        for name in dict.fromkeys(name for name, _ in NLL)
    }


def table(results, kind, size):
    """Returns Markdown: a line for each kind and size."""
    heads = [kind, size, "best peak_lr (95% interval over seeds)"]
    heads += ["NLL at the best of the rates", f"cost in nats of the best rate of the least {size}"]
    lines = []
    for name, of_size in results.items():
        for n, (value, x) in enumerate(of_size.items()):
            low, high = x["interval"] or (None, None)
            interval = f" ({low:.4f} to {high:.4f})" if low else ""
            cost = f"{x['transferred']:.3f}"
            cells = [f"{x['best']:.4f}{interval}", f"{x['NLL']:.3f}", cost]
            lines.append(["" if n else name, str(value), *cells])
    return pipe_table(heads, lines)


def draw(lines, kind, size, path):
    """Plots NLL over the learning rate, with a panel for each kind and a line for each size."""
    rates, NLL = curves(lines, kind, size)
    styles = plotting.styles([f"{size}={x}" for x in sorted({x for _, x in NLL})])
    x = plotting.Axis.over("rate", "peak_lr", rates, log=True, values=rates)
    y = plotting.Axis.over(
        "NLL", "NLL on dev, in nats", (z.mean() for v in NLL.values() for z in v.T)
    )
    panels: list[plotting.Spec] = []
    for name in dict.fromkeys(name for name, _ in NLL):
        values = [
            styles[f"{size}={of_size}"]
            | dict(rate=rate, NLL=float(z.mean()), low=float(z.min()), high=float(z.max()))
            for (of, of_size), all_rates in NLL.items()
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

    for name, fields in STUDIES.items():
        folder = RESULTS / f"{name}-demo"
        if not folder.exists():
            continue
        lines = stored(name, "demo")
        results = measure(lines, *fields)
        files.write_json(folder / "best.json", results)
        files.write(folder / "rates.md", table(results, *fields))
        draw(lines, *fields, folder / "rates")
        print(table(results, *fields))


if __name__ == "__main__":
    main()
