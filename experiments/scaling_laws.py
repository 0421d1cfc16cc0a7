"""How the NLL of language models falls with parameters and tokens, by attention mechanism.

    launch/local.sh run scaling_laws --preset text --base-seeds 1 --train F --dev F --test F
    launch/local.sh experiments/scaling_laws.py        makes table and figure from stored results

Decoders of four widths read four numbers of tokens each, with softmax attention, a window and a
gated memory. For each mechanism,

    NLL(N, D) = E + A / N^alpha + B / D^beta

(Hoffmann et al. 2022, equation 2; N parameters, embeddings included, D tokens) is fitted to the 16
test NLLs, by their logarithms with a Huber loss as there. Intervals are over resampled runs. A
second fit leaves out the widest models and predicts them. The warm-up has a twelfth of the steps,
and the peak of the learning rate falls as d_model^-0.5; it was not tuned.
"""

from pathlib import Path

import numpy as np
from scipy import optimize

from t2t_jax import files, plotting
from t2t_jax.study import cross, study
from t2t_jax.study.typeset import pipe_table

RESULTS = Path(__file__).parent / "results" / "scaling_laws-text"
BASE = "scaled_dot_product"
FITTED = "E", "A", "alpha", "B", "beta"
LEAST, MOST = (0.01, 0, 0, 0, 0), (50, 3, 50, 3)  # bounds of a fit; E is at most the least NLL
DRAWS = 200  # of runs with replacement
HUBER = 1e-3  # the residual of log NLL from which on the loss is linear


@study(
    "Widths, tokens and attention mechanisms of language models",
    columns="decoder_attention d_model steps",
    split="test",
    base=dict(architecture="decoder", corpus="documents"),
)
def scaling_laws():
    return cross(
        decoder_attention=[BASE, "local:w=16", "gated_linear"],
        d_model=[128, 256, 384, 512],
        steps=[6_000, 12_000, 24_000, 48_000],
        d_ff=lambda row: 4 * row["d_model"],
        h=lambda row: row["d_model"] // 64,
        warmup=lambda row: row["steps"] // 20,
        peak_lr=lambda row: round(0.004 * (512 / row["d_model"]) ** 0.5, 4),
    )


def points(lines):
    """Returns parameters and tokens in millions, FLOPs and NLL [runs, 4], by mechanism."""
    of_mechanism: dict[str, list[tuple[float, ...]]] = {}
    for line in lines:
        result = line.runs[0].result
        tokens = line.c.training.steps * line.c.data.batch_tokens
        NLL = line.score.spread.mean
        point = result["parameters"] / 1e6, tokens / 1e6, result["flops"], NLL
        of_mechanism.setdefault(line.c.model.decoder_attention, []).append(point)
    return {name: np.array(sorted(x)) for name, x in of_mechanism.items()}


def law(parameters, N, D):
    """NLL(N, D) in nats, N and D in millions; `parameters` has the values of FITTED."""
    E, A, alpha, B, beta = parameters
    return E + A * N**-alpha + B * D**-beta


def fit(N, D, NLL, start=None):
    """Returns the parameters with the least Huber loss of log NLL.

    Without a start, they are the best of several starts.
    """

    def residuals(parameters):
        return np.log(law(parameters, N, D) / NLL)

    bounds = LEAST, [NLL.min(), *MOST]
    starts = [(0.5 * NLL.min(), 1, alpha, 1, beta) for alpha in (0.2, 1) for beta in (0.2, 1)]
    fits = [
        optimize.least_squares(residuals, x, bounds=bounds, loss="huber", f_scale=HUBER)
        for x in (starts if start is None else [start])
    ]
    return min(fits, key=lambda x: x.cost).x


def measure(lines):
    """Returns the runs of each mechanism, its fit, and what the other widths say of the widest."""
    results = {}
    for name, x in points(lines).items():
        (N, D, _, NLL), random = x.T, np.random.default_rng(0)
        best = fit(N, D, NLL)
        # A search cannot leave a bound at which it starts.
        inside = np.clip(best, np.add(LEAST, 0.01), np.subtract([NLL.min(), *MOST], 0.01))
        drawn = random.integers(len(x), size=(DRAWS, len(x)))
        draws = [fit(N[i], D[i], NLL[i], inside) for i in drawn]
        rest = N.max() > N
        widest = law(fit(N[rest], D[rest], NLL[rest]), N[~rest], D[~rest])
        results[name] = {
            "runs": x.tolist(),
            "fit": best.tolist(),
            "interval": np.quantile(draws, [0.025, 0.975], axis=0).tolist(),
            "error": float(abs(law(best, N, D) - NLL).mean()),
            "error_of_widest": float(abs(widest - NLL[~rest]).mean()),
        }
    return results


def table(results):
    """Returns Markdown: the fits, and how far the mechanisms are apart at each size."""
    heads = [
        "mechanism",
        *FITTED,
        "mean error",
        "mean error of the widest, from a fit without them",
    ]
    lines = []
    for name, x in results.items():
        triples = zip(x["fit"], *x["interval"], strict=True)
        cells = [f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in triples]
        lines.append([name, *cells, f"{x['error']:.3f}", f"{x['error_of_widest']:.3f}"])
    return pipe_table(heads, lines) + "\n" + differences(results)


def differences(results):
    """Returns Markdown: NLL of base's mechanism by size, and the others' difference from it."""
    base, *others = results
    values = {name: np.array(x["runs"])[:, 3] for name, x in results.items()}
    heads = ["parameters (M)", "tokens (M)", f"NLL of {base}", *others]
    lines = [
        [f"{N:.2f}", f"{D:.2f}", f"{NLL:.3f}"]
        + [f"{values[name][i] - NLL:+.3f}" for name in others]
        for i, (N, D, _, NLL) in enumerate(results[base]["runs"])
    ]
    return pipe_table(heads, lines)


def draw(results, path):
    """Plots NLL over tokens with the fits, a panel for each mechanism, a line for each width."""
    widths = [f"{N:.2f} M" for N in sorted({run[0] for run in results[BASE]["runs"]})]
    every = np.concatenate([x["runs"] for x in results.values()])
    styles = plotting.styles(widths)
    panels: list[plotting.Spec] = []
    x = plotting.Axis.over("tokens", "tokens (millions)", every[:, 1], log=True)
    fits = [law(x["fit"], *np.array(x["runs"]).T[:2]) for x in results.values()]
    NLL = np.concatenate([every[:, 3], *fits])
    y = plotting.Axis.over("NLL", "test NLL, in nats", NLL, log=True)
    for name, result in results.items():
        order = {N: i for i, N in enumerate(sorted({run[0] for run in result["runs"]}))}
        values = [
            styles[widths[order[N]]]
            | dict(tokens=D, NLL=NLL, fit=float(law(result["fit"], N, D)), flops=flops)
            for N, D, flops, NLL in result["runs"]
        ]
        lines = ("line", plotting.LINES[0][1] | {"y": y.channel("fit")})
        ends = {v["row"]: v for v in values}.values() if name == [*results][-1] else ()
        panel = plotting.panel(x, y, (200, 220), [lines, plotting.LINES[1]], ends)
        panels.append(panel | {"data": {"values": values}, "title": name})
    title = ["NLL by tokens and parameters", "points: runs; lines: fits"]
    plotting.write(path, plotting.chart({"hconcat": panels}, widths, title))


def main():
    from experiments.mechanisms import stored  # no study file may import it when it is loaded

    results = measure(stored("scaling_laws", "text"))
    files.write_json(RESULTS / "laws.json", results)
    files.write(RESULTS / "fits.md", table(results))
    draw(results, RESULTS / "fits")
    print(table(results))


if __name__ == "__main__":
    main()
